"""Draws a curve as an SVG card with one panel per metric, side by side. The card adapts to the reader's light or dark
colour scheme."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from bench.scale.figures import METRICS, Curve, Metric, knee, shown, shown_size

PANEL, GAP, MARGIN = 232, 26, 22  # panel width, gap between panels, and margin at each side
TOP, HEIGHT, BELOW = 78, 150, 46  # heights of the area above the plots, of the plots, and of the area below them
STYLE = """
  .card { fill: #ffffff; stroke: #d9dee3; } .name { fill: #14202b; font-size: 17px; font-weight: 600; }
  .what, .tick, .legend { fill: #56646f; font-size: 11.5px; }
  .title { fill: #14202b; font-size: 13px; font-weight: 600; }
  .grid { stroke: #e7ebee; } .axis { stroke: #9aa6b0; } .value { fill: #33414c; font-size: 11px; }
  .line { fill: none; stroke-width: 2.2; } .one { stroke: #00796b; } .two { stroke: #b65c1c; }
  .dot-one { fill: #00796b; } .dot-two { fill: #b65c1c; } .knee { stroke: #b3402f; stroke-dasharray: 3 3; }
  @media (prefers-color-scheme: dark) {
    .card { fill: #1b2329; stroke: #35414a; } .name, .title { fill: #eef3f6; } .what, .tick, .legend { fill: #a3b1bb; }
    .grid { stroke: #2b363e; } .axis { stroke: #66747e; } .value { fill: #c9d4db; } .one { stroke: #4db6ac; }
    .two { stroke: #f0a266; } .dot-one { fill: #4db6ac; } .dot-two { fill: #f0a266; } .knee { stroke: #ef8674; }
  }
"""


def svg(curve: Curve, about: str) -> str:
    """Returns a curve's SVG. `about` states the date and the machine and is printed at the lower edge."""
    width = 2 * MARGIN + len(METRICS) * PANEL + (len(METRICS) - 1) * GAP
    height = TOP + HEIGHT + BELOW + 22
    font = "Helvetica, Arial, sans-serif"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" font-family="{font}">',
        f"<title>{escape(f'{curve.title}: {curve.request}')}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="card" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="10"/>',
        f'<text class="name" x="{MARGIN}" y="30">{escape(curve.title)}</text>',
        f'<text class="what" x="{MARGIN}" y="48">{escape(curve.request)}</text>',
        f'<text class="what" x="{width - MARGIN}" y="{height - 12}" text-anchor="end">{escape(about)}</text>',
    ]
    for number, metric in enumerate(METRICS):
        parts += _panel(curve, metric, MARGIN + number * (PANEL + GAP))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(curve: Curve, metric: Metric, left: float) -> list[str]:
    sizes = [point.size for point in curve.points]
    series = [(curve.values(field), label) for field, label in metric.fields]
    most = max(max(values) for values, _ in series) * 1.15 or 1.0
    bottom = TOP + HEIGHT
    step = PANEL / max(1, len(sizes) - 1)
    across = [left + number * step for number in range(len(sizes))]
    unit = f" ({metric.unit})"
    parts = [f'<text class="title" x="{left}" y="{TOP - 8}">{escape(metric.title)}{escape(unit)}</text>']
    for share in (0.25, 0.5, 0.75, 1.0):
        y = bottom - HEIGHT * share
        parts.append(f'<path class="grid" d="M{left} {y:.1f} h{PANEL}"/>')
    parts.append(f'<path class="axis" d="M{left} {bottom} h{PANEL}"/>')
    for number, size in enumerate(sizes):
        anchor = "start" if number == 0 else "end" if number == len(sizes) - 1 else "middle"
        label = escape(shown_size(curve, size))
        parts.append(
            f'<text class="tick" x="{across[number]:.1f}" y="{bottom + 16}" text-anchor="{anchor}">{label}</text>'
        )
    at = min((found for values, _ in series if (found := knee(sizes, values)) is not None), default=None)
    if at is not None:
        parts.append(f'<path class="knee" d="M{across[sizes.index(at)]:.1f} {TOP} v{HEIGHT}"/>')
    for kind, (values, label) in zip(("one", "two"), series, strict=False):
        parts += _line(kind, across, [bottom - HEIGHT * value / most for value in values], values, label)
        if label:
            x = left + (0 if kind == "one" else 80)
            parts.append(f'<circle class="dot-{kind}" cx="{x + 4}" cy="{bottom + 32}" r="4"/>')
            parts.append(f'<text class="legend" x="{x + 13}" y="{bottom + 36}">{escape(label)}</text>')
    return parts


def _line(kind: str, across: Sequence[float], up: Sequence[float], values: Sequence[float], label: str) -> list[str]:
    """Draws a line. The first and last values are printed next to their points, and every point shows its value on
    hover."""
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, up, strict=True))
    parts = [f'<polyline class="line {kind}" points="{points}"/>']
    for number, (x, y, value) in enumerate(zip(across, up, values, strict=True)):
        parts.append(
            f'<circle class="dot-{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3.2"><title>{shown(value)}</title></circle>'
        )
        is_last = number == len(values) - 1
        if (number == 0 or is_last) and kind == ("one" if not label else "two"):
            anchor = "end" if is_last else "start"
            parts.append(
                f'<text class="value" x="{x:.1f}" y="{y - 8:.1f}" text-anchor="{anchor}">{shown(value)}</text>'
            )
    return parts
