"""Divides a query on files into tasks that each read part of a partition. Independent of Spark.

Planning reads only batch headers. The range of each task is fixed, so a task that is run again reads the same records
even if a broker is writing to the log.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from odradek.client.columns import read_records
from odradek.client.common.values import TopicPartition
from odradek.files.offline.directories import PartitionLog, partitions_at
from odradek.files.offline.survey import BatchPlace, PartitionSurvey, survey
from odradek.files.offline.transactions import AbortedRange, overlapping
from odradek.files.offline.walk import DamagedLog, OnDamage, refuse, stretches
from odradek.protocol.topic_partition import CLUSTER_METADATA, INTERNAL_TOPICS
from odradek.spark.files.options import DamageMode, FileOptions, LogView
from odradek.spark.offsets import OffsetRange, Offsets, log_losses, ranges, requested_offsets, require_records
from odradek.spark.options import EARLIEST, Bound, OptionError

# Distance between a survey's places. A filter on timestamps excludes either all of a place's records or none.
_PLACES_APART_BYTES = 8 * 1024 * 1024
INTERNAL = INTERNAL_TOPICS | {CLUSTER_METADATA}


@dataclass(frozen=True, slots=True)
class FileTask:
    """A task that reads part of one partition.

    hint     base offset and inode of a segment, and a position in the segment at or before the first batch
    aborted  the transactions to leave out
    """

    range: OffsetRange
    directory: Path
    hint: tuple[int, int, int] | None
    aborted: tuple[AbortedRange, ...]


def chosen_logs(options: FileOptions) -> list[PartitionLog]:
    """Returns the logs of the partitions that the options name. Raises OptionError if a partition does not exist."""
    logs = partitions_at(options.path)
    choice = options.choice
    if choice is None:
        wants_internal = options.view is LogView.INTERNAL
        found = [log for log in logs if (log.topic in INTERNAL) == wants_internal]
    elif choice.pattern is not None:
        found = [log for log in logs if re.fullmatch(choice.pattern, log.topic)]
    elif choice.partitions:
        found = [log for log in logs if (log.topic, log.partition) in choice.partitions]
        _refuse_missing(options, set(choice.partitions) - {(log.topic, log.partition) for log in found})
    else:
        found = [log for log in logs if log.topic in choice.topics]
        _refuse_missing(options, set(choice.topics) - {log.topic for log in found})
    return found


def selected_logs(options: FileOptions) -> list[PartitionLog]:
    """Returns the logs of `chosen_logs` that the query's filters do not exclude."""
    return [log for log in chosen_logs(options) if options.pruning.has(log.topic, log.partition)]


def plan(options: FileOptions) -> list[FileTask]:
    """Plans the tasks, ordered by topic, partition and offset. Raises DamagedLog, DataLost or OptionError."""
    logs = {TopicPartition(log.topic, log.partition): log for log in chosen_logs(options)}
    start_times, start_offsets = requested_offsets(options.starting, list(logs))
    end_times, end_offsets = requested_offsets(options.ending, list(logs))
    surveys = {
        each: survey(
            log,
            cut_bytes=min(options.max_bytes_per_partition, _PLACES_APART_BYTES),
            timestamps={times[each] for times in (start_times, end_times) if each in times},
            by_index=options.by_index,
            on_damage=on_damage(options),
        )
        for each, log in logs.items()
        if options.pruning.has(*each)
    }
    start = _resolved(options.starting, start_times, start_offsets, surveys, options)
    end = _resolved(options.ending, end_times, end_offsets, surveys, options)
    for each, found in surveys.items():
        if end[each] > _end(found, options):
            name = f"{each.topic}-{each.partition}"
            short = f"{name} was requested up to offset {end[each]}, but {found.log.directory} ends at"
            log_losses([f"{short} {_end(found, options)}"], fails=options.fail_on_data_loss)
            end[each] = _end(found, options)
    earliest = {each: found.start_offset for each, found in surveys.items()}
    pruned = [_pruned(each, options) for each in ranges(start, end, earliest, options)]
    return [
        task for each in pruned for task in _cut(each, surveys[TopicPartition(each.topic, each.partition)], options)
    ]


def on_damage(options: FileOptions) -> OnDamage:
    return refuse if options.on_damage is DamageMode.FAIL_FAST else leave_out


def leave_out(damage: DamagedLog) -> None:
    """Reports damage on stderr, which Spark stores in the executor's log. Used with mode=permissive."""
    import sys

    print(f"odradek: {damage}; the damaged part is left out", file=sys.stderr)


def _refuse_missing(options: FileOptions, missing: set[TopicPartition] | set[str]) -> None:
    if missing:
        raise OptionError(f"not in {options.path}: {', '.join(sorted(map(str, missing)))}")


def _end(found: PartitionSurvey, options: FileOptions) -> int:
    committed = options.is_committed and options.view in (LogView.RECORDS, LogView.INTERNAL)
    return found.last_stable_offset if committed else found.end_offset


def _resolved(
    bound: Bound, times: Offsets, offsets: Offsets, surveys: dict[TopicPartition, PartitionSurvey], options: FileOptions
) -> Offsets:
    found = {}
    for each, offset in offsets.items():
        if each not in surveys:
            continue
        bounds = surveys[each]
        if offset >= 0:
            found[each] = offset
        else:
            found[each] = bounds.start_offset if offset == EARLIEST else _end(bounds, options)
    by_time = {each: _not_older(surveys[each], ms, options) for each, ms in times.items() if each in surveys}
    require_records(bound, times, [each for each, offset in by_time.items() if offset is None])
    ends = {each: _end(surveys[each], options) for each in by_time}
    return found | {each: ends[each] if offset is None else offset for each, offset in by_time.items()}


def _not_older(found: PartitionSurvey, timestamp_ms: int, options: FileOptions) -> int | None:
    """Returns the offset of the first record with at least this timestamp, or None if there is no such record. As with
    ListOffsets, this record can belong to an aborted transaction."""
    place = found.not_older.get(timestamp_ms)
    end_offset = _end(found, options)
    if place is None or place.offset >= end_offset:
        return None
    first_offset = max(place.offset, found.start_offset)
    for stretch in stretches(
        found.log.directory, first_offset, end_offset, hint=_hint(place), on_damage=on_damage(options)
    ):
        table = read_records(stretch.data, start_offset=first_offset, columns=["offset", "timestamp"], check_crcs=False)
        offsets, timestamps = (table[name].to_numpy() for name in ("offset", "timestamp"))
        late = offsets[timestamps >= timestamp_ms]
        if late.size:
            return int(late[0])
    return None


def _pruned(whole: OffsetRange, options: FileOptions) -> OffsetRange:
    pruning = options.pruning
    end = whole.end_offset if pruning.end_offset is None else min(whole.end_offset, pruning.end_offset)
    return replace(whole, start_offset=max(whole.start_offset, pruning.start_offset), end_offset=end)


def _cut(whole: OffsetRange, found: PartitionSurvey, options: FileOptions) -> Iterator[FileTask]:
    """Cuts a range into tasks at the survey's places. A task reads at most maxBytesPerPartition bytes, unless a single
    place is larger. Places whose records are all too old are left out."""
    places, not_before = found.places, options.pruning.not_before
    offsets = [place.offset for place in places]
    first = max(0, bisect_left(offsets, whole.start_offset + 1) - 1)
    at = whole.start_offset
    while at < whole.end_offset and first < len(places):
        if _is_older(places[first], not_before):
            first += 1
            at = max(at, offsets[first]) if first < len(places) else whole.end_offset
            continue
        after, size_bytes = first + 1, places[first].size_bytes
        while (
            after < len(places)
            and size_bytes + places[after].size_bytes <= options.max_bytes_per_partition
            and not _is_older(places[after], not_before)
        ):
            size_bytes += places[after].size_bytes
            after += 1
        end = min(whole.end_offset, offsets[after]) if after < len(places) else whole.end_offset
        if at < end:
            aborted = overlapping(found.aborted, at, end) if options.is_committed else []
            part = OffsetRange(whole.topic, whole.partition, at, end)
            yield FileTask(part, found.log.directory, _hint(places[first]), tuple(aborted))
            at = end
        first = after


def _is_older(place: BatchPlace, not_before: int | None) -> bool:
    return not_before is not None and place.max_timestamp is not None and place.max_timestamp < not_before


def _hint(place: BatchPlace) -> tuple[int, int, int]:
    return place.base_offset, place.inode, place.position
