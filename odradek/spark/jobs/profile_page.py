"""A profile as a page: one HTML file without scripts and without requests, for light and dark screens and for paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import pairwise

from odradek.spark.jobs.charts import WIDE, Bar, bars, columns, shares
from odradek.spark.jobs.profile_facts import Distribution, LogFacts, Profile
from odradek.spark.jobs.shown import size

_MOST_PARTITIONS = 40
_EXACTNESS = "the number of keys is right to some percent, and the quantiles are to a tenth."
_STYLE = """
:root { color-scheme: light dark; --page: #f5f6f8; --card: #fff; --text: #1c2230; --soft: #5d6779; --line: #e3e6ec;
  --bar: #3d6fd9; --mark: #d9772b; --over: rgba(61,111,217,.08); --found: #fff6e8; --found-line: #e9b872;
  --p0: #3d6fd9; --p1: #2a9d8f; --p2: #d9772b; --p3: #8661c1; --p4: #8a94a6; }
@media (prefers-color-scheme: dark) { :root { --page: #12151c; --card: #1a1f29; --text: #e6e9f0; --soft: #98a2b5;
  --line: #2a3140; --bar: #6c97f0; --mark: #eda15e;
  --over: rgba(108,151,240,.12); --found: #2a2317; --found-line: #8d6a35;
  --p0: #6c97f0; --p1: #4bbfae; --p2: #eda15e; --p3: #ab8ce0; --p4: #7d889c; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); line-height: 1.45;
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 40px 24px 64px; }
header p { margin: 0; color: var(--soft); overflow-wrap: anywhere; }
h1 { margin: 0 0 6px; font-size: 34px; font-weight: 680; letter-spacing: -.02em; overflow-wrap: anywhere; }
h2 { margin: 0 0 2px; font-size: 17px; font-weight: 640; }
section > p { margin: 0 0 14px; color: var(--soft); font-size: 13.5px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(134px, 1fr)); gap: 1px; margin: 28px 0;
  background: var(--line); border: 1px solid var(--line); border-radius: 14px; overflow: hidden; }
.tile { background: var(--card); padding: 16px; }
.tile b { display: block; font-size: 20px; white-space: nowrap; font-weight: 660;
  font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: 13px; }
.found { margin: 0 0 28px; padding: 14px 18px 14px 36px; background: var(--found); border: 1px solid var(--found-line);
  border-radius: 14px; }
.found li + li { margin-top: 6px; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 460px), 1fr)); gap: 20px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 14px;
  padding: 20px 22px; min-width: 0; }
section.wide { grid-column: 1 / -1; }
svg { display: block; width: 100%; height: auto; font: 12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
svg .background { fill: none; } svg .color-0 { fill: var(--bar); } svg .color-1 { fill: var(--p1); }
svg .color-2 { fill: var(--p2); } svg .color-3 { fill: var(--p3); } svg .color-4, svg .color-5 { fill: var(--p4); }
svg .over { fill: none; pointer-events: all; } svg .bar:hover .over { fill: var(--over); }
svg text { fill: var(--soft); } svg .value { fill: var(--text); text-anchor: start; }
svg text, svg .value { font-variant-numeric: tabular-nums; } svg .line { stroke: var(--line); fill: none; }
svg .axis.y text { text-anchor: end; } svg .axis.x text { text-anchor: middle; } svg .axis.x .line { stroke: none; }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(90px, 1fr)); gap: 4px 18px; margin: 16px 0 0; }
dl div { border-top: 1px solid var(--line); padding-top: 6px; }
dt { color: var(--soft); font-size: 12.5px; } dd { margin: 0; font-variant-numeric: tabular-nums; }
footer { margin-top: 28px; color: var(--soft); font-size: 13px; }
@media print { body { background: #fff; } section { break-inside: avoid; } }
"""


def page(profile: Profile, made: datetime) -> str:
    """Returns the page; `made` is the time of the profile, aware of its zone."""
    found = "".join(f"<li>{escape(each)}</li>" for each in profile.findings())
    body = "".join(
        [
            f"<header><h1>{escape(profile.topic)}</h1><p>{escape(profile.source)} · {_period(profile)}</p></header>",
            _tiles(profile),
            f'<ul class="found">{found}</ul>' if found else "",
            f'<div class="cards">{"".join(_cards(profile))}</div>',
            f"<footer>Measured {_when(made)} by <code>odradek spark profile</code>; {_EXACTNESS}</footer>",
        ]
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(profile.topic)} – profile</title><style>{_STYLE}</style></head>"
        f"<body><main>{body}</main></body></html>\n"
    )


def _tiles(profile: Profile) -> str:
    log = profile.log
    told = [(f"{profile.records:,}", "records")]
    if log is not None:
        told += [(size(log.size_bytes), "in the log"), (f"{profile.compression_ratio or 0:.2f}×", "payload to log")]
    told += [
        (size(profile.payload_bytes), "keys and values"),
        (f"{len(profile.partitions):,}", "partitions"),
        (f"{profile.distinct_keys:,}", "keys, about"),
        (f"{profile.skew:.2f}×", "largest partition to mean"),
    ]
    if log is not None:
        told.append((f"{log.batches:,}", "batches"))
    tiles = [f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>' for value, name in told]
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _cards(profile: Profile) -> Iterator[str]:
    if not profile.records:
        return
    log = profile.log
    if profile.over_time:
        yield _over_time(profile)
    yield _card(
        "Sizes of records",
        "Keys and values, without headers.",
        columns("Sizes of records", _columns(profile.record_bytes, size)),
        _quantiles(profile.record_bytes, size, profile.payload_bytes / profile.records),
    )
    yield _partitions(profile)
    yield _keys(profile)
    if log is not None:
        yield from _of_the_log(profile, log)


def _over_time(profile: Profile) -> str:
    rows = profile.over_time
    step_ms = min((b.start_ms - a.start_ms for a, b in pairwise(rows)), default=1_000)
    filled = {row.start_ms: row for row in rows}
    starts: Sequence[int] = range(rows[0].start_ms, rows[-1].start_ms + 1, step_ms)
    if len(starts) > 400:  # some timestamps are far from the others: only what there is
        starts = [row.start_ms for row in rows]
    shown = [
        Bar(
            _clock(start, step_ms),
            row.records if (row := filled.get(start)) else 0,
            f"{row.records:,} records, {size(row.log_bytes)}" if row else "nothing",
        )
        for start in starts
    ]
    peak = max(rows, key=lambda row: row.records)
    return _card(
        "Records over time",
        f"By the timestamps of their batches, in steps of {_duration(step_ms)}; UTC.",
        columns("Records over time", shown, labels=12, width=WIDE),
        _list(
            [
                ("peak", f"{peak.records / step_ms * 1_000:,.0f} records/s"),
                ("at", _clock(peak.start_ms, step_ms)),
                ("bytes then", f"{size(peak.log_bytes / step_ms * 1_000)}/s"),
            ]
        ),
        is_wide=True,
    )


def _partitions(profile: Profile) -> str:
    largest = sorted(profile.partitions, key=lambda each: -each.records)
    mean = profile.records / max(1, len(largest))
    shown = sorted(largest[:_MOST_PARTITIONS], key=lambda each: each.partition)
    rows = [
        Bar(
            f"partition {each.partition}",
            each.records,
            f"{each.records:,}",
            is_marked=each.records >= 2 * mean and len(largest) > 1,
        )
        for each in shown
    ]
    more = len(largest) - len(shown)
    note = f"Records of each; the mean is {mean:,.0f}." + (f" {more} smaller ones are left out." if more else "")
    return _card("Partitions", note, bars("Records of each partition", rows))


def _keys(profile: Profile) -> str:
    rows = [
        Bar(
            "no key" if each.key is None else each.key,
            each.records,
            f"{each.records:,} · {each.records / profile.records:.1%}",
            is_marked=each.key is not None and each.records >= 0.1 * profile.records,
        )
        for each in profile.top_keys
    ]
    return _card(
        "Keys with the most records",
        f"Of about {profile.distinct_keys:,} keys.",
        bars("Records of each key", rows),
        _list(
            [
                ("without key", f"{profile.null_keys / profile.records:.1%}"),
                ("without value", f"{profile.null_values / profile.records:.1%}"),
                ("records a key", f"{(profile.records - profile.null_keys) / max(1, profile.distinct_keys):,.1f}"),
            ]
        ),
    )


def _of_the_log(profile: Profile, log: LogFacts) -> Iterator[str]:
    codecs = sorted(log.codecs.items(), key=lambda each: -each[1])
    yield _card(
        "Compression",
        f"The log has {size(log.size_bytes)} for {size(profile.payload_bytes)} of keys and values.",
        shares("Bytes by compression", [Bar(name, count, size(count)) for name, count in codecs]),
        _list([("producers", f"{log.producers:,}"), ("bytes a record", f"{log.size_bytes / profile.records:,.1f}")]),
    )
    yield _card(
        "Records in a batch",
        "Larger batches compress better and cost less everywhere.",
        columns("Records in a batch", _columns(log.batch_records, lambda value: f"{value:,.0f}")),
        _quantiles(log.batch_records, lambda value: f"{value:,.0f}"),
    )
    yield _card(
        "Time within a batch",
        "From its first record to its last, by the producers' clocks: how long they collect.",
        columns("Time within a batch", _columns(log.span, _duration)),
        _quantiles(log.span, _duration),
    )
    if log.committed or log.aborted or log.still_open:
        yield _card(
            "Time to commit",
            "From the first record of a transaction to its marker: how long readers of committed records wait.",
            columns("Time to commit", _columns(log.open_for, _duration)),
            _quantiles(log.open_for, _duration)
            + _list(
                [("committed", f"{log.committed:,}"), ("aborted", f"{log.aborted:,}"), ("open", f"{log.still_open:,}")]
            ),
        )


def _card(title: str, note: str, chart: str, more: str = "", *, is_wide: bool = False) -> str:
    kind = ' class="wide"' if is_wide else ""
    return f"<section{kind}><h2>{escape(title)}</h2><p>{escape(note)}</p>{chart}{more}</section>"


def _columns(values: Distribution, told: Callable[[float], str]) -> list[Bar]:
    total = values.total or 1
    return [
        Bar(told(each.start), each.values, f"{each.values:,} ({each.values / total:.1%}), below {told(each.end)}")
        for each in values.by_doubling()
    ]


def _quantiles(values: Distribution, told: Callable[[float], str], mean: float | None = None) -> str:
    rows = [(name, told(values.quantile(share))) for name, share in (("half", 0.5), ("90 %", 0.9), ("99 %", 0.99))]
    rows.append(("all", told(values.quantile(1))))
    return _list([(f"{name} ≤", value) for name, value in rows] + ([("mean", told(mean))] if mean is not None else []))


def _list(rows: list[tuple[str, str]]) -> str:
    return f"<dl>{''.join(f'<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>' for name, value in rows)}</dl>"


def _period(profile: Profile) -> str:
    if profile.first_ms is None or profile.last_ms is None:
        return "no records"
    first, last = (datetime.fromtimestamp(ms / 1_000, UTC) for ms in (profile.first_ms, profile.last_ms))
    return f"{_when(first)} to {_when(last)}"


def _when(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _clock(ms: int, step_ms: int) -> str:
    at = datetime.fromtimestamp(ms / 1_000, UTC)
    if step_ms < 1_000:
        return f"{at:%H:%M:%S}.{at.microsecond // 1_000:03d}"
    if step_ms < 60_000:
        return f"{at:%H:%M:%S}"
    return f"{at:%m-%d %H:%M}" if step_ms < 86_400_000 else f"{at:%Y-%m-%d}"


def _duration(ms: float) -> str:
    if ms < 1_000:
        return f"{ms:,.0f} ms"
    for unit, factor in (("s", 1_000), ("min", 60_000), ("h", 3_600_000)):
        if ms < factor * (60 if unit != "h" else 48):
            return f"{ms / factor:,.3g} {unit}"
    return f"{ms / 86_400_000:,.3g} d"
