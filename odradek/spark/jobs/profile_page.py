"""Renders a profile as one HTML file. The page contains no scripts, loads nothing, and adapts to light mode, dark mode
and print."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import pairwise
from pathlib import Path

from odradek.spark.jobs.charts import WIDE, Bar, bars, columns, shares
from odradek.spark.jobs.profile_facts import Distribution, LogFacts, Profile
from odradek.spark.jobs.shown import size

_MAX_PARTITIONS = 40
_EXACTNESS = "the number of keys is accurate to a few percent, and the quantiles to ten percent."
_STYLE = Path(__file__).parent / "assets" / "profile.css"


def page(profile: Profile, made: datetime) -> str:
    """Returns a profile's HTML page. `made` is the time at which the profile was made, including the time zone."""
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
        f"<title>{escape(profile.topic)} – profile</title><style>{_STYLE.read_text(encoding='utf-8')}</style></head>"
        f"<body><main>{body}</main></body></html>\n"
    )


def _tiles(profile: Profile) -> str:
    log = profile.log
    facts = [(f"{profile.records:,}", "records")]
    if log is not None:
        facts += [(size(log.size_bytes), "in the log"), (f"{profile.compression_ratio or 0:.2f}×", "payload to log")]
    facts += [
        (size(profile.payload_bytes), "keys and values"),
        (f"{len(profile.partitions):,}", "partitions"),
        (f"{profile.distinct_keys:,}", "keys, about"),
        (f"{profile.skew:.2f}×", "largest partition to mean"),
    ]
    if log is not None:
        facts.append((f"{log.batches:,}", "batches"))
    tiles = [f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>' for value, name in facts]
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
    if len(starts) > 400:  # a few timestamps are far from the rest, so only times with records are shown
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
        f"By the timestamps of the batches, in steps of {_duration(step_ms)}; UTC.",
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
    shown = sorted(largest[:_MAX_PARTITIONS], key=lambda each: each.partition)
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
    note = f"Records of each partition; the mean is {mean:,.0f}." + (
        f" {more} smaller partitions are left out." if more else ""
    )
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
        f"The topic has about {profile.distinct_keys:,} keys.",
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
        f"The log takes {size(log.size_bytes)} for {size(profile.payload_bytes)} of keys and values.",
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
        "From the first record of a batch to its last, by the producers' clocks: how long producers wait to fill a"
        " batch.",
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


def _columns(values: Distribution, show: Callable[[float], str]) -> list[Bar]:
    total = values.total or 1
    return [
        Bar(show(each.start), each.values, f"{each.values:,} ({each.values / total:.1%}), below {show(each.end)}")
        for each in values.by_doubling()
    ]


def _quantiles(values: Distribution, show: Callable[[float], str], mean: float | None = None) -> str:
    rows = [(name, show(values.quantile(share))) for name, share in (("half", 0.5), ("90 %", 0.9), ("99 %", 0.99))]
    rows.append(("all", show(values.quantile(1))))
    return _list([(f"{name} ≤", value) for name, value in rows] + ([("mean", show(mean))] if mean is not None else []))


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
