"""Draws charts with pygal, as SVG elements for a page. The page's style sheet sets their colours and fonts, including
those for dark mode."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element

import pygal
from pygal.style import Style

# Importing pygal installs a meta path finder for its maps, which this module does not use. The finder lacks
# `find_spec`, so code that calls this method on every finder would fail.
sys.meta_path[:] = [each for each in sys.meta_path if not isinstance(each, pygal.PluginImportFixer)]

WIDTH, WIDE = 520, 1_090  # chart widths: one column of the page, and the full width of the page
_FONT = 12
_WIDEST = 90  # maximum width of a column
_STYLE = Style(label_font_size=_FONT, major_label_font_size=_FONT, legend_font_size=_FONT, value_font_size=_FONT)


class Bar(NamedTuple):
    """One value of a chart. `text` is shown beside the bar or under the pointer."""

    label: str
    value: float
    text: str
    is_marked: bool = False


def bars(title: str, rows: Sequence[Bar]) -> str:
    """Draws horizontal bars with their values, one below another."""
    chart = _chart(
        pygal.HorizontalBar,
        title,
        26 * len(rows) + 4,
        margin=0,
        margin_right=96,
        print_values=True,
        print_values_position="top",
        show_x_labels=False,
        show_x_guides=False,
    )
    chart.x_labels = [row.label if len(row.label) <= 22 else f"{row.label[:21]}…" for row in reversed(rows)]
    chart.add("", [_value(row) for row in reversed(rows)])
    return str(chart.render(is_unicode=True))


def columns(title: str, rows: Sequence[Bar], *, labels: int = 8, width: int = WIDTH) -> str:
    """Draws vertical bars side by side. About `labels` of them are labelled."""
    chart = _chart(
        pygal.Bar,
        title,
        210,
        width=width,
        margin=4,
        margin_right=max(4, width - 60 - _WIDEST * len(rows)),
        truncate_label=-1,
        show_minor_x_labels=False,
        x_labels_major_every=max(1, -(-len(rows) // labels)),
        value_formatter=lambda value: f"{value:,.0f}",
    )
    chart.x_labels = [row.label for row in rows]
    chart.add("", [_value(row) for row in rows])
    return str(chart.render(is_unicode=True))


def shares(title: str, rows: Sequence[Bar]) -> str:
    """Draws one bar divided into shares, with a legend below it."""
    chart = _chart(
        pygal.HorizontalStackedBar,
        title,
        110,
        margin=0,
        show_legend=True,
        legend_at_bottom=True,
        show_x_labels=False,
        show_y_labels=False,
        show_x_guides=False,
        truncate_legend=-1,
    )
    for row in rows:
        chart.add(f"{row.label} {row.text}", [_value(row)])
    return str(chart.render(is_unicode=True))


def _chart(kind: type[pygal.Graph], title: str, height: int, **settings: object) -> pygal.Graph:
    chart = kind(
        **{"width": WIDTH, "height": height, "show_legend": False, "explicit_size": False, "style": _STYLE}
        | {"disable_xml_declaration": True}
        | settings
    )

    def plain(root: Element) -> Element:
        """Removes scripts, styles, comments and addresses from the drawing. Text that scripts would have displayed
        becomes titles."""
        root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-label": title}
        for parent in list(root.iter()):
            for child in list(parent):
                if child.tag == "desc" and child.get("class") == "label":
                    child.tag = "title"
                elif child.tag == "title" and parent is root:
                    child.text = title
                elif child.tag in {"defs", "desc"} or not isinstance(child.tag, str):
                    parent.remove(child)
        for bar in root.iter("g") if kind is pygal.Bar else ():
            if (drawn := bar.find("rect[@class='rect reactive tooltip-trigger']")) is not None:
                over = {"class": "over", "x": drawn.attrib["x"], "width": drawn.attrib["width"], "height": str(height)}
                bar.insert(0, Element("rect", over))  # a taller invisible bar, because low bars are hard to point at
        return root

    chart.add_xml_filter(plain)
    return chart


def _value(row: Bar) -> dict[str, object]:
    shown = {"value": row.value, "label": f"{row.label}: {row.text}", "formatter": lambda _: row.text}
    return shown | {"style": "fill: var(--mark)"} if row.is_marked else shown
