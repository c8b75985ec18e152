"""Renders the report as one self-contained HTML page. It shows a matrix of rules and clients; clicking a verdict opens
its proof."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Final

from odradek.testing.judge.rules import RULES
from odradek.testing.judge.verdicts import ALWAYS_COUNT, BROKEN, KEPT, NOT_EXERCISED, RuleVerdict, Software

MARKS: Final = {KEPT: "✓", BROKEN: "✗", NOT_EXERCISED: "·"}
ASSETS: Final = Path(__file__).parent / "assets"


def page(found: Sequence[Software], ignored: Mapping[str, str], title: str) -> str:
    shown = [rule for rule in RULES.values() if not found or rule.id in found[0].verdicts]
    rows = []
    for family, rules in groupby(enumerate(shown), key=lambda numbered: numbered[1].family):
        rows.append(f'<tr class="family"><th colspan="{len(found) + 1}" scope="rowgroup">{family}</th></tr>')
        for place, rule in rules:
            cells = "".join(
                f"<td>{_cell(software.verdicts[rule.id], f'{column}/{place}', ignored)}</td>"
                for column, software in enumerate(found)
            )
            head = f'<code>{rule.id}</code> {escape(rule.text)} <span class="clause">{escape(rule.clause)}</span>'
            rows.append(f'<tr><th scope="row">{head}</th>{cells}</tr>')
    heads = "".join(f'<th scope="col">{escape(software.title)}</th>' for software in found)
    data = [{"title": software.title, **software.as_json()} for software in found]
    style, script = ((ASSETS / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    embedded = json.dumps(data).replace("</", "<\\/")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{style}</style></head><body><main>
<h1>{escape(title)}</h1>
<p>✓ kept, and how often · ✗ broken · a dot: not exercised · a dash: not decided by traffic.
Click a cell to see its proof.</p>
<div class="wide" tabindex="0"><table><thead><tr><th scope="col">Rule</th>{heads}</tr></thead>
<tbody>{"".join(rows)}</tbody></table></div></main>
<dialog><form method="dialog"><button autofocus>Close</button></form><div></div></dialog>
<script type="application/json" id="verdicts">{embedded}</script><script>{script}</script></body></html>
"""


def _cell(verdict: RuleVerdict, at: str, ignored: Mapping[str, str]) -> str:
    mark = MARKS.get(verdict.verdict, "–")
    words = {KEPT: f"{mark} {verdict.kept}", BROKEN: f"{mark} {verdict.broken}"}.get(verdict.verdict, mark)
    kind = verdict.verdict if verdict.verdict in (KEPT, BROKEN) else ""
    if kind == BROKEN and (verdict.rule.level not in ALWAYS_COUNT or verdict.rule.id in ignored):
        kind = "lesser"
    return f'<button class="{kind}" data-at="{at}" aria-label="{verdict.rule.id} {verdict.verdict}">{words}</button>'
