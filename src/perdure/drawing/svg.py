"""Pictures as SVG: shapes, marks and text. No script, no style attribute, no id: a page with a strict CSP can embed it.

Classes carry the look. `style="embedded"` adds one `<style>` with the colours of the web UI, light and dark; `"none"`
leaves the look to the page. Without any style the presentation attributes still give a readable picture.
"""

from typing import Final, Literal

from perdure.drawing.measure import LABEL_MAX, LINE, STATE_MAX, TEXT_MAX, clean, shorten, text_width
from perdure.drawing.model import SMALL, Frame, Line, Node, Picture, Placed, Point, State

Style = Literal["embedded", "none"]

_CLASS: Final[dict[State, str]] = {
    "not reached": "none", "running": "running", "open": "open", "done": "done", "failed": "failed", "stuck": "stuck",
    "dropped": "dropped", "undone": "undone",
}  # fmt: skip

# Shapes of 16 by 16: the outlines of the marks differ without colour. p: drawn with a pen, h: a hole in a filled shape.
_MARKS: Final[dict[State, tuple[tuple[str, str], ...]]] = {
    "not reached": (("pen dots", "M8 2A6 6 0 1 1 8 14A6 6 0 1 1 8 2"),),
    "running": (("", "M4 2V14L14 8Z"),),
    "open": (("pen", "M8 2A6 6 0 1 1 8 14A6 6 0 1 1 8 2M8 5V8L10 10"),),
    "done": (("", "M8 1A7 7 0 1 1 8 15A7 7 0 1 1 8 1"), ("hole", "M5 8L7 10L11 6")),
    "failed": (("", "M2 2H14V14H2Z"), ("hole", "M5 5L11 11M11 5L5 11")),
    "stuck": (("", "M8 0L16 8L8 16L0 8Z"), ("hole", "M8 4V9M8 11V12")),
    "dropped": (("pen", "M3 8H13"),),
    "undone": (("pen", "M6 3L3 6L6 9M3 6H10A4 4 0 0 1 10 14H6"),),
}
_ICONS: Final = {
    "task": "M8 3A2 2 0 1 1 8 7A2 2 0 1 1 8 3M3 14C3 11 5 9 8 9S13 11 13 14Z",
    "call": "M3 5H8V11H3ZM8 8H14M12 6L14 8L12 10",
    "set": "M4 6H12M4 10H12",
    "subprocess": "M3 3V10H8M8 7H14V13H8Z",
    "continue": "M2 8H12M8 4L12 8L8 12",
    "step": "M3 4H13V12H3Z",
    "agent": "M8 2L10 6L14 8L10 10L8 14L6 10L2 8L6 6Z",
    "cell": "M8 2L13 5V11L8 14L3 11V5Z",
    "event": "M9 2L4 9H8L7 14L12 7H8Z",
    "repeat": "M4 5H11A3 3 0 0 1 11 11H4M6 9L4 11L6 13",
}
_LIGHT: Final = (
    "--sheet:#fcfaf6;--raised:#fff;--paper:#f6f3ec;--rule-strong:#c4bcab;--control:#8b8474;--ink:#1b1b1d;--ink-2:#47464a;"
    "--ink-3:#656259;--accent:#23437c;--running:#1d52a8;--running-wash:#e4ebf7;--waiting:#74541a;--waiting-wash:#f3ead6;"
    "--stuck:#ad360a;--stuck-wash:#fbe8de;--completed:#27683c;--completed-wash:#e3f0e4;--failed:#a1133f;"
    "--failed-wash:#f9e4e9;--cancelled:#625f58"
)
_DARK: Final = (
    "--sheet:#16181a;--raised:#1c1f22;--paper:#101113;--rule-strong:#454a51;--control:#737a83;--ink:#e9e7e2;--ink-2:#bab8b2;"
    "--ink-3:#979590;--accent:#a3bdf0;--running:#8fb4f7;--running-wash:#1a2740;--waiting:#d4b06a;--waiting-wash:#2c2516;"
    "--stuck:#ff9a70;--stuck-wash:#3a2118;--completed:#7fc795;--completed-wash:#182a1e;--failed:#f791aa;"
    "--failed-wash:#381a23;--cancelled:#a6a49e"
)
_FONTS: Final = (
    '--sans:ui-sans-serif,"Inter",system-ui,-apple-system,"Segoe UI","Noto Sans","Liberation Sans",sans-serif;'
    '--mono:ui-monospace,"SF Mono","Cascadia Mono","DejaVu Sans Mono","Liberation Mono",Consolas,monospace'
)
_RULES: Final = """
.drawing text{font:12px var(--sans)}
.g-sheet{fill:var(--sheet)}
.g-lane{fill:var(--paper);stroke:var(--rule-strong);stroke-dasharray:4 3}
.g-lane-name{fill:var(--ink-3)}
.g-edge{fill:none;stroke:var(--control);stroke-width:1.25}
.g-edge.off{stroke-dasharray:4 4}
.g-edge.went{stroke:var(--accent);stroke-width:1.75}
.g-tip{fill:var(--control)}
.g-tip.went{fill:var(--accent)}
.g-word{fill:var(--ink-2);paint-order:stroke;stroke:var(--back,var(--sheet));stroke-width:4px;stroke-linejoin:round}
.g-node,.g-frame{--line:var(--control);--fill:var(--raised);--word:var(--ink-3)}
.g-node .box{fill:var(--fill);stroke:var(--line);stroke-width:1.25}
.g-node .thin{fill:none;stroke:var(--line);stroke-width:1.25}
.g-node .solid{fill:var(--line)}
.g-node .name{font:600 13px var(--mono);fill:var(--ink)}
.g-node .sub{fill:var(--ink-3)}
.g-node .kind,.g-frame .kind{fill:none;stroke:var(--ink-3);stroke-width:1.4;stroke-linecap:round;stroke-linejoin:round}
.drawing .state{font-weight:500;fill:var(--word);paint-order:stroke;stroke:var(--back,var(--sheet));stroke-width:4px}
.drawing .mark{fill:var(--word);stroke-width:1.5;stroke-linecap:round;stroke-linejoin:round}
.mark .pen{fill:none;stroke:var(--word)}
.mark .dots{stroke-dasharray:2 3}
.mark .hole{fill:none;stroke:var(--raised);stroke-width:1.75}
.mark .halo{fill:var(--back,var(--sheet))}
.framed,.g-frame{--back:var(--paper)}
.g-node .chip{fill:var(--sheet);stroke:var(--line)}
.g-node .badge{font:11px var(--mono);fill:var(--ink-2)}
.g-node .token{fill:var(--accent);stroke:var(--sheet);stroke-width:1.5}
.g-node .count{font:600 11px var(--mono);fill:var(--sheet)}
.g-node .gate{fill:var(--line)}
.g-node .gate.open{fill:var(--completed)}
.g-node .gate.closed{fill:var(--stuck)}
.g-node.done,.g-frame.done{--line:var(--completed);--word:var(--completed)}
.g-node.open,.g-frame.open{--line:var(--waiting);--fill:var(--waiting-wash);--word:var(--waiting)}
.g-node.running,.g-frame.running{--line:var(--running);--fill:var(--running-wash);--word:var(--running)}
.g-node.stuck,.g-frame.stuck{--line:var(--stuck);--fill:var(--stuck-wash);--word:var(--stuck)}
.g-node.failed,.g-frame.failed{--line:var(--failed);--fill:var(--failed-wash);--word:var(--failed)}
.g-node.none{--fill:var(--sheet)}
.g-node.none .box,.g-node.none .rim{stroke-dasharray:4 3}
.g-node.none .name{fill:var(--ink-2);font-weight:500}
.g-node.dropped,.g-node.undone{--line:var(--cancelled);--fill:var(--sheet);--word:var(--cancelled)}
.g-node.dropped .box,.g-node.dropped .rim{stroke-dasharray:1 3}
.g-node.dropped .name,.g-node.undone .name{fill:var(--ink-3)}
.g-node.dropped .name{text-decoration:line-through}
"""
_STYLE: Final = f".drawing{{{_LIGHT};{_FONTS}}}\n@media (prefers-color-scheme:dark){{.drawing{{{_DARK}}}}}{_RULES}"
RULES: Final = _RULES  # for the style sheet of a page that has the tokens of the web UI


def svg(picture: Picture, *, title: str = "", style: Style = "embedded") -> str:
    """The picture as one `<svg>` element."""
    size = f'width="{picture.width}" height="{picture.height}" viewBox="0 0 {picture.width} {picture.height}"'
    look = 'class="drawing" role="img" font-family="sans-serif" font-size="12"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {look} {size}><title>{_text(title or "drawing")}</title>']
    if style == "embedded":
        parts.append(f"<style>{_STYLE}</style>")
    parts.append(f'<rect class="g-sheet" width="{picture.width}" height="{picture.height}" rx="4" fill="none"/>')
    parts += [_frame(frame) for frame in picture.frames]
    lines = sorted(picture.lines, key=lambda line: line.went)  # the way that was taken lies on top
    parts += [_line(picture, line) for line in lines]
    parts += [_Shape(placed, picture.direction == "LR").svg() for placed in picture.nodes]
    parts += [_word(line, framed=bool(picture.nodes[line.source].frames)) for line in lines if line.label]
    return "\n".join([*parts, "</svg>\n"])


def _text(text: str) -> str:
    return clean(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _attribute(text: str) -> str:
    return _text(text).replace('"', "&quot;").replace("'", "&#39;")


def _words(style: str, text: str, at: Point, width: int, *, anchor: str = "", mono: bool = False) -> str:
    x, y = at
    place = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text class="{style}" x="{x}" y="{y}"{place}>{_text(shorten(text, width, mono))}</text>' if text else ""


def _icon(name: str, x: int, y: int) -> str:
    return f'<path class="kind" transform="translate({x} {y})" fill="none" stroke="currentColor" d="{_ICONS[name]}"/>'


def _mark(state: State, x: int, y: int, halo: bool = False) -> str:
    """The mark of a state, 16 by 16."""
    paths = ['<circle class="halo" cx="8" cy="8" r="10" fill="#fff"/>'] if halo else []
    for look, path in _MARKS[state]:
        drawn = (
            ""
            if not look
            else f' class="{look}"'
            + (' fill="none" stroke="currentColor"' if "pen" in look else ' fill="none" stroke="#fff"')
        )
        paths.append(f'<path{drawn} d="{path}"/>')
    return f'<g class="mark" transform="translate({x} {y})">{"".join(paths)}</g>'


def _full(title: str, location: str, *more: str) -> str:
    """What a pointer sees: the full text, one thought a line."""
    lines = [title, *more, location if location != title else ""]
    return "<title>" + "\n".join(_text(line) for line in lines if line) + "</title>"


def _open(kind: str, name: str, location: str, state: State | None) -> str:
    style = f"{kind} {_CLASS[state]}" if state else kind
    seen = f' data-state="{state}"' if state else ""
    return f'<g class="{style}" data-kind="{name}" data-location="{_attribute(location)}"{seen}>'


def _frame(frame: Frame) -> str:
    repeat = frame.repeat
    status = ", ".join(word for word in (repeat.state or "", repeat.note) if word)
    said = min(text_width(status), 110) + 28 if status else 0
    room = frame.x + frame.width - frame.title_x - 36 - said
    parts = [
        _open("g-frame", "repeat", repeat.location, repeat.state),
        _full(repeat.title, repeat.location, status),
        f'<rect class="g-lane" x="{frame.x}" y="{frame.y}" width="{frame.width}" height="{frame.height}" rx="6" '
        f'fill="none" stroke="#888" stroke-dasharray="4 3"/>',
        _icon("repeat", frame.title_x, frame.y + 5),
        _words("g-lane-name", repeat.title, (frame.title_x + 22, frame.y + 17), room),
    ]
    if status:
        parts.append(_words("state", status, (frame.x + frame.width - 30, frame.y + 17), 110, anchor="end"))
    if repeat.state:
        parts.append(_mark(repeat.state, frame.x + frame.width - 24, frame.y + 5))
    return "".join([*parts, "</g>"])


def _line(picture: Picture, line: Line) -> str:
    look = (" went" if line.went else "") + (" off" if line.dashed else "")
    tip = " went" if line.went else ""
    ends = (picture.nodes[line.source].node, picture.nodes[line.target].node)
    name = f"{ends[0].title} → {ends[1].title}" + (f": {line.label}" if line.label else "")
    dashes = ' stroke-dasharray="4 4"' if line.dashed else ""
    return (
        f'<g data-from="{line.source}" data-to="{line.target}"><title>{_text(name)}</title>'
        f'<path class="g-edge{look}" fill="none" stroke="#888"{dashes} d="{_path(line.points)}"/>'
        f'<path class="g-tip{tip}" fill="#888" d="{_tip(*line.points[-2:])}"/></g>'
    )


def _word(line: Line, framed: bool) -> str:
    return _words("g-word framed" if framed else "g-word", line.label, line.label_at, LABEL_MAX)


def _sign(value: int) -> int:
    return (value > 0) - (value < 0)


def _path(points: tuple[Point, ...]) -> str:
    """The line with round corners."""
    drawn = [f"M{points[0][0]} {points[0][1]}"]
    for (ax, ay), (bx, by), (cx, cy) in zip(points, points[1:], points[2:], strict=False):
        radius = min(8, (abs(bx - ax) + abs(by - ay)) // 2, (abs(cx - bx) + abs(cy - by)) // 2)
        drawn.append(f"L{bx - radius * _sign(bx - ax)} {by - radius * _sign(by - ay)}")
        drawn.append(f"Q{bx} {by} {bx + radius * _sign(cx - bx)} {by + radius * _sign(cy - by)}")
    (px, py), (x, y) = points[-2:]
    return "".join([*drawn, f"L{x - 4 * _sign(x - px)} {y - 4 * _sign(y - py)}"])


def _tip(before: Point, end: Point) -> str:
    (x, y), dx, dy = end, _sign(end[0] - before[0]), _sign(end[1] - before[1])
    return f"M{x} {y}L{x - 8 * dx - 4 * dy} {y - 8 * dy - 4 * dx}L{x - 8 * dx + 4 * dy} {y - 8 * dy + 4 * dx}Z"


class _Shape:
    """One node: its outline by kind, then texts, mark, badge, tokens and gate."""

    def __init__(self, placed: Placed, across: bool) -> None:
        self.node: Node = placed.node
        self.across = across
        self.framed = bool(placed.frames)
        self.x, self.y, self.width, self.height = placed.x, placed.y, placed.width, placed.height
        self.right, self.bottom = self.x + self.width, self.y + self.height
        self.cx, self.cy = self.x + self.width // 2, self.y + self.height // 2

    def svg(self) -> str:
        node = self.node
        parts = [
            _open("g-node framed" if self.framed else "g-node", node.kind, node.location, node.state),
            _full(
                node.title,
                node.location,
                node.subtitle,
                node.status,
                node.badge,
                node.tokens_text,
                self._gate_text(),
            ),
            self._outline(),
            *(self._beside() if node.kind in SMALL else self._inside()),
            self._gate(),
            self._badge(),
            self._tokens(),
            "</g>",
        ]
        return "".join(parts)

    def _rect(self, radius: int, inset: int = 0, style: str = "box") -> str:
        return (
            f'<rect class="{style}" x="{self.x + inset}" y="{self.y + inset}" width="{self.width - 2 * inset}" '
            f'height="{self.height - 2 * inset}" rx="{radius}" fill="none" stroke="#888"/>'
        )

    def _drawn(self, path: str, style: str = "box") -> str:
        return f'<path class="{style}" fill="none" stroke="#888" d="{path}"/>'

    def _circle(self, radius: int, style: str = "box") -> str:
        return f'<circle class="{style}" cx="{self.cx}" cy="{self.cy}" r="{radius}" fill="none" stroke="#888"/>'

    def _outline(self) -> str:
        x, y, right, bottom, cx, cy = self.x, self.y, self.right, self.bottom, self.cx, self.cy
        match self.node.kind:
            case "start":
                return self._circle(14) + self._drawn(f"M{cx - 3} {cy - 5}V{cy + 5}L{cx + 6} {cy}Z", "solid")
            case "end":
                return self._circle(14) + self._circle(9, "thin")
            case "fail":
                return self._circle(14) + self._drawn(
                    f"M{cx - 5} {cy - 5}L{cx + 5} {cy + 5}M{cx + 5} {cy - 5}L{cx - 5} {cy + 5}", "thin"
                )
            case "decision":
                return self._drawn(f"M{cx} {y}L{right} {cy}L{cx} {bottom}L{x} {cy}Z")
            case "parallel" | "join":
                plus, arrow = f"M{cx} {cy - 7}v14M{cx - 7} {cy}h14", f"M{cx - 4} {cy - 6}l8 6l-8 6"
                rim = self._drawn(f"M{x + 10} {y}H{right - 10}L{right} {cy}L{right - 10} {bottom}H{x + 10}L{x} {cy}Z")
                return rim + self._drawn(plus if self.node.kind == "parallel" else arrow, "thin")
            case "timer":
                ticks = f"M{cx} {y + 3}v3M{cx} {bottom - 6}v3M{x + 3} {cy}h3M{right - 6} {cy}h3"
                return self._circle(18) + self._drawn(f"M{cx} {cy - 9}V{cy}L{cx + 6} {cy + 5}{ticks}", "thin")
            case "receive":
                return self._rect(3) + self._drawn(f"M{x + 2} {y + 3}L{cx} {cy + 3}L{right - 2} {y + 3}", "thin")
            case "task":
                return self._rect(14)
            case "subprocess":
                return self._rect(4) + self._rect(2, 4, "thin rim")
            case "continue" | "event":
                return self._rect(self.height // 2)
            case "agent":
                upper = f"M{x} {y + 10}l10 -10H{right - 10}l10 10V{bottom - 10}"
                return self._drawn(f"{upper}l-10 10H{x + 10}l-10 -10Z")
            case "call" | "set" | "step" | "cell":
                return self._rect(3)

    def _inside(self) -> list[str]:
        """Texts of a box: icon and title, subtitle; the state below it."""
        node, pad = self.node, 14 if self.node.kind in ("continue", "event") else 12
        base = self.y + (24 if node.subtitle else 25)
        parts = [
            _icon(node.kind, self.x + pad - 2, base - 13),
            _words("name", node.title, (self.x + pad + 20, base), self.width - pad - 20 - 28, mono=True),
            _words("sub", node.subtitle, (self.x + pad, self.y + 44), self.width - pad - 10),
        ]
        at = self.x + 4 if self.across else self.cx + 8
        room = max(self.width, STATE_MAX) if self.across else STATE_MAX
        parts.append(_words("state", node.status, (at, self.bottom + 15), room))
        if node.state:
            parts.append(_mark(node.state, self.right - 25, base - 13))
        return parts

    def _beside(self) -> list[str]:
        """Texts of a small shape: below it, or to the right of it where lines go down."""
        node = self.node
        texts = [
            ("name", node.title, True),
            ("sub", node.subtitle, False),
            ("state", node.status if node.kind != "start" else "", False),
        ]
        shown = [entry for entry in texts if entry[1]]
        reserved = LINE * (3 if node.subtitle else 2)
        x, y, anchor = self.right + 10, self.cy - reserved // 2 + 12, ""
        if self.across:
            x, y, anchor = self.cx, self.bottom + 17, "middle"
        parts = [
            _words(style, text, (x, y + LINE * number), TEXT_MAX, anchor=anchor, mono=mono)
            for number, (style, text, mono) in enumerate(shown)
        ]
        if node.state and node.kind != "start":
            parts.append(_mark(node.state, self.right - 10 if self.across else self.x - 8, self.y - 8, halo=True))
        return parts

    def _badge(self) -> str:
        if not self.node.badge:
            return ""
        room = max(self.width - 60, 60)
        text = clean(self.node.badge)
        text = text if 7 * len(text) <= room else text[: room // 7 - 1] + "…"
        width = 7 * len(text) + 14
        x = self.right - 8 - width if self.across else max(self.right - 8 - width, self.cx + 8)
        place = f'x="{x}" y="{self.y - 9}" width="{width}" height="18" rx="9"'
        chip = f'<rect class="chip" {place} fill="#fff" stroke="#888"/>'
        return chip + _words("badge", text, (x + width // 2, self.y + 4), 2 * self.width, anchor="middle")

    def _gate_text(self) -> str:
        return f"gate {self.node.gate}" if self.node.gate else ""

    def _tokens(self) -> str:
        """Up to three dots on the upper border; more are a number."""
        if self.node.tokens <= 0:
            return ""
        if self.node.tokens <= 3:
            dots = (self.x + 16 + 13 * number for number in range(self.node.tokens))
            return "".join(f'<circle class="token" cx="{x}" cy="{self.y}" r="6"/>' for x in dots)
        count = str(self.node.tokens)
        width, bare = text_width(count) + 14, 'fill="none" stroke="#888"'  # the number can be read without a style
        pill = f'<rect class="token" x="{self.x + 8}" y="{self.y - 9}" width="{width}" height="18" rx="9" {bare}/>'
        return pill + _words("count", count, (self.x + 8 + width // 2, self.y + 4), width, anchor="middle")

    def _gate(self) -> str:
        if not self.node.gate:
            return ""
        x, y, width, height = (self.x - 3, self.cy - 14, 6, 28) if self.across else (self.cx - 14, self.y - 3, 28, 6)
        return f'<rect class="gate {self.node.gate}" x="{x}" y="{y}" width="{width}" height="{height}" rx="2"/>'
