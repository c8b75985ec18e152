"""Formats the report of `odradek inspect check` as text or JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from odradek.tools.inspect.check.findings import ADVICE, NOTES, Flaw, LogFinding
from odradek.tools.inspect.check.run import PartitionReport, Report

_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def lines(report: Report, seconds: float) -> Iterator[str]:
    """Yields the findings, with advice for each kind, and then a summary line."""
    by_kind: dict[Flaw, list[LogFinding]] = {}
    for finding in report.findings:
        by_kind.setdefault(finding.kind, []).append(finding)
    for kind in sorted(by_kind, key=lambda each: (each in NOTES, list(Flaw).index(each))):
        word = "note" if kind in NOTES else "DAMAGED"
        for finding in by_kind[kind]:
            yield f"{word}  {finding.partition}: {finding.text}"
            yield f"    {finding.path}, byte {finding.position}, offset {finding.offset}"
        more = sum(partition.counts.get(kind, 0) for partition in report.partitions) - len(by_kind[kind])
        if more:
            yield f"    … and {more:,} more of this kind"
        yield f"    → {ADVICE[kind]}"
        yield ""
    yield summary(report, seconds)


def summary(report: Report, seconds: float) -> str:
    counted = sum(
        count for partition in report.partitions for kind, count in partition.counts.items() if kind not in NOTES
    )
    batches = sum(partition.batches for partition in report.partitions)
    verdict = "nothing is damaged" if not counted else f"{counted:,} damage{'s' if counted > 1 else ''}"
    rate = report.size_bytes / seconds / 1e9 if seconds else 0.0
    return (
        f"{verdict}: {len(report.partitions):,} partitions, {batches:,} batches, {size(report.size_bytes)} in"
        f" {seconds:.1f} s ({rate:.1f} GB/s)"
    )


def as_json(report: Report, seconds: float) -> dict[str, Any]:
    return {
        "isDamaged": report.is_damaged,
        "findings": [_finding(each) for each in report.findings],
        "partitions": [_partition(each) for each in report.partitions],
        "sizeInBytes": report.size_bytes,
        "seconds": round(seconds, 3),
    }


def size(size_bytes: int) -> str:
    for unit, divisor in _UNITS:
        if size_bytes >= divisor:
            return f"{size_bytes / divisor:.1f} {unit}"
    return f"{size_bytes} B"


def _finding(finding: LogFinding) -> dict[str, Any]:
    return {
        "kind": finding.kind.value,
        "isDamage": finding.is_damage,
        "partition": finding.partition,
        "file": str(finding.path),
        "position": finding.position,
        "offset": finding.offset,
        "text": finding.text,
        "advice": ADVICE[finding.kind],
    }


def _partition(partition: PartitionReport) -> dict[str, Any]:
    return {
        "topic": partition.log.topic,
        "partition": partition.log.partition,
        "directory": str(partition.log.directory),
        "logStartOffset": partition.start_offset,
        "lastStableOffset": partition.last_stable_offset,
        "endOffset": partition.end_offset,
        "isCompacted": partition.is_compacted,
        "segments": partition.segments,
        "batches": partition.batches,
        "records": partition.records,
        "sizeInBytes": partition.size_bytes,
        "counts": {kind.value: count for kind, count in partition.counts.items() if count},
    }
