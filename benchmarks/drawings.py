"""The two pictures of ``benchmarks blame``, as SVG without any script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

COLOURS = {"right": "#1f5fbf", "noise10": "#8a8f98", "noise30": "#c2570c", "implicit": "#6b3fa0"}
WORDS = {"right": "right labels", "noise10": "10 % turned", "noise30": "30 % turned", "implicit": "a model's labels"}
_STYLE = "font-family='Inter, Helvetica, Arial, sans-serif' font-size='12'"


def dots(shares: Mapping[str, Mapping[str, float]], schemes: Sequence[str], chance: float) -> str:
    """A row a scheme, a dot for each kind of labels at its share; the last scheme is on top."""
    left, width, row, top = 110, 560, 20, 64
    height = top + row * len(schemes) + 40
    parts = [
        _text(left, 20, "Share of the blame on the wrong steps of an answer", weight="600"),
        _legend(left, 42, shares),
    ]
    parts += _grid(left, width, top, row * len(schemes))
    x = left + width * chance
    parts.append(_line(x, top, x, top + row * len(schemes), "#444", "4 3"))
    parts.append(_text(x + 4, top + row * len(schemes) - 6, "chance", fill="#444"))
    for n, scheme in enumerate(reversed(schemes)):
        y = top + row * n + row / 2
        parts.append(_text(left - 8, y + 4, scheme, anchor="end"))
        given = [(labels, of[scheme]) for labels, of in shares.items() if scheme in of]
        ends = [left + width * value for _, value in given]
        parts.append(_line(min(ends), y, max(ends), y, "#c9ccd1"))
        parts += [_dot(left + width * value, y, labels) for labels, value in reversed(given)]
    return _svg(left + width + 30, height, parts)


def scatter(points: Sequence[tuple[str, str, float, float]]) -> str:
    """(labels, scheme, share of the blame, final accuracy) as dots; those under right labels have their name."""
    left, size, top = 60, 520, 64
    parts = [
        _text(left, 20, "Final accuracy after training, by the share of the blame on the wrong steps", weight="600"),
        _legend(left, 42, dict.fromkeys(labels for labels, *_ in points)),
        *_grid(left, size, top, size, both=True),
    ]
    placed = [(labels, scheme, left + size * share, top + size * (1 - end)) for labels, scheme, share, end in points]
    taken = [(x - 4, y - 4, x + 4, y + 4) for _, _, x, y in placed]
    for labels, scheme, x, y in placed:
        parts.append(_dot(x, y, labels))
        if labels == "right":
            box = _free_box(x, y, 6.4 * len(scheme), taken)
            taken.append(box)
            parts.append(_text(box[0], box[3] - 2, scheme, fill=COLOURS[labels]))
    parts.append(_text(left + size / 2, top + size + 34, "share of the blame on the wrong steps", anchor="middle"))
    return _svg(left + size + 90, top + size + 44, parts)


Box = tuple[float, float, float, float]
"""Left, top, right and bottom."""


def _free_box(x: float, y: float, width: float, taken: Sequence[Box]) -> Box:
    """Return where a name of a dot overlaps nothing: right of it or left, level with it, above or below."""
    boxes = [
        (start, y + down - 5, start + width, y + down + 6)
        for down in (0, -11, 11, -22, 22, -33, 33)
        for start in (x + 7, x - 7 - width)
    ]

    def overlaps(box: Box) -> bool:
        return any(box[0] < r and left < box[2] and box[1] < low and top < box[3] for left, top, r, low in taken)

    return next((box for box in boxes if not overlaps(box)), boxes[0])


def _grid(left: float, width: float, top: float, height: float, *, both: bool = False) -> list[str]:
    """Lines at every fifth, with their per cent below, and beside where the height is a share, too."""
    parts = []
    for tick in (0, 0.2, 0.4, 0.6, 0.8, 1):
        x, y, words = left + width * tick, top + height * (1 - tick), f"{tick:.0%}".replace("%", " %")
        parts += [_line(x, top, x, top + height, "#e3e5e8"), _text(x, top + height + 16, words, anchor="middle")]
        if both:
            parts += [_line(left, y, left + width, y, "#e3e5e8"), _text(left - 6, y + 4, words, anchor="end")]
    return parts


def _legend(x: float, y: float, labels: Sequence[str] | Mapping[str, object]) -> str:
    parts = []
    for name in labels:
        parts += [_dot(x + 5, y - 4, name), _text(x + 14, y, WORDS[name])]
        x += 32 + 6.2 * len(WORDS[name])
    return "".join(parts)


def _dot(x: float, y: float, labels: str) -> str:
    """Kinds of labels differ in shape as well as in colour."""
    fill = f"fill='{COLOURS[labels]}'"
    if labels == "right":
        return f"<circle cx='{x:.1f}' cy='{y:.1f}' r='4.5' {fill}/>"
    if labels == "noise10":
        return f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3.5' fill='white' stroke='{COLOURS[labels]}' stroke-width='1.8'/>"
    if labels == "noise30":
        return f"<path d='M{x:.1f} {y - 5:.1f}l5 9h-10z' {fill}/>"
    return f"<rect x='{x - 3.5:.1f}' y='{y - 3.5:.1f}' width='7' height='7' {fill}/>"


def _line(x: float, y: float, to_x: float, to_y: float, colour: str, dashes: str = "") -> str:
    dashed = f" stroke-dasharray='{dashes}'" if dashes else ""
    return f"<line x1='{x:.1f}' y1='{y:.1f}' x2='{to_x:.1f}' y2='{to_y:.1f}' stroke='{colour}'{dashed}/>"


def _text(x: float, y: float, words: str, *, anchor: str = "start", fill: str = "#222", weight: str = "400") -> str:
    place = f"x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}'"
    return f"<text {place} fill='{fill}' font-weight='{weight}'>{escape(words)}</text>"


def _svg(width: float, height: float, parts: Sequence[str]) -> str:
    size = f"width='{width:.0f}' height='{height:.0f}' viewBox='0 0 {width:.0f} {height:.0f}'"
    body = "\n".join(parts)
    back = "<rect width='100%' height='100%' fill='white'/>"
    return f"<svg xmlns='http://www.w3.org/2000/svg' {size} {_STYLE}>\n{back}\n{body}\n</svg>\n"
