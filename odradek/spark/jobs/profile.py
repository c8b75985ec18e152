"""Implements `odradek spark profile`, which measures a topic's sizes, keys, skew, compression and latency.

All records are read once, and their keys are read a second time. If the topic is in a directory, its batch headers and
transaction markers are read too.
"""

from __future__ import annotations

from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from odradek.spark.jobs.inputs import Input, one_topic
from odradek.spark.jobs.profile_facts import STEPS, Distribution, KeyFacts, LogFacts, PartitionFacts, Profile, TimeFacts
from odradek.spark.jobs.shown import shown

TOP_KEYS = 12
TIMES = 72  # maximum number of steps in a chart over time
_ROUND_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000)
_MINUTES = (600_000, 900_000, 1_800_000, 3_600_000, 7_200_000, 10_800_000, 21_600_000, 43_200_000, 86_400_000)
_RECORD = "key binary, value binary, partition int, timestamp timestamp"
_BATCH = (
    "partition int, records int, sizeInBytes int, producerId bigint, isControl boolean, compression string,"
    " baseTimestamp timestamp, maxTimestamp timestamp"
)
_TRANSACTION = "state string, firstTimestamp timestamp, endTimestamp timestamp"


def profile(spark: SparkSession, source: Input) -> Profile:
    """Measures one topic. Raises InputError if the input does not have exactly one topic."""
    source = one_topic(source)
    found = Profile(str(source), source.topics[0])
    measure_records(found, source.frame(spark, _RECORD))
    found.top_keys = top_keys(source.frame(spark, "key binary"))
    if source.is_directory:
        measure_log(
            found,
            source.with_options(view="batches").frame(spark, _BATCH),
            source.with_options(view="transactions").frame(spark, _TRANSACTION),
        )
    return found


def measure_records(found: Profile, records: DataFrame) -> None:
    """Measures records with the columns `key`, `value`, `partition` and `timestamp`, and stores the results in the
    profile `found`."""
    key, value = F.coalesce(F.octet_length("key"), F.lit(0)), F.coalesce(F.octet_length("value"), F.lit(0))
    measured = records.select(
        "partition", key.alias("k"), value.alias("v"), "key", "value", F.unix_millis("timestamp").alias("ms")
    )
    grouped = (
        measured.groupBy("partition", _bucket(F.col("k") + F.col("v")).alias("bucket"))
        .agg(
            F.count("*").alias("records"),
            F.sum(F.col("k").cast("long")).alias("key_bytes"),
            F.sum(F.col("v").cast("long")).alias("value_bytes"),
            F.sum(F.col("key").isNull().cast("long")).alias("null_keys"),
            F.sum(F.col("value").isNull().cast("long")).alias("null_values"),
            F.min("ms").alias("first_ms"),
            F.max("ms").alias("last_ms"),
            F.hll_sketch_agg("key").alias("keys"),
        )
        .persist(StorageLevel.DISK_ONLY)
    )
    try:
        rows = grouped.drop("keys").collect()
        found.distinct_keys = grouped.agg(F.hll_sketch_estimate(F.hll_union_agg("keys"))).collect()[0][0] or 0
    finally:
        grouped.unpersist()
    for name in ("records", "key_bytes", "value_bytes", "null_keys", "null_values"):
        setattr(found, name, sum(row[name] for row in rows))
    found.first_ms = min((row["first_ms"] for row in rows), default=None)
    found.last_ms = max((row["last_ms"] for row in rows), default=None)
    found.record_bytes = _distribution(rows, "records")
    partitions: dict[int, PartitionFacts] = {}
    for row in rows:
        so_far = partitions.get(row["partition"], PartitionFacts(row["partition"], 0, 0))
        partitions[row["partition"]] = so_far._replace(
            records=so_far.records + row["records"],
            payload_bytes=so_far.payload_bytes + row["key_bytes"] + row["value_bytes"],
        )
    found.partitions = [partitions[number] for number in sorted(partitions)]


def top_keys(keys: DataFrame, most: int = TOP_KEYS) -> list[KeyFacts]:
    """Returns the keys with the most records."""
    counted = keys.groupBy("key").count().orderBy(F.desc("count"), "key").limit(most)
    return [KeyFacts(shown(row["key"]), row["count"]) for row in counted.collect()]


def measure_log(found: Profile, batches: DataFrame, transactions: DataFrame) -> None:
    """Measures the log through its views `batches` and `transactions` and stores the results in `found`."""
    data = batches.where("not isControl").persist(StorageLevel.DISK_ONLY)
    try:
        of_partitions = {
            row["partition"]: row
            for row in batches.groupBy("partition")
            .agg(F.count("*").alias("batches"), F.sum("sizeInBytes").alias("bytes"))
            .collect()
        }
        log = LogFacts(
            batches=sum(row["batches"] for row in of_partitions.values()),
            size_bytes=sum(row["bytes"] for row in of_partitions.values()),
            producers=data.agg(F.countDistinct("producerId")).collect()[0][0],
            codecs={
                row["compression"]: row["bytes"]
                for row in data.groupBy("compression").agg(F.sum("sizeInBytes").alias("bytes")).collect()
                if row["compression"] is not None
            },
            batch_records=_measured(data, F.col("records")),
            batch_bytes=_measured(data, F.col("sizeInBytes")),
            span=_measured(data, _ms("maxTimestamp") - _ms("baseTimestamp")),
        )
        if found.first_ms is not None and found.last_ms is not None:
            step_ms = step_of(found.last_ms - found.first_ms)
            start = F.floor(_ms("baseTimestamp") / step_ms) * step_ms
            over_time = data.groupBy(start.alias("start")).agg(
                F.sum("records").alias("records"), F.sum("sizeInBytes").alias("bytes")
            )
            found.over_time = [TimeFacts(*row) for row in over_time.orderBy("start").collect() if row[0] is not None]
    finally:
        data.unpersist()
    states = {row[0]: row[1] for row in transactions.groupBy("state").count().collect()}
    log.committed, log.aborted, log.still_open = (states.get(each, 0) for each in ("committed", "aborted", "open"))
    if log.committed:
        ended = transactions.where("state = 'committed'")
        log.open_for = _measured(ended, _ms("endTimestamp") - _ms("firstTimestamp"))
    found.log = log
    found.partitions = [
        each._replace(log_bytes=row["bytes"], batches=row["batches"])
        if (row := of_partitions.get(each.partition)) is not None
        else each
        for each in found.partitions
    ]


def step_of(duration_ms: int) -> int:
    """Returns a round number of milliseconds that divides this duration into at most TIMES steps."""
    return next((each for each in (*_ROUND_MS, *_MINUTES) if duration_ms / each <= TIMES), 7 * _MINUTES[-1])


def _measured(frame: DataFrame, value: Column) -> Distribution:
    return _distribution(frame.groupBy(_bucket(value).alias("bucket")).agg(F.count("*").alias("n")).collect(), "n")


def _distribution(rows: list[Any], counted: str) -> Distribution:
    counts: dict[int, int] = {}
    for row in rows:
        if row["bucket"] is not None:
            counts[row["bucket"]] = counts.get(row["bucket"], 0) + row[counted]
    return Distribution(counts)


def _bucket(value: Column) -> Column:
    """Returns an SQL expression equivalent to `profile_facts.bucket_of`. It is null if the value is null."""
    return F.when(value < 1, F.lit(-1)).otherwise(F.floor(F.log2(value) * STEPS).cast("int"))


def _ms(name: str) -> Column:
    return F.unix_millis(name)
