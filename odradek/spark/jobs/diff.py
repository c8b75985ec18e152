"""Compares two directories of logs, such as a log and its mirror, a restored backup and its original, or a broker's
logs before and after an upgrade.

Batches are compared by offsets and CRCs, which requires reading only their headers. Records are read only where batches
differ, because two logs may hold the same records in different batches. Transaction markers are compared by content.

| record or marker | difference |
|---|---|
| exists on one side only | missing in the other |
| same offset; different key, value, timestamp or headers | changed |
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from odradek.spark.jobs.inputs import Input
from odradek.spark.jobs.shown import shown

MISSING_LEFT, MISSING_RIGHT, CHANGED = "missing in the first", "missing in the second", "changed"
EXAMPLES = 5
BLOCK = 65_536  # number of offsets compared together
_CONTENT = ("key", "value", "timestamp", "headers")
_BATCH = "topic string, partition int, baseOffset bigint, lastOffset bigint, crc bigint, isControl boolean"
_MARKER = "topic string, partition int, baseOffset bigint, producerId bigint, isControl boolean, controlType string"
OffsetBounds: TypeAlias = dict[tuple[str, int], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class PartitionDiff:
    """The differences in one partition. `left` and `right` are the start and end of the log on each side, or None if
    that side lacks the partition."""

    topic: str
    partition: int
    left: tuple[int, int] | None
    right: tuple[int, int] | None
    batches: int = 0  # number of batches that only one side has
    missing_left: int = 0
    missing_right: int = 0
    changed: int = 0
    markers: int = 0

    @property
    def is_same(self) -> bool:
        """True if readers see the same records and markers on both sides."""
        return not (self.missing_left or self.missing_right or self.changed or self.markers)


@dataclass(frozen=True, slots=True)
class ChangedRecord:
    """A record that differs. `left` and `right` are the columns of the record on each side, or None if that side lacks
    the record. `columns` names the columns that differ."""

    difference: str
    topic: str
    partition: int
    offset: int
    columns: list[str]
    left: dict[str, str | None] | None
    right: dict[str, str | None] | None


@dataclass(frozen=True, slots=True)
class Diff:
    """The result of a comparison: the differences in each partition, and examples of the records that differ."""

    partitions: list[PartitionDiff] = field(default_factory=list)
    examples: list[ChangedRecord] = field(default_factory=list)

    @property
    def is_same(self) -> bool:
        return all(each.is_same for each in self.partitions)


def diff(spark: SparkSession, left: Input, right: Input, *, overlap: bool = False, examples: int = EXAMPLES) -> Diff:
    """Compares two inputs.

    overlap   compare only offsets that both sides have, because a mirror can lag behind, and retention can delete
              records earlier on one side
    examples  maximum number of examples in the result
    """
    ours, theirs = _bounds(spark, left), _bounds(spark, right)
    both = set(ours.keys() & theirs.keys()) if overlap else ours.keys() | theirs.keys()
    requested_left, requested_right = (
        _requested(one, other, both, overlap) for one, other in ((ours, theirs), (theirs, ours))
    )
    left, right = (each.with_options(**{"kafka.isolation.level": "read_uncommitted"}) for each in (left, right))
    batches = different_batches(
        _read(spark, left, requested_left, _BATCH, "batches"), _read(spark, right, requested_right, _BATCH, "batches")
    ).persist(StorageLevel.DISK_ONLY)
    try:
        counts = {(row[0], row[1]): row[2] for row in batches.groupBy("topic", "partition").count().collect()}
        markers = _markers(spark, left, right, requested_left, requested_right) if counts else {}
        numbers = F.sequence(F.floor(F.col("baseOffset") / BLOCK), F.floor(F.col("lastOffset") / BLOCK))
        data = batches.where("not isControl")
        blocks = data.select("topic", "partition", F.explode(numbers).alias("block")).distinct()
        spans = {
            (row[0], row[1]): (row[2] * BLOCK, (row[3] + 1) * BLOCK)
            for row in blocks.groupBy("topic", "partition").agg(F.min("block"), F.max("block")).collect()
        }
        if not spans:
            return _result(both, ours, theirs, counts, markers, {}, [])
        records = different_records(
            _within(_read(spark, left, _clipped(requested_left, spans), None, "records"), blocks),
            _within(_read(spark, right, _clipped(requested_right, spans), None, "records"), blocks),
        ).persist(StorageLevel.DISK_ONLY)
        try:
            by_kind = records.groupBy("topic", "partition", "difference").count().collect()
            found = records.orderBy("topic", "partition", "offset").limit(examples).collect()
        finally:
            records.unpersist()
        changed = {(row[0], row[1], row[2]): row[3] for row in by_kind}
        return _result(both, ours, theirs, counts, markers, changed, _shown(spark, left, right, found))
    finally:
        batches.unpersist()


def different_batches(left: DataFrame, right: DataFrame) -> DataFrame:
    """Returns the batches that exist on one side only. The two frames have columns of the view `batches`."""
    keys = ["topic", "partition", "baseOffset", "lastOffset", "crc", "isControl"]
    return _of_one_side(left.select(keys), right.select(keys), keys)


def different_records(left: DataFrame, right: DataFrame) -> DataFrame:
    """Compares two frames of records. Returns the topic, partition, offset and difference of each record that differs,
    and the names of its columns that differ."""
    place = ["topic", "partition", "offset"]
    present = [name for name in _CONTENT if name in left.columns and name in right.columns]

    def side(frame: DataFrame, number: int) -> DataFrame:
        # A hash is never null, so a null key and an empty key have different hashes.
        hashes = [
            (F.coalesce(F.xxhash64(name), F.lit(0)) + F.col(name).isNull().cast("long")).alias(name) for name in present
        ]
        return frame.select(*place, F.lit(number).alias("side"), *hashes)

    def of(number: int, name: str) -> Column:
        return F.max(F.when(F.col("side") == number, F.col(name)))

    grouped = (
        side(left, 0)
        .unionAll(side(right, 1))
        .groupBy(*place)
        .agg(
            F.sum((F.col("side") == 0).cast("long")).alias("in_left"),
            F.sum((F.col("side") == 1).cast("long")).alias("in_right"),
            *(of(number, name).alias(f"{name}_{number}") for name in present for number in (0, 1)),
        )
    )
    columns = F.filter(
        F.array(*(F.when(F.col(f"{name}_0") != F.col(f"{name}_1"), F.lit(name)) for name in present)),
        lambda each: each.isNotNull(),
    )
    missing = F.when(F.col("in_left") == 0, MISSING_LEFT).when(F.col("in_right") == 0, MISSING_RIGHT)
    difference = missing.when(F.size(columns) > 0, CHANGED)
    judged = grouped.select(*place, difference.alias("difference"), columns.alias("columns"))
    return judged.where("difference is not null")


def _of_one_side(left: DataFrame, right: DataFrame, keys: Sequence[str]) -> DataFrame:
    sides = left.withColumn("side", F.lit(1)).unionAll(right.withColumn("side", F.lit(-1)))
    return sides.groupBy(*keys).agg(F.sum("side").alias("surplus")).where("surplus != 0")


def _markers(
    spark: SparkSession, left: Input, right: Input, requested_left: OffsetBounds, requested_right: OffsetBounds
) -> dict[tuple[str, int], int]:
    keys = ["topic", "partition", "baseOffset", "producerId", "controlType"]
    ours, theirs = (
        _read(spark, each, requested, _MARKER, "batches").where("isControl").select(keys)
        for each, requested in ((left, requested_left), (right, requested_right))
    )
    places = _of_one_side(ours, theirs, keys).select("topic", "partition", "baseOffset").distinct()
    return {(row[0], row[1]): row[2] for row in places.groupBy("topic", "partition").count().collect()}


def _within(records: DataFrame, blocks: DataFrame) -> DataFrame:
    placed = records.withColumn("block", F.floor(F.col("offset") / BLOCK))
    return placed.join(blocks, ["topic", "partition", "block"], "left_semi").drop("block")


def _bounds(spark: SparkSession, source: Input) -> OffsetBounds:
    schema = "topic string, partition int, logStartOffset bigint, endOffset bigint"
    rows = source.with_options(view="offsets").frame(spark, schema).collect()
    return {(row[0], row[1]): (row[2], row[3]) for row in rows}


def _requested(one: OffsetBounds, other: OffsetBounds, partitions: Any, overlap: bool) -> OffsetBounds:
    found = {}
    for each in partitions:
        if each in one:
            start, end = one[each]
            if overlap:
                start, end = max(start, other[each][0]), min(end, other[each][1])
            found[each] = (start, max(start, end))
    return found


def _clipped(requested: OffsetBounds, spans: OffsetBounds) -> OffsetBounds:
    found = {}
    for each, (start, end) in requested.items():
        if each in spans:
            start, end = max(start, spans[each][0]), min(end, spans[each][1])
            if start < end:
                found[each] = (start, end)
    return found


def _read(spark: SparkSession, source: Input, requested: OffsetBounds, schema: str | None, view: str) -> DataFrame:
    """Reads the offsets that `requested` gives for each partition."""
    options: dict[str, dict[str, Any]] = {"startingOffsets": {}, "endingOffsets": {}}
    assigned: dict[str, list[int]] = {}
    for (topic, partition), (start, end) in sorted(requested.items()):
        assigned.setdefault(topic, []).append(partition)
        options["startingOffsets"].setdefault(topic, {})[str(partition)] = start
        options["endingOffsets"].setdefault(topic, {})[str(partition)] = end
    if not assigned:  # this side has nothing to read, but the frame needs the same columns
        return source.with_options(view=view, includeHeaders="true").frame(spark, schema).where("false")
    more_options = {name: json.dumps(value) for name, value in (options | {"assign": assigned}).items()}
    bare = Input(source.text, source.bootstrap_servers, source.path, (), source.options | more_options)
    return bare.with_options(view=view, includeHeaders="true").frame(spark, schema)


def _shown(spark: SparkSession, left: Input, right: Input, rows: list[Any]) -> list[ChangedRecord]:
    """Reads both sides again at the offsets of these rows. Returns the records of both sides as text."""
    places: dict[tuple[str, int], list[int]] = {}
    for row in rows:
        places.setdefault((row["topic"], row["partition"]), []).append(row["offset"])
    sides = []
    for source, missing in ((left, MISSING_LEFT), (right, MISSING_RIGHT)):
        found = {}
        offsets_by_partition = {
            each: [r["offset"] for r in rows if (r[0], r[1]) == each and r["difference"] != missing] for each in places
        }
        for each, offsets in offsets_by_partition.items():
            if offsets:
                requested = {each: (min(offsets), max(offsets) + 1)}
                for one in (
                    _read(spark, source, requested, None, "records").where(F.col("offset").isin(offsets)).collect()
                ):
                    found[one["topic"], one["partition"], one["offset"]] = {n: shown(one[n]) for n in _CONTENT}
        sides.append(found)
    return [
        ChangedRecord(row["difference"], *place, list(row["columns"]), *(side.get(place) for side in sides))
        for row in rows
        for place in [(row["topic"], row["partition"], row["offset"])]
    ]


def _result(
    both: Any,
    ours: OffsetBounds,
    theirs: OffsetBounds,
    batches: dict[tuple[str, int], int],
    markers: dict[tuple[str, int], int],
    records: dict[tuple[str, int, str], int],
    examples: list[ChangedRecord],
) -> Diff:
    found = []
    for topic, partition in sorted(both):
        each = (topic, partition)
        kinds = [records.get((*each, kind), 0) for kind in (MISSING_LEFT, MISSING_RIGHT, CHANGED)]
        numbers = (batches.get(each, 0), *kinds, markers.get(each, 0))
        found.append(PartitionDiff(topic, partition, ours.get(each), theirs.get(each), *numbers))
    return Diff(found, examples)
