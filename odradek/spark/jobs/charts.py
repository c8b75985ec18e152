"""Charts as SVG elements for a page of their own: no script, no font, nothing from elsewhere. The page has colours."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

WIDTH, WIDE = 520, 1_090  # of a chart in a column of the page, and of one as wide as the page
_LABELS = 140  # left of horizontal bars
_NUMBERS = 96  # right of them
_ROW = 26
_WIDEST = 90  # column
_HEIGHT = 180  # of columns, without their labels


class Bar(NamedTuple):
    """`told` is what stands beside the bar, or shows when one points at it."""

    label: str
    value: float
    told: str
    is_marked: bool = False


def bars(title: str, rows: Sequence[Bar]) -> str:
    """Horizontal, one below the other, with their numbers."""
    most = max((row.value for row in rows), default=0) or 1
    room = WIDTH - _LABELS - _NUMBERS
    parts = []
    for number, row in enumerate(rows):
        top = number * _ROW
        width = max(2.0, room * row.value / most)
        kind = "bar marked" if row.is_marked else "bar"
        label = row.label if len(row.label) <= 22 else f"{row.label[:21]}…"
        parts.append(
            f"<g><title>{escape(row.label)}: {escape(row.told)}</title>"
            f'<text class="label" x="{_LABELS - 10}" y="{top + 17}" text-anchor="end">{escape(label)}</text>'
            f'<rect class="{kind}" x="{_LABELS}" y="{top + 5}" width="{width:.1f}" height="16" rx="3"/>'
            f'<text class="number" x="{_LABELS + width + 8:.1f}" y="{top + 17}">{escape(row.told)}</text></g>'
        )
    return _svg(title, len(rows) * _ROW + 4, parts)


def columns(title: str, rows: Sequence[Bar], *, labels: int = 8, width: int = WIDTH) -> str:
    """Vertical, side by side; about so many of them are labelled."""
    most = max((row.value for row in rows), default=0) or 1
    step = min(_WIDEST, width / max(1, len(rows)))
    every = max(1, -(-len(rows) // labels))
    parts = [f'<path class="grid" d="M0 {_HEIGHT * share:.1f} H{width}"/>' for share in (0.25, 0.5, 0.75)]
    for number, row in enumerate(rows):
        height = (_HEIGHT - 6) * row.value / most
        height = max(1.5, height) if row.value else 0
        left = number * step
        parts.append(
            f'<g><title>{escape(row.label)}: {escape(row.told)}</title><rect class="over" x="{left:.1f}" y="0"'
            f' width="{step:.1f}" height="{_HEIGHT}"/><rect class="bar" x="{left + step * 0.08:.1f}"'
            f' y="{_HEIGHT - height:.1f}" width="{step * 0.84:.1f}" height="{height:.1f}" rx="2"/>'
        )
        if number % every == 0:
            is_inside = number > 0 or step > 40
            at, anchor = (left + step / 2, "middle") if is_inside else (0.0, "start")
            parts.append(
                f'<text class="label" x="{at:.1f}" y="{_HEIGHT + 18}" text-anchor="{anchor}">{escape(row.label)}</text>'
            )
        parts.append("</g>")
    parts.append(f'<path class="axis" d="M0 {_HEIGHT} H{width}"/>')
    return _svg(title, _HEIGHT + 26, parts, width)


def shares(title: str, rows: Sequence[Bar]) -> str:
    """One bar, parted; with a legend below."""
    total = sum(row.value for row in rows) or 1
    left, parts = 0.0, []
    for number, row in enumerate(rows):
        width = WIDTH * row.value / total
        parts.append(
            f"<g><title>{escape(row.label)}: {escape(row.told)}</title>"
            f'<rect class="part part-{number % 5}" x="{left:.1f}" y="4" width="{max(0.0, width - 2):.1f}" height="26"'
            f' rx="4"/><rect class="part part-{number % 5}" x="{number * 170 % 510}"'
            f' y="{46 + number * 170 // 510 * 22}" width="11" height="11" rx="2"/><text class="label"'
            f' x="{number * 170 % 510 + 18}" y="{56 + number * 170 // 510 * 22}">{escape(row.label)}'
            f" {escape(row.told)}</text></g>"
        )
        left += width
    return _svg(title, 66 + (len(rows) - 1) * 170 // 510 * 22, parts)


def _svg(title: str, height: int, parts: Sequence[str], width: int = WIDTH) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}"><title>{escape(title)}</title>'
        f"{''.join(parts)}</svg>"
    )
