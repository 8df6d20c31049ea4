"""The content of Help: a pinned token's formula with its live numbers, every scheme, every metric, keys, API, trust.

Plain values for ``help.js``. Numbers come from ``Credit.explain``, which adds up to the very bits on screen.
"""

from dataclasses import fields

from pydantic import validate_call

from workbench.checks.metrics import METRICS, SYMBOLS, Metric
from workbench.credit import NORMALISATIONS, SCHEMES
from workbench.schema import Credit
from workbench.ui.handlers import scoring, session
from workbench.ui.handlers.fields import OPTION_LABELS, in_words
from workbench.ui.payloads import GuidePayload, LivePayload
from workbench.views.heatmap import no_spread_payload, why_payload

SHORTCUTS = (
    ("Ctrl+Enter, ⌘+Enter", "Sample & score, from any field of Inspect"),
    ("Tab", "from control to control; the page's first link skips the controls"),
    ("↑ ↓", "in map and cards: to the step above or below"),
    ("← →", "to the rollout before or after; what is explained goes along while its panel is open"),
    ("Home End", "to the first or the last rollout"),
    ("Enter, Space", "pin the step: why this colour"),
    (", .", "to the token before or after the pinned one"),
    ("y n u", "label the pinned step right, wrong or neutral by hand"),
    ("/", "search the answers and what they were answered"),
    ("Tab, then Enter or Space", "show all of a long observation, or fold it"),
    ("Esc", "close the panel, or the code editor"),
    ("← → Home End, on a curve", "read the values of a step; on Train, Enter shows its rollouts"),
    ("+ − 0, on a curve", "zoom in and out about that step, and show all"),
)
TRUST = (
    scoring.TRUST_MODEL,
    "Reward code and patterns run in a process of their own, with limits on time and memory and without your "
    "environment's secrets; isolated, without network, other programs or your files, too. What this system cannot "
    "enforce is said under Rewards.",
    "A configuration from a file opens with its code isolated, and with judges switched off. "
    "Only safetensors weights are loaded, and a model's own code only if you say so.",
    "The page answers on this machine only, to whoever has the link's token, and loads nothing from elsewhere.",
)
SNIPPET = """from pathlib import Path
from gradio_client import Client

token = Path({token!r}).read_text().strip()  # also in the link that the terminal printed
client = Client("{url}", headers={{"Authorization": f"Bearer {{token}}"}})
prompt = "Start with 7, add 5, multiply by 2, subtract 4, add 9.\\n"
columns = {{"start": 7, "operations": [["+", 5], ["*", 2], ["-", 4], ["+", 9]], "answer": "29"}}
group = client.predict(prompt=prompt, columns=columns, num_generations=4, api_name="/sample")
scored = client.predict(group, rewards=["step_correctness"], api_name="/score")
print(scored["rollouts"][0]["advantages"])
client.view_api()  # the five functions, with their arguments"""


def guide(token_file: str, url: str) -> GuidePayload:
    """Return what Help shows whatever is on screen."""
    return {
        "schemes": [
            {
                "name": scheme.name,
                "formula": scheme.formula,
                "source": scheme.reference,
                "summary": scheme.summary,
                "options": [
                    {
                        "label": OPTION_LABELS.get(option.name, option.name),
                        "name": option.name,
                        "default": in_words(option.default).replace("_", " "),
                        "help": option.help,
                    }
                    for option in scheme.options
                ],
            }
            for scheme in SCHEMES.values()
        ],
        "normalisations": [{"name": name.replace("_", " "), "meaning": text} for name, text in NORMALISATIONS.items()],
        "metrics": [{field.name: getattr(metric, field.name) for field in fields(Metric)} for metric in METRICS],
        "symbols": [list(row) for row in SYMBOLS],
        "shortcuts": [list(row) for row in SHORTCUTS],
        "snippet": SNIPPET.format(token=token_file, url=url),
        "trust": list(TRUST),
    }


@validate_call(config=session.CHECKED)
def live(services: session.Services, tab: str, rollout: int | None, token: int | None) -> LivePayload | None:
    """``live_numbers`` of what the tab has drawn."""
    return live_numbers(services.credit(tab), rollout, token)


def live_numbers(credit: Credit | None, rollout: int | None = None, token: int | None = None) -> LivePayload | None:
    """One token's advantage, term by term; by default that of the first token. None where nothing is scored."""
    if credit is None or not len(credit.scored.group):
        return None
    i, t = rollout or 0, token or 0
    why = scoring.explain_token(credit, i, t)
    fits = None not in (rollout, token, why)
    if why is None:
        i, t = 0, 0
        why = why_payload(credit, 0, 0)
    step = next((k for k, (first, last) in enumerate(credit.scored.scored[i].spans) if first <= t <= last), None)
    return {
        "scheme": credit.scheme,
        "options": {
            OPTION_LABELS.get(name, name): in_words(value).replace("_", " ")
            for name, value in credit.options.items()
            if value is not None
        },
        "pinned": fits,
        "rollout": i + 1,
        "token": t,
        "text": credit.scored.group.rollouts[i].texts[t],
        "step": None if step is None else step + 1,
        "noSpread": no_spread_payload(credit),
        "why": why,
        "advantage": float(str(credit.of(i)[t])),
    }
