"""Line and bar plots as SVG, legible in light and dark pages, without a library.

Path("latency.svg").write_text(lines("Latency", "size", "µs", series, log_x=True, log_y=True))
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 76, 190, 46, 56
# Okabe and Ito's, which people who see few colours can tell apart.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5f5f5f", "#b8a800")
FONT = 'font-family="system-ui, sans-serif"'

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Axis:
    low: float
    high: float
    log: bool
    start: float
    end: float

    def at(self, value: float) -> float:
        low, high, x = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (self.end - self.start) * (x - low) / (high - low)

    def ticks(self) -> list[float]:
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            return [10.0**e for e in range(first, last + 1) if self.low <= 10.0**e <= self.high]
        step = 10 ** math.floor(math.log10(self.high - self.low))
        if (self.high - self.low) / step < 4:
            step /= 2
        count = math.floor(self.high / step + 1e-9)
        return [i * step for i in range(math.ceil(self.low / step - 1e-9), count + 1)]


def number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:g}"


def frame(title: str, body: Sequence[str]) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" {FONT} font-size="13">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
            f'<text x="{LEFT}" y="26" font-size="16" font-weight="600" fill="#222222">{escape(title)}</text>',
            *body,
            "</svg>",
            "",
        ]
    )


def text(x: float, y: float, what: str, anchor: str = "middle", colour: str = "#444444") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(what)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, colour: str = "#dddddd") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def y_axis(axis: Axis, name: str) -> list[str]:
    right = WIDTH - RIGHT
    parts = [text(LEFT - 60, TOP - 6, name, "start")]
    for tick in axis.ticks():
        y = axis.at(tick)
        parts += [line(LEFT, y, right, y), text(LEFT - 8, y + 4, number(tick), "end")]
    return parts


def apart(wanted: Sequence[float], least: float) -> list[float]:
    """The same heights, moved down where two are too close to be read."""
    placed = list(wanted)
    order = sorted(range(len(placed)), key=lambda i: placed[i])
    for before, after in itertools.pairwise(order):
        placed[after] = max(placed[after], placed[before] + least)
    return placed


def lines(
    title: str,
    x_name: str,
    y_name: str,
    series: Mapping[str, Points],
    *,
    log_x: bool = False,
    log_y: bool = False,
    x_text: Callable[[float], str] = number,
) -> str:
    """A line for each series, named at its end."""
    kept = {name: sorted(points) for name, points in series.items() if points}
    if not kept:
        return frame(title, [text(WIDTH / 2, HEIGHT / 2, "nothing was measured")])
    xs = sorted({x for points in kept.values() for x, _ in points})
    ys = [y for points in kept.values() for _, y in points]
    low = 10 ** math.floor(math.log10(min(ys))) if log_y else 0.0
    high = 10 ** math.ceil(math.log10(max(ys) * 1.001)) if log_y else max(ys) * 1.1
    right, floor = WIDTH - RIGHT, HEIGHT - BOTTOM
    x_axis = Axis(xs[0], xs[-1] if xs[-1] > xs[0] else xs[0] + 1, log_x, LEFT + 10, right - 10)
    axis = Axis(low, high, log_y, floor, TOP + 10)
    parts = y_axis(axis, y_name)
    for x in xs:
        parts += [line(x_axis.at(x), floor, x_axis.at(x), floor + 5, "#444444")]
        parts += [text(x_axis.at(x), floor + 20, x_text(x))]
    parts += [line(LEFT, floor, right, floor, "#444444"), text((LEFT + right) / 2, HEIGHT - 12, x_name)]
    labels = apart([axis.at(points[-1][1]) + 4 for points in kept.values()], 16)
    for i, (name, points) in enumerate(kept.items()):
        colour = COLOURS[i % len(COLOURS)]
        places = [(x_axis.at(x), axis.at(y)) for x, y in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        parts.append(text(right + 8, labels[i], name, "start", colour))
    return frame(title, parts)


def bars(title: str, y_name: str, stacks: Mapping[str, Mapping[str, float]]) -> str:
    """A bar for each name, of parts on top of each other."""
    kept = {name: parts for name, parts in stacks.items() if parts}
    if not kept:
        return frame(title, [text(WIDTH / 2, HEIGHT / 2, "nothing was measured")])
    right, floor = WIDTH - RIGHT, HEIGHT - BOTTOM
    axis = Axis(0, max(sum(parts.values()) for parts in kept.values()) * 1.1 or 1, False, floor, TOP + 10)
    drawn = y_axis(axis, y_name)
    drawn.append(line(LEFT, floor, right, floor, "#444444"))
    names = list(dict.fromkeys(part for parts in kept.values() for part in parts))
    room = (right - LEFT) / len(kept)
    for i, (name, parts) in enumerate(kept.items()):
        x, below = LEFT + room * (i + 0.2), 0.0
        for part, value in parts.items():
            y, height = axis.at(below + value), axis.at(below) - axis.at(below + value)
            colour = COLOURS[names.index(part) % len(COLOURS)]
            drawn.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{room * 0.6:.1f}" height="{height:.1f}" fill="{colour}"/>'
            )
            below += value
        drawn.append(text(x + room * 0.3, axis.at(below) - 6, f"{below:.2f}"))
        drawn.append(text(x + room * 0.3, floor + 18 + 15 * (i % 2), name))
    for i, part in enumerate(names):
        y = TOP + 24 + 20 * i
        drawn.append(f'<rect x="{right + 12}" y="{y - 11}" width="12" height="12" fill="{COLOURS[i % len(COLOURS)]}"/>')
        drawn.append(text(right + 30, y, part, "start"))
    return frame(title, drawn)
