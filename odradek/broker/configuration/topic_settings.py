"""The settings of topics, groups and client-metrics subscriptions. Each row of a table completely describes one
setting.

The broker settings `group.<type>.min.<rest>` and `….max.<rest>` limit the group setting `<type>.<rest>`. A value
outside the limits is refused when it is set. If a value was recorded before the limits were narrowed, it is kept, but
the nearest allowed value takes effect, as in Kafka 4.3 and later. Durations are in the ISO-8601 format that Java's
`Duration.parse` accepts: `PnDTnHnMn.nS`, in which each number may have a sign.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from odradek.broker.configuration.broker_settings import BROKER_SETTINGS, COMPRESSION_TYPES
from odradek.broker.configuration.settings import (
    GzipLevel,
    InvalidSetting,
    ListOf,
    OneOf,
    Range,
    Setting,
    SettingValue,
    ValueType,
    invalid_setting,
)
from odradek.broker.configuration.unused_settings import NO_EFFECT
from odradek.protocol.kafka_rules import NEWEST, KafkaRules

DURATION: Final = re.compile(
    r"(?P<sign>[-+]?)P(?=.)(?:(?P<days>[-+]?\d+)D)?"
    r"(?:T(?=.)(?:(?P<hours>[-+]?\d+)H)?(?:(?P<minutes>[-+]?\d+)M)?"
    r"(?:(?P<seconds>[-+]?\d+)(?:[.,](?P<fraction>\d{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
MAX_SECONDS: Final = (1 << 63) - 1
# Maximum number of characters in a text that is parsed. Longer texts cannot be valid durations, and Python refuses to
# parse very long numbers.
MAX_DURATION_LENGTH: Final = 1_000


def duration_ms(text: str) -> int | None:
    """Returns the duration in milliseconds, rounded down, or None if the text is not a duration or if its seconds do
    not fit in 64 bits."""
    found = DURATION.fullmatch(text)
    if found is None or len(text) > MAX_DURATION_LENGTH:
        return None
    days, hours, minutes, seconds = (int(found[name] or 0) for name in ("days", "hours", "minutes", "seconds"))
    nanos = int(((found["fraction"] or "") + "0" * 9)[:9])
    if (found["seconds"] or "").startswith("-"):
        nanos = -nanos
    total = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 10**9 + nanos
    if found["sign"] == "-":
        total = -total
    return total // 10**6 if abs(total) // 10**9 <= MAX_SECONDS else None


BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD = ValueType


class ThrottledReplicas(NamedTuple):
    """Allows `*`, or a list of `partition:broker` pairs."""

    def check(self, name: str, value: SettingValue) -> None:
        assert isinstance(value, tuple)
        if "".join(value) != "*" and not all(re.fullmatch(r"([0-9]+:[0-9]+)?", pair) for pair in value):
            form = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
            what = f"{name} must be the literal '*' or a list of replicas in the following format: {form}"
            raise invalid_setting(name, f"[{', '.join(value)}]", what)

    def describe(self) -> str:
        return "* or partition:broker pairs"


BY_DURATION: Final = "by_duration:"


class OffsetResetStrategy(NamedTuple):
    """Allows the positions at which a share group that has no state can start (KIP-932, KIP-1106)."""

    def check(self, name: str, value: SettingValue) -> None:
        assert isinstance(value, str)
        age_ms = duration_ms(value.removeprefix(BY_DURATION)) if value.startswith(BY_DURATION) else None
        if value not in ("earliest", "latest") and (age_ms is None or age_ms < 0):
            form = "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
            raise invalid_setting(name, value, f"Invalid value `{value}` for configuration {name}. {form}")

    def describe(self) -> str:
        return "earliest, latest or by_duration:PnDTnHnMn.nS"


DEAD_LETTER_TOPIC_NAME: Final = "errors.deadletterqueue.topic.name"
DEAD_LETTER_COPY_RECORD: Final = "errors.deadletterqueue.copy.record.enable"
STREAMS_ASSIGNOR: Final = "streams.assignor.name"
STREAMS_RACK_TAGS: Final = "streams.rack.aware.assignment.tags"
DECOMPRESSED_MESSAGE_BYTES: Final = "max.decompressed.message.bytes"
DEAD_LETTER_GROUP_ENABLE: Final = "errors.deadletterqueue.group.enable"


class DeadLetterTopicName(NamedTuple):
    """Allows names for a share group's dead-letter topic. They must not start with `__`, the prefix of internal topics.
    Whether the topic exists is not checked until a record has to be copied to it (KIP-1191)."""

    def check(self, name: str, value: SettingValue) -> None:
        assert isinstance(value, str)
        if value.startswith("__"):
            raise InvalidSetting(f"{name}: DLQ topic name must not start with '__'")

    def describe(self) -> str:
        return "a topic name that does not begin with __, or empty"


# fmt: off
TOPIC_SETTINGS: Mapping[str, Setting] = {setting.name: setting for setting in (
    Setting("cleanup.policy", LIST, "delete",
        "Policy for removing old records: delete by age and size, compact by key, both, or neither if empty.",
        ListOf(("compact", "delete")), synonyms=("log.cleanup.policy",)),
    Setting("compression.gzip.level", INT, "-1",
        "Compression level if compression.type is gzip.", GzipLevel(), synonyms=("compression.gzip.level",)),
    Setting("compression.lz4.level", INT, "9",
        "Compression level if compression.type is lz4.", Range(1, 17), synonyms=("compression.lz4.level",)),
    Setting("compression.type", STRING, "producer",
        "Codec of stored batches; producer keeps the codec of the producer.",
        OneOf(COMPRESSION_TYPES), synonyms=("compression.type",)),
    Setting("compression.zstd.level", INT, "3",
        "Compression level if compression.type is zstd.", Range(-131072, 22), synonyms=("compression.zstd.level",)),
    Setting("delete.retention.ms", LONG, "86400000",
        "Time for which compaction keeps tombstones.", Range(0), synonyms=("log.cleaner.delete.retention.ms",)),
    Setting(DEAD_LETTER_GROUP_ENABLE, BOOLEAN, "false",
        "Allows share groups to use the topic as their dead-letter queue."),
    Setting("file.delete.delay.ms", LONG, "60000",
        "Time for which the files of deleted segments stay on disk.",
        Range(0), synonyms=("log.segment.delete.delay.ms",)),
    Setting("flush.messages", LONG, "9223372036854775807",
        "Number of records after which the log is synced to disk before the acknowledgement; 1 means every record.",
        Range(1), synonyms=("log.flush.interval.messages",)),
    Setting("flush.ms", LONG, "9223372036854775807",
        "Maximum time until appended records are synced to disk.",
        Range(0), synonyms=("log.flush.interval.ms", "log.flush.scheduler.interval.ms")),
    Setting("follower.replication.throttled.replicas", LIST, "", NO_EFFECT, ThrottledReplicas()),
    Setting("index.interval.bytes", INT, "4096",
        "Bytes of the log between two entries of its index.", Range(0), synonyms=("log.index.interval.bytes",)),
    Setting("internal.segment.bytes", INT, None,
        "Segment size for tests: it replaces segment.bytes, and may be below its minimum.", is_internal=True),
    Setting("leader.replication.throttled.replicas", LIST, "", NO_EFFECT, ThrottledReplicas()),
    Setting("local.retention.bytes", LONG, "-2",
        NO_EFFECT, Range(-2), synonyms=("log.local.retention.bytes",)),
    Setting("local.retention.ms", LONG, "-2",
        NO_EFFECT, Range(-2), synonyms=("log.local.retention.ms",)),
    Setting("max.compaction.lag.ms", LONG, "9223372036854775807",
        "Maximum age of a record before it is compacted.", Range(1), synonyms=("log.cleaner.max.compaction.lag.ms",)),
    Setting(DECOMPRESSED_MESSAGE_BYTES, INT, "2147483639",
        "Maximum size of one record of a compressed batch after decompression.",
        Range(1, 2147483639), synonyms=(DECOMPRESSED_MESSAGE_BYTES,)),
    Setting("max.message.bytes", INT, "1048588",
        "Maximum size of a batch after compression.", Range(0), synonyms=("message.max.bytes",)),
    Setting("message.timestamp.after.max.ms", LONG, "3600000",
        "Maximum time by which a record's timestamp may be ahead of the broker's clock.",
        Range(0), synonyms=("log.message.timestamp.after.max.ms",)),
    Setting("message.timestamp.before.max.ms", LONG, "9223372036854775807",
        "Maximum time by which a record's timestamp may be behind the broker's clock.",
        Range(0), synonyms=("log.message.timestamp.before.max.ms",)),
    Setting("message.timestamp.type", STRING, "CreateTime",
        "Timestamp of records: CreateTime is the producer's, LogAppendTime the broker's.",
        OneOf(("CreateTime", "LogAppendTime")), synonyms=("log.message.timestamp.type",)),
    Setting("min.cleanable.dirty.ratio", DOUBLE, "0.5",
        "Fraction of the log that must be uncompacted before the log is compacted.",
        Range(0, 1), synonyms=("log.cleaner.min.cleanable.ratio",)),
    Setting("min.compaction.lag.ms", LONG, "0",
        "Minimum age of a record before it is compacted.", Range(0), synonyms=("log.cleaner.min.compaction.lag.ms",)),
    Setting("min.insync.replicas", INT, "1",
        "Number of replicas that must have a batch before it is acknowledged with acks=all; a single node has one"
        " replica.",
        Range(1), synonyms=("min.insync.replicas",)),
    Setting("preallocate", BOOLEAN, "false",
        "Allocates the full size of a segment on disk when the segment is created.", synonyms=("log.preallocate",)),
    Setting("remote.copy.lag.bytes", LONG, "-1",
        NO_EFFECT, Range(-1), synonyms=("log.remote.copy.lag.bytes",)),
    Setting("remote.copy.lag.ms", LONG, "0", NO_EFFECT, Range(-1), synonyms=("log.remote.copy.lag.ms",)),
    Setting("remote.log.copy.disable", BOOLEAN, "false", NO_EFFECT),
    Setting("remote.log.delete.on.disable", BOOLEAN, "false", NO_EFFECT),
    Setting("remote.storage.enable", BOOLEAN, "false",
        "Tiered storage, which this broker does not support."),
    Setting("retention.bytes", LONG, "-1",
        "Size of a partition above which its oldest segments are deleted; -1 means no limit.",
        synonyms=("log.retention.bytes",)),
    Setting("retention.ms", LONG, "604800000",
        "Age of the newest record of a segment after which the segment is deleted; -1 means no limit.",
        Range(-1), synonyms=("log.retention.ms", "log.retention.minutes", "log.retention.hours")),
    Setting("segment.bytes", INT, "1073741824",
        "Maximum size of a segment.", Range(1048576), synonyms=("log.segment.bytes",)),
    Setting("segment.index.bytes", INT, "10485760",
        "Maximum size of a segment's index.", Range(4), synonyms=("log.index.size.max.bytes",)),
    Setting("segment.jitter.ms", LONG, "0",
        "Maximum random reduction of segment.ms.", Range(0), synonyms=("log.roll.jitter.ms", "log.roll.jitter.hours")),
    Setting("segment.ms", LONG, "604800000",
        "Maximum age of a segment's first record before a new segment begins.",
        Range(1), synonyms=("log.roll.ms", "log.roll.hours")),
    Setting("unclean.leader.election.enable", BOOLEAN, "false",
        "Allows replicas that are not in sync to become leaders; stored, but not used on a single node.",
        synonyms=("unclean.leader.election.enable",)),
)}

GROUP_SETTINGS: Mapping[str, Setting] = {setting.name: setting for setting in (
    Setting("consumer.assignment.interval.ms", INT, "1000",
        "Minimum time between two assignments of a consumer group.", Range(0)),
    Setting("consumer.assignor.offload.enable", BOOLEAN, "true", NO_EFFECT, is_internal=True),
    Setting("consumer.heartbeat.interval.ms", INT, "5000", "Heartbeat interval of the group's members.", Range(1)),
    Setting("consumer.session.timeout.ms", INT, "45000", "Session timeout of the group's members.", Range(1)),
    Setting(DEAD_LETTER_COPY_RECORD, BOOLEAN, "false",
        "Copies the keys and values of a share group's rejected records into its dead-letter queue. If this is"
        " off, the copies have only headers that identify the original records."),
    Setting(DEAD_LETTER_TOPIC_NAME, STRING, "",
        "Topic for copies of records that the share group has rejected, or that were delivered too often; empty for "
        "none.", DeadLetterTopicName()),
    Setting("share.assignment.interval.ms", INT, "1000",
        "Minimum time between two assignments of a share group.", Range(0)),
    Setting("share.assignor.offload.enable", BOOLEAN, "true", NO_EFFECT, is_internal=True),
    Setting("share.auto.offset.reset", STRING, "latest",
        "Start position in partitions for which the share group has no state: earliest, latest or "
        "by_duration:<ISO-8601 duration>.", OffsetResetStrategy()),
    Setting("share.delivery.count.limit", INT, "5",
        "Maximum number of times that a record is delivered to the share group.", Range(2)),
    Setting("share.heartbeat.interval.ms", INT, "5000", "Heartbeat interval of the share group's members.", Range(1)),
    Setting("share.isolation.level", STRING, "read_uncommitted",
        "Isolation level of the share group.", OneOf(("read_committed", "read_uncommitted"))),
    Setting("share.partition.max.record.locks", INT, "2000",
        "Maximum number of records in flight of one share partition.", Range(100)),
    Setting("share.record.lock.duration.ms", INT, "30000",
        "Time for which a record is locked for the consumer that acquired it.", Range(1000)),
    Setting("share.renew.acknowledge.enable", BOOLEAN, "true",
        "Allows consumers to renew the lock of a record."),
    Setting("share.session.timeout.ms", INT, "45000", "Session timeout of the share group's members.", Range(1)),
    Setting("streams.acceptable.recovery.lag", LONG, "10000",
        "Lag up to which a task counts as restored; members of a streams group receive this value.",
        Range(0), is_internal=True),
    Setting("streams.assignment.interval.ms", INT, "1000",
        "Minimum time between two assignments of a streams group.", Range(0)),
    Setting(STREAMS_ASSIGNOR, STRING, None,
        "Assignor of a streams group's tasks.", synonyms=("group.streams.assignors",)),
    Setting("streams.assignor.offload.enable", BOOLEAN, "true", NO_EFFECT, is_internal=True),
    Setting("streams.heartbeat.interval.ms", INT, "5000",
        "Heartbeat interval of a streams group's members.", Range(1)),
    Setting("streams.initial.rebalance.delay.ms", INT, "3000",
        "Time for which a new streams group waits for more members before its first assignment.", Range(0)),
    Setting("streams.num.standby.replicas", INT, "0",
        "Number of standby replicas of each task.", Range(0)),
    Setting("streams.num.warmup.replicas", INT, "2", NO_EFFECT, Range(0), is_internal=True),
    Setting(STREAMS_RACK_TAGS, LIST, "",
        "Client tags that members of a streams group must have; they do not change the assignment.", ListOf()),
    Setting("streams.session.timeout.ms", INT, "45000",
        "Session timeout of a streams group's members.", Range(1)),
    Setting("streams.task.offset.interval.ms", INT, "60000",
        "Interval at which members of a streams group report the offsets of their tasks.", Range(1), is_internal=True),
)}

CLIENT_METRICS_SETTINGS: Mapping[str, Setting] = {setting.name: setting for setting in (
    Setting("interval.ms", INT, "300000", "Interval at which matching clients push their metrics."),
    Setting("match", LIST, "",
        "Clients of the subscription: comma-separated name=expression pairs, all of which must match.", ListOf()),
    Setting("metrics", LIST, "", "Prefixes of the subscribed metrics; an empty prefix selects every metric.", ListOf()),
)}
# fmt: on


NEW_IN_4_4: Final = frozenset(
    {
        "errors.deadletterqueue.auto.create.topics.enable",
        "errors.deadletterqueue.topic.name.prefix",
        "group.consumer.assignor.offload.enable",
        "group.share.assignor.offload.enable",
        "group.share.dlq.manager.class.name",
        "group.streams.acceptable.recovery.lag",
        "group.streams.assignor.offload.enable",
        "group.streams.assignors",
        "group.streams.max.warmup.replicas",
        "group.streams.min.task.offset.interval.ms",
        "group.streams.num.warmup.replicas",
        "group.streams.rack.aware.assignment.tags",
        "group.streams.task.offset.interval.ms",
        "group.streams.topology.description.plugin.class",
        "log.remote.copy.lag.bytes",
        "log.remote.copy.lag.ms",
        "sasl.oauthbearer.allow.unverified.audience",
        "sasl.oauthbearer.allow.unverified.issuer",
        "remote.copy.lag.bytes",
        "remote.copy.lag.ms",
        "consumer.assignor.offload.enable",
        "share.assignor.offload.enable",
        "streams.acceptable.recovery.lag",
        STREAMS_ASSIGNOR,
        "streams.assignor.offload.enable",
        "streams.num.warmup.replicas",
        STREAMS_RACK_TAGS,
        "streams.task.offset.interval.ms",
        DECOMPRESSED_MESSAGE_BYTES,
        DEAD_LETTER_TOPIC_NAME,
        DEAD_LETTER_COPY_RECORD,
        DEAD_LETTER_GROUP_ENABLE,
    }
)


def is_known(name: str, settings: Mapping[str, Setting], rules: KafkaRules) -> bool:
    """Returns whether the table contains this setting and the emulated release of Kafka has it."""
    return name in settings and (rules >= KafkaRules.KAFKA_4_4 or name not in NEW_IN_4_4)


def validate_topic_settings(overrides: Mapping[str, str], rules: KafkaRules = NEWEST) -> None:
    """Checks a topic's settings. Raises InvalidSetting with Kafka's message for the first invalid setting. As in Kafka,
    unknown names are reported before invalid values."""
    for name in overrides:
        if not is_known(name, TOPIC_SETTINGS, rules):
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


def broker_setting_of(setting: Setting) -> str:
    """Returns the name of the broker setting that would hold the default of this group setting, whether or not this
    broker setting exists."""
    return setting.synonyms[0] if setting.synonyms else f"group.{setting.name}"


BrokerSetting = Callable[[str], str | None]  # returns a broker setting's current value as text


def limit_name(name: str, bound: str) -> str | None:
    """Returns the name of the broker setting that limits a group setting, or None if there is no limit. `bound` is
    "min" or "max"."""
    kind, _, rest = name.partition(".")
    found = f"group.{kind}.{bound}.{rest.removeprefix('num.')}"
    return found if found in BROKER_SETTINGS else None


def limit(name: str, broker_setting: BrokerSetting) -> int:
    """Returns a limit's value. `name` is a name returned by `limit_name`."""
    value = BROKER_SETTINGS[name].parse(broker_setting(name))
    assert isinstance(value, int)
    return value


def clamp(name: str, value: int, broker_setting: BrokerSetting) -> int:
    """Returns the allowed value nearest to `value`."""
    least, most = limit_name(name, "min"), limit_name(name, "max")
    if least is not None:
        value = max(value, limit(least, broker_setting))
    if most is not None:
        value = min(value, limit(most, broker_setting))
    return value
