"""Texts that a model, a file or a person may produce and that a page must show as text, all of them at once."""

from typing import Any

FIRE = "window.__fired.push(%d)"
_MARKUP = [
    "<img src=x onerror=FIRE>",
    "<script>FIRE</script>",
    "</textarea><script>FIRE</script>",
    "</pre></script><script>FIRE</script>",
    "</title></style></template><img src=x onerror=FIRE>",
    "<svg onload=FIRE>",
    "<svg><animate onbegin=FIRE attributeName=x dur=1s>",
    "<body onload=FIRE>",
    "<details open ontoggle=FIRE>",
    "<input autofocus onfocus=FIRE>",
    "<iframe srcdoc='<script>parent.FIRE</script>'></iframe>",
    "<iframe src=javascript:FIRE></iframe>",
    "<a href=javascript:FIRE>x</a>",
    "[x](javascript:FIRE)",
    '![x](x" onerror="FIRE)',
    "<javascript:FIRE>",
    "<a href='data:text/html,<script>FIRE</script>'>x</a>",
    "<object data='data:text/html,<script>opener.FIRE</script>'></object>",
    "<math><mtext><style><img src=x onerror=FIRE></style></mtext></math>",
    "<!--><img src=x onerror=FIRE>-->",
    '" onmouseover="FIRE" x="',
    "' autofocus onfocus='FIRE",
    "`${FIRE}`",
    "${FIRE}",
    "{{FIRE}}",
    "{{#if x}}{{FIRE}}{{/if}}{@html FIRE}",
    "{% FIRE %}<%= FIRE %>",
    "$$\\href{javascript:FIRE}{x}$$",
    "\u2028FIRE//\u2029",
    "<style>*{background:url(javascript:FIRE)}</style>",
    "<link rel=stylesheet href=data:text/css,*{display:none!important}>",
    "<meta http-equiv=refresh content='0;url=javascript:FIRE'>",
    "<base href=//evil.example/>",
    "<form action=javascript:FIRE><button autofocus>",
    "<template shadowrootmode=open><img src=x onerror=FIRE></template>",
]
_INVISIBLE = ["NUL \x00", "\x1b[2J\x1b[31mred", "\u202eright to left", "zero\u200bwidth", "\ufeff", "\r\rover"]

PAYLOADS = [text.replace("FIRE", FIRE % number) for number, text in enumerate(_MARKUP)] + _INVISIBLE
"""Each of the first ones, were it run, would push its number onto ``window.__fired``."""
ALL = " ".join(PAYLOADS)
ONE_LINE = ALL.replace("\u2028", "").replace("\u2029", "").replace("\r", "").replace("\x00", "")

WATCH = """
window.__fired = [];
window.alert = window.confirm = window.prompt = () => window.__fired.push("dialog");
"""
ACTIVE = (
    "svg[onload], animate[onbegin], iframe, object, form[action^='javascript'], a[href^='javascript'], "
    "a[href^='data:text'], [onerror], [onload], [ontoggle], [onfocus], [onmouseover]"
)
"""Elements that would run something."""
INJECTED = f"{ACTIVE}, img[src='x'], math, base[href*='evil'], details[ontoggle]"
"""Elements that only come from a text read as markup."""


def check(page: Any) -> None:
    """Nothing ran, and nothing became an element."""
    assert page.evaluate("window.__fired") == []
    assert page.locator(INJECTED).count() == 0
    assert page.evaluate("document.title.includes('evil')") is False
