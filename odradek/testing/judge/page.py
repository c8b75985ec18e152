"""The report as one self-contained HTML page: a matrix of rules and clients, of which each cell opens its proof."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Final

from odradek.testing.judge.rules import RULES
from odradek.testing.judge.verdicts import ALWAYS_COUNT, BROKEN, KEPT, NOT_EXERCISED, RuleVerdict, Software

MARKS: Final = {KEPT: "✓", BROKEN: "✗", NOT_EXERCISED: "·"}

STYLE: Final = """
:root { color-scheme: light dark; --text: #1d2433; --soft: #5b6475; --back: #fff; --line: #dfe3ea; --card: #f5f7fa;
  --kept: #12744a; --kept-back: #e3f5ec; --broken: #b3261e; --broken-back: #fde7e5; --should: #8a5a00;
  --should-back: #fdf1d8; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e8ef; --soft: #9aa4b5; --back: #14181f; --line: #2c3440;
  --card: #1c222c; --kept: #6fd6a4; --kept-back: #15362a; --broken: #ff9a91; --broken-back: #47201e; --should: #f0c468;
  --should-back: #3d3015; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--text); background: var(--back); margin: 2rem auto;
  max-width: 78rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } p { color: var(--soft); margin: .25rem 0 1.25rem; }
.wide { max-height: calc(100vh - 8rem); overflow: auto; } table { border-collapse: collapse; width: 100%; }
th, td { padding: .35rem .6rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
thead th { position: sticky; top: 0; background: var(--back); min-width: 6rem; }
tbody th { font-weight: 400; } tbody th code { font-weight: 600; }
tr.family th { background: var(--card); font-weight: 600; }
.clause { color: var(--soft); font-size: .85em; } td { text-align: center; min-width: 5rem; }
button { font: inherit; width: 100%; border: 0; border-radius: 6px; padding: .15rem .4rem; color: var(--soft);
  background: none; cursor: pointer; } button:hover, button:focus-visible { outline: 2px solid var(--soft); }
button.kept { color: var(--kept); background: var(--kept-back); }
button.broken { color: var(--broken); background: var(--broken-back); font-weight: 600; }
button.lesser { color: var(--should); background: var(--should-back); }
dialog { color: var(--text); background: var(--back); border: 1px solid var(--line); border-radius: 10px;
  width: min(60rem, 92vw); max-height: 86vh; overflow: auto; } dialog::backdrop { background: #0008; }
dialog form button { width: auto; float: right; } dialog h2 { font-size: 1.1rem; margin: 0 2rem .5rem 0; }
pre { background: var(--card); border-radius: 8px; padding: .75rem; overflow: auto; font-size: .82rem; }
details { margin: .4rem 0; } summary { cursor: pointer; }
"""

SCRIPT: Final = """
const verdicts = JSON.parse(document.getElementById("verdicts").textContent);
const dialog = document.querySelector("dialog");
function line(tag, text, into) { const one = document.createElement(tag); one.textContent = text; into.append(one);
  return one; }
for (const button of document.querySelectorAll("button[data-at]")) button.addEventListener("click", () => {
  const [client, rule] = button.dataset.at.split("/").map(Number);
  const verdict = verdicts[client].verdicts[rule];
  const body = dialog.querySelector("div");
  body.replaceChildren();
  line("h2", `${verdict.rule}: ${verdict.text}`, body);
  line("p", `${verdicts[client].title} - ${verdict.verdict}: kept ${verdict.kept} times, broken ${verdict.broken} `
    + `times - level ${verdict.level} - ${verdict.clause}`, body);
  if (verdict.why) line("strong", verdict.why, body);
  if (verdict.needs) line("p", `Traffic alone does not decide it: it needs ${verdict.needs}.`, body);
  else if (!verdict.kept && !verdict.broken) line("p", `It takes ${verdict.precondition}.`, body);
  for (const exchange of verdict.proof) {
    const one = document.createElement("details");
    line("summary", `${exchange.received_ms} ms: ${exchange.api} v${exchange.version} on connection `
      + `${exchange.connection}, ${exchange.fate}`, one);
    line("pre", JSON.stringify(exchange, null, 2), one);
    one.open = exchange === verdict.proof.at(-1);
    body.append(one);
  }
  dialog.showModal();
});
dialog.addEventListener("click", event => { if (event.target === dialog) dialog.close(); });
"""


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
    data = [{"title": software.title, **software.told()} for software in found]
    embedded = json.dumps(data).replace("</", "<\\/")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>
<h1>{escape(title)}</h1>
<p>✓ kept, and how often · ✗ broken · a dot: not exercised · a dash: not decided by traffic. A cell opens its proof.</p>
<div class="wide" tabindex="0"><table><thead><tr><th scope="col">Rule</th>{heads}</tr></thead>
<tbody>{"".join(rows)}</tbody></table></div></main>
<dialog><form method="dialog"><button autofocus>Close</button></form><div></div></dialog>
<script type="application/json" id="verdicts">{embedded}</script><script>{SCRIPT}</script></body></html>
"""


def _cell(verdict: RuleVerdict, at: str, ignored: Mapping[str, str]) -> str:
    mark = MARKS.get(verdict.verdict, "–")
    words = {KEPT: f"{mark} {verdict.kept}", BROKEN: f"{mark} {verdict.broken}"}.get(verdict.verdict, mark)
    kind = verdict.verdict if verdict.verdict in (KEPT, BROKEN) else ""
    if kind == BROKEN and (verdict.rule.level not in ALWAYS_COUNT or verdict.rule.id in ignored):
        kind = "lesser"
    return f'<button class="{kind}" data-at="{at}" aria-label="{verdict.rule.id} {verdict.verdict}">{words}</button>'
