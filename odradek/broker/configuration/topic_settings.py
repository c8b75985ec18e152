"""The settings of topics, groups and client-metrics subscriptions, and where the defaults of topics come from."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek.broker.configuration.durations import duration_ms
from odradek.broker.configuration.settings import (
    GzipLevel,
    InvalidSetting,
    Kind,
    ListOf,
    OneOf,
    Range,
    Setting,
    SettingValue,
    refused,
)
from odradek.broker.configuration.settings_table import COMPRESSION_TYPES

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = Kind.BOOLEAN, Kind.STRING, Kind.INT, Kind.LONG, Kind.DOUBLE, Kind.LIST


class ThrottledReplicas(NamedTuple):
    """`*`, or pairs of partition and broker."""

    def check(self, name: str, value: SettingValue) -> None:
        assert isinstance(value, tuple)
        if "".join(value) != "*" and not all(re.fullmatch(r"([0-9]+:[0-9]+)?", pair) for pair in value):
            form = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
            what = f"{name} must be the literal '*' or a list of replicas in the following format: {form}"
            raise refused(name, f"[{', '.join(value)}]", what)

    def describe(self) -> str:
        return "* or partition:broker pairs"


BY_DURATION: Final = "by_duration:"


class OffsetResetStrategy(NamedTuple):
    """Where a share group without state begins (KIP-932, KIP-1106)."""

    def check(self, name: str, value: SettingValue) -> None:
        assert isinstance(value, str)
        age_ms = duration_ms(value.removeprefix(BY_DURATION)) if value.startswith(BY_DURATION) else None
        if value not in ("earliest", "latest") and (age_ms is None or age_ms < 0):
            form = "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
            raise refused(name, value, f"Invalid value `{value}` for configuration {name}. {form}")

    def describe(self) -> str:
        return "earliest, latest or by_duration:PnDTnHnMn.nS"


# fmt: off
TOPIC_SETTINGS: Mapping[str, Setting] = {setting.name: setting for setting in (
    Setting("cleanup.policy", LIST, "delete", ListOf(("compact", "delete"))),
    Setting("compression.gzip.level", INT, "-1", GzipLevel()),
    Setting("compression.lz4.level", INT, "9", Range(1, 17)),
    Setting("compression.type", STRING, "producer", OneOf(COMPRESSION_TYPES)),
    Setting("compression.zstd.level", INT, "3", Range(-131072, 22)),
    Setting("delete.retention.ms", LONG, "86400000", Range(0)),
    Setting("file.delete.delay.ms", LONG, "60000", Range(0)),
    Setting("flush.messages", LONG, "9223372036854775807", Range(1)),
    Setting("flush.ms", LONG, "9223372036854775807", Range(0)),
    Setting("follower.replication.throttled.replicas", LIST, "", ThrottledReplicas()),
    Setting("index.interval.bytes", INT, "4096", Range(0)),
    Setting("internal.segment.bytes", INT, None, is_internal=True),
    Setting("leader.replication.throttled.replicas", LIST, "", ThrottledReplicas()),
    Setting("local.retention.bytes", LONG, "-2", Range(-2)),
    Setting("local.retention.ms", LONG, "-2", Range(-2)),
    Setting("max.compaction.lag.ms", LONG, "9223372036854775807", Range(1)),
    Setting("max.message.bytes", INT, "1048588", Range(0)),
    Setting("message.timestamp.after.max.ms", LONG, "3600000", Range(0)),
    Setting("message.timestamp.before.max.ms", LONG, "9223372036854775807", Range(0)),
    Setting("message.timestamp.type", STRING, "CreateTime", OneOf(("CreateTime", "LogAppendTime"))),
    Setting("min.cleanable.dirty.ratio", DOUBLE, "0.5", Range(0, 1)),
    Setting("min.compaction.lag.ms", LONG, "0", Range(0)),
    Setting("min.insync.replicas", INT, "1", Range(1)),
    Setting("preallocate", BOOLEAN, "false"),
    Setting("remote.log.copy.disable", BOOLEAN, "false"),
    Setting("remote.log.delete.on.disable", BOOLEAN, "false"),
    Setting("remote.storage.enable", BOOLEAN, "false"),
    Setting("retention.bytes", LONG, "-1"),
    Setting("retention.ms", LONG, "604800000", Range(-1)),
    Setting("segment.bytes", INT, "1073741824", Range(1048576)),
    Setting("segment.index.bytes", INT, "10485760", Range(4)),
    Setting("segment.jitter.ms", LONG, "0", Range(0)),
    Setting("segment.ms", LONG, "604800000", Range(1)),
    Setting("unclean.leader.election.enable", BOOLEAN, "false"),
)}

GROUP_SETTINGS: Mapping[str, Setting] = {setting.name: setting for setting in (
    Setting("consumer.assignment.interval.ms", INT, "1000", Range(0)),
    Setting("consumer.heartbeat.interval.ms", INT, "5000", Range(1)),
    Setting("consumer.session.timeout.ms", INT, "45000", Range(1)),
    Setting("share.assignment.interval.ms", INT, "1000", Range(0)),
    Setting("share.auto.offset.reset", STRING, "latest", OffsetResetStrategy()),
    Setting("share.delivery.count.limit", INT, "5", Range(2)),
    Setting("share.heartbeat.interval.ms", INT, "5000", Range(1)),
    Setting("share.isolation.level", STRING, "read_uncommitted", OneOf(("read_committed", "read_uncommitted"))),
    Setting("share.partition.max.record.locks", INT, "2000", Range(100)),
    Setting("share.record.lock.duration.ms", INT, "30000", Range(1000)),
    Setting("share.renew.acknowledge.enable", BOOLEAN, "true"),
    Setting("share.session.timeout.ms", INT, "45000", Range(1)),
    Setting("streams.assignment.interval.ms", INT, "1000", Range(0)),
    Setting("streams.heartbeat.interval.ms", INT, "5000", Range(1)),
    Setting("streams.initial.rebalance.delay.ms", INT, "3000", Range(0)),
    Setting("streams.num.standby.replicas", INT, "0", Range(0)),
    Setting("streams.session.timeout.ms", INT, "45000", Range(1)),
)}

CLIENT_METRICS_SETTINGS: Mapping[str, Setting] = {setting.name: setting for setting in (
    Setting("interval.ms", INT, "300000"),
    Setting("match", LIST, "", ListOf()),
    Setting("metrics", LIST, "", ListOf()),
)}
# fmt: on

MINUTE_MS, HOUR_MS = 60_000, 3_600_000

# A topic without a value of its own takes the first of these broker settings that has one, times the factor.
TOPIC_SYNONYMS: Mapping[str, tuple[tuple[str, int], ...]] = {
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "max.message.bytes": (("message.max.bytes", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "preallocate": (("log.preallocate", 1),),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (("log.retention.ms", 1), ("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS)),
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS)),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", HOUR_MS)),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
}


def validate_topic_settings(overrides: Mapping[str, str]) -> None:
    """Refuse, in Kafka's words, what a topic cannot have. Raises InvalidSetting; the first by Kafka's order.

    Unknown names go before bad values.
    """
    for name in overrides:
        if name not in TOPIC_SETTINGS:
            raise InvalidSetting(f"Unknown topic config name: {name}")
    values = {name: TOPIC_SETTINGS[name].parse(text) for name, text in sorted(overrides.items())}
    least, most = values.get("min.compaction.lag.ms", 0), values.get("max.compaction.lag.ms", (1 << 63) - 1)
    assert isinstance(least, int)
    assert isinstance(most, int)
    if least > most:
        what = f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})"
        raise InvalidSetting(what)
    if values.get("remote.storage.enable"):
        what = "Tiered Storage functionality is disabled in the broker."
        raise InvalidSetting(f"{what} Topic cannot be configured with remote log storage.")
