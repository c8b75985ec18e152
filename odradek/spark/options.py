"""Parses the options of `format("odradek")`. They have the same names, JSON and defaults as those of Spark's Kafka
source (docs/spec/spark.md#s8).

An option that the client does not support or that has no meaning here is not ignored: an error names it.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from enum import Enum
from typing import Any

from odradek.client.common.values import TopicPartition
from odradek.client.security.properties import is_of_security, security_settings
from odradek.client.security.settings import PROTOCOLS, Security
from odradek.spark.brokers import Brokers
from odradek.spark.names import DEFAULT_PREFIX

EARLIEST, LATEST = -2, -1  # used in place of an offset
PATH = "path"
POLL_TIMEOUT_MS = 120_000
STRATEGY = "startingOffsetsByTimestampStrategy"
_BOUNDS = {"earliest": EARLIEST, "latest": LATEST}

# The client's setting for each of Kafka's settings, and the function that parses the value.
_PRODUCER = {
    "kafka.compression.type": ("compression_type", str),
    "kafka.batch.size": ("batch_size", int),
    "kafka.linger.ms": ("linger_ms", float),
    "kafka.delivery.timeout.ms": ("delivery_timeout_ms", float),
    "kafka.max.request.size": ("max_request_size", int),
    "kafka.buffer.memory": ("buffer_memory", int),
    "kafka.max.block.ms": ("max_block_ms", float),
}
_CONSUMER = {
    "kafka.fetch.max.bytes": ("fetch_max_bytes", int),
    "kafka.max.partition.fetch.bytes": ("max_partition_fetch_bytes", int),
    "kafka.fetch.max.wait.ms": ("fetch_max_wait_ms", int),
    "kafka.check.crcs": ("check_crcs", lambda text: flag("kafka.check.crcs", text)),
}
_BOTH = {
    "kafka.client.id": ("client_id", str),
    "kafka.request.timeout.ms": ("request_timeout_ms", float),
    "kafka.retry.backoff.ms": ("retry_backoff_ms", float),
    "kafka.retry.backoff.max.ms": ("retry_backoff_max_ms", float),
    "kafka.metadata.max.age.ms": ("metadata_max_age_ms", float),
}
_OWN = ("kafka.bootstrap.servers", "kafka.isolation.level")

# Options of the source and the sink. Each of them accepts the other's options too, so that a program can pass the same
# options to both.
_ENDING = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_OF_STREAMS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_SOURCE = (
    *("subscribe", "subscribePattern", "assign"),
    *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", STRATEGY),
    *_ENDING,
    *_OF_STREAMS,
    *("minPartitions", "maxRecordsPerPartition", "failOnDataLoss", "includeHeaders", "kafkaConsumer.pollTimeoutMs"),
)
_SINK = ("topic", "transactionalIdPrefix", "delivery", "idempotencyKey", "idempotencyKeyRetention")
_OF_SPARK = ("checkpointLocation", "queryName", PATH)
_MEANINGLESS = {
    "groupIdPrefix": "the source does not join a consumer group",
    "fetchOffset.numRetries": "offsets are requested until kafka.request.timeout.ms has passed",
    "fetchOffset.retryIntervalMs": "the time between two attempts is set by kafka.retry.backoff.ms",
    **{
        f"{part}Format": "a source written in Python cannot use from_avro. To decode the column, call"
        f" odradek.spark.avro.decode_avro(frame, '{part}', SUBJECT) with the DataFrame"
        for part in ("value", "key")
    },
}

# Spark's default for maxTriggerDelay, and the default time for which the ledger keeps a batch write's key.
MAX_TRIGGER_DELAY = "15m"
KEY_RETENTION = "30d"
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "": 1}
_DURATION = re.compile(r"\s*(\d+)\s*([a-z]*)\s*", re.IGNORECASE)

_log = logging.getLogger(__name__)


class OptionError(ValueError):
    """An option is missing, unknown or invalid, or has no meaning here."""


class DeliveryMode(Enum):
    EXACTLY_ONCE = "exactlyOnce"
    AT_LEAST_ONCE = "atLeastOnce"


@dataclass(frozen=True, slots=True)
class Bound:
    """The point where reading starts or ends.

    everywhere     an offset, EARLIEST or LATEST, for the partitions that `offsets` does not name
    offsets        an offset, EARLIEST or LATEST, for single partitions
    timestamp_ms   instead of an offset: the first record of each partition with at least this timestamp
    timestamps_ms  like `timestamp_ms`, but with a timestamp for each partition
    needs_record   True if a timestamp after the last record is an error; False if it means the end
    """

    everywhere: int
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    timestamp_ms: int | None = None
    timestamps_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    needs_record: bool = False

    def named(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Returns the partitions that the bound names, or all `partitions` if it does not name any."""
        return {*self.offsets, *self.timestamps_ms} or set(partitions)

    @property
    def is_latest(self) -> bool:
        """True if any partition's bound is its end, rather than an offset or a timestamp."""
        by_time = self.timestamp_ms is not None or bool(self.timestamps_ms)
        return not by_time and (self.everywhere == LATEST or LATEST in self.offsets.values())


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """The topics to read, the partitions to read, or the pattern of the topics to read. Exactly one of these is set."""

    topics: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    pattern: str | None = None

    @classmethod
    def read(cls, given: Mapping[str, str]) -> TopicChoice | None:
        """Parses the options that choose topics. Returns None if none of these options is set. Raises OptionError."""
        chosen = [name for name in ("subscribe", "assign", "subscribepattern") if given.get(name)]
        if len(chosen) > 1:
            raise OptionError("only one of the options subscribe, subscribePattern and assign can be set")
        match chosen:
            case ["subscribe"]:
                return cls(topics=tuple(each.strip() for each in given["subscribe"].split(",") if each.strip()))
            case ["assign"]:
                return cls(partitions=_assigned(given["assign"]))
            case ["subscribepattern"]:
                return cls(pattern=given["subscribepattern"])
        return None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """A source's options. Exactly one of `topics`, `partitions` and `pattern` is set."""

    brokers: Brokers
    topics: tuple[str, ...]
    partitions: tuple[TopicPartition, ...]
    pattern: str | None
    isolation_level: str
    starting: Bound
    ending: Bound
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int | None
    max_records_per_partition: int | None
    fail_on_data_loss: bool
    include_headers: bool
    poll_timeout_ms: int
    consumer: Mapping[str, Any]

    @classmethod
    def read(cls, options: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
        """Parses options, whose names are case-insensitive. Raises OptionError."""
        given = {name.lower(): value for name, value in options.items()}
        for name in _of(_ENDING if is_stream else _OF_STREAMS, given):
            if is_stream:
                raise OptionError(f"the option {name} cannot be used with a stream, which has no end")
            _log.warning("the option %s has no effect on a batch, and is ignored", name)
        chosen = TopicChoice.read(given)
        if chosen is None:
            raise OptionError("one of the options subscribe, subscribePattern and assign must be set")
        starting, ending = bounds(given, is_stream=is_stream)
        most, least = number(given, "maxOffsetsPerTrigger"), number(given, "minOffsetsPerTrigger")
        if most is not None and least is not None and least > most:
            raise OptionError(f"minOffsetsPerTrigger ({least}) is above maxOffsetsPerTrigger ({most})")
        return cls(
            brokers=_brokers(given),
            topics=chosen.topics,
            partitions=chosen.partitions,
            pattern=chosen.pattern,
            isolation_level=isolation_level(given),
            starting=starting,
            ending=ending,
            max_offsets_per_trigger=most,
            min_offsets_per_trigger=least,
            max_trigger_delay_ms=duration_ms(given, "maxTriggerDelay", MAX_TRIGGER_DELAY),
            min_partitions=number(given, "minPartitions"),
            max_records_per_partition=number(given, "maxRecordsPerPartition"),
            fail_on_data_loss=flag("failOnDataLoss", given.get("failondataloss", "true")),
            include_headers=flag("includeHeaders", given.get("includeheaders", "false")),
            poll_timeout_ms=number(given, "kafkaConsumer.pollTimeoutMs") or POLL_TIMEOUT_MS,
            consumer=_settings(given, _CONSUMER | _BOTH, _PRODUCER),
        )


@dataclass(frozen=True, slots=True)
class SinkOptions:
    brokers: Brokers
    topic: str | None
    prefix: str
    delivery: DeliveryMode
    idempotency_key: str | None
    key_retention_ms: int
    producer: Mapping[str, Any]

    @classmethod
    def read(cls, options: Mapping[str, str], *, is_stream: bool) -> SinkOptions:
        """Parses options, whose names are case-insensitive. Raises OptionError."""
        given = {name.lower(): value for name, value in options.items()}
        for name in _of(("idempotencyKey", "idempotencyKeyRetention"), given):
            if is_stream:
                raise OptionError(
                    f"the option {name} cannot be used with a stream, whose batches are identified by numbers"
                )
        try:
            delivery = DeliveryMode(given.get("delivery", DeliveryMode.EXACTLY_ONCE.value))
        except ValueError:
            raise OptionError(f"delivery must be exactlyOnce or atLeastOnce, not {given['delivery']!r}") from None
        if delivery is DeliveryMode.AT_LEAST_ONCE and "idempotencykey" in given:
            raise OptionError("the option idempotencyKey needs delivery=exactlyOnce")
        return cls(
            brokers=_brokers(given),
            topic=given.get("topic"),
            prefix=given.get("transactionalidprefix", DEFAULT_PREFIX),
            delivery=delivery,
            idempotency_key=given.get("idempotencykey"),
            key_retention_ms=duration_ms(given, "idempotencyKeyRetention", KEY_RETENTION),
            producer=_settings(given, _PRODUCER | _BOTH, _CONSUMER),
        )


def is_of_files(options: Mapping[str, str]) -> bool:
    return any(name.lower() == PATH and value for name, value in options.items())


def require_known(options: Mapping[str, str], known: Iterable[str] = (*_SOURCE, *_SINK)) -> None:
    """Raises OptionError for an option that is neither in `known` nor an option of Spark. Names are case-insensitive.
    Options whose names begin with `kafka.` are checked elsewhere."""
    names = {name.lower(): name for name in (*known, *_OF_SPARK)}
    for name, reason in _MEANINGLESS.items():
        if _of((name,), options):
            raise OptionError(f"the option {name} is not supported here: {reason}")
    for name in options:
        if name.lower() not in names and not name.lower().startswith("kafka."):
            close = get_close_matches(name.lower(), names, 1)
            hint = f"; did you mean {names[close[0]]}?" if close else ""
            raise OptionError(f"the option {name} is unknown{hint}")


def _of(names: Iterable[str], options: Mapping[str, str]) -> list[str]:
    """Returns the `names` that `options` contains, ignoring case."""
    given = {name.lower() for name in options}
    return [name for name in names if name.lower() in given]


def flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise OptionError(f"{name} must be true or false, not {text!r}")
    return text.lower() == "true"


def _offsets(name: str, text: str) -> dict[TopicPartition, int]:
    """Parses the value of the option `name`, such as {"topic": {"0": 23, "1": -2}}. Raises OptionError."""
    try:
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, offsets in json.loads(text).items()
            for partition, offset in offsets.items()
        }
    except (AttributeError, TypeError, ValueError):
        example = '{"topic": {"0": 23, "1": -2}}'
        raise OptionError(f"{name} must have the form {example}, not {text!r}") from None


def isolation_level(given: Mapping[str, str]) -> str:
    level = given.get("kafka.isolation.level", "read_committed")
    if level not in ("read_committed", "read_uncommitted"):
        raise OptionError(f"kafka.isolation.level must be read_committed or read_uncommitted, not {level!r}")
    return level


def bounds(given: Mapping[str, str], *, is_stream: bool) -> tuple[Bound, Bound]:
    """Parses the options for a query's starting and ending offsets.

    Returns the starting bound and the ending bound. Raises OptionError if an option is invalid, or if this kind of
    query does not support that bound.
    """
    starting = _bound(given, "starting", LATEST if is_stream else EARLIEST)
    ending = _bound(given, "ending", LATEST)
    if ending.everywhere == EARLIEST or EARLIEST in ending.offsets.values():
        raise OptionError("endingOffsets cannot be earliest (-2)")
    if not is_stream and starting.is_latest:
        raise OptionError("startingOffsets of a batch cannot be latest (-1)")
    strategy = given.get(STRATEGY.lower(), "error").lower()
    if strategy not in ("error", "latest"):
        raise OptionError(f"{STRATEGY} must be error or latest, not {strategy!r}")
    return replace(starting, needs_record=strategy == "error"), ending


def _bound(given: Mapping[str, str], which: str, default: int) -> Bound:
    """Parses one bound. As in Spark, a timestamp for all partitions takes precedence over timestamps for individual
    partitions, which take precedence over offsets."""
    timestamp_ms = number(given, f"{which}Timestamp", at_least=0)
    if timestamp_ms is not None:
        return Bound(LATEST, timestamp_ms=timestamp_ms)
    if (by_timestamp := given.get(f"{which}offsetsbytimestamp")) is not None:
        return Bound(LATEST, timestamps_ms=_offsets(f"{which}OffsetsByTimestamp", by_timestamp))
    text = given.get(f"{which}offsets")
    if text is None:
        return Bound(default)
    if text.lower() in _BOUNDS:
        return Bound(_BOUNDS[text.lower()])
    return Bound(default, _offsets(f"{which}Offsets", text))


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    try:
        return tuple(
            TopicPartition(topic, int(each)) for topic, partitions in json.loads(text).items() for each in partitions
        )
    except (AttributeError, TypeError, ValueError):
        raise OptionError(f'assign must have the form {{"topic": [0, 1]}}, not {text!r}') from None


def number(given: Mapping[str, str], name: str, *, at_least: int = 1) -> int | None:
    """Parses an integer. Returns None if the option is absent. Raises OptionError."""
    text = given.get(name.lower())
    if text is None:
        return None
    if not text.isdecimal() or int(text) < at_least:
        raise OptionError(f"{name} must be a whole number of at least {at_least}, not {text!r}")
    return int(text)


def duration_ms(given: Mapping[str, str], name: str, default: str) -> int:
    """Parses a duration as Spark does, such as 15m, 30s, 100ms, 1h or 7d. A number without a unit is in milliseconds.
    Raises OptionError."""
    text = given.get(name.lower(), default)
    match = _DURATION.fullmatch(text)
    if match is None or match[2].lower() not in _UNITS_MS:
        raise OptionError(f"{name} must be a time such as 15m, 30s, 100ms, 1h or 7d, not {text!r}")
    return int(match[1]) * _UNITS_MS[match[2].lower()]


def _brokers(given: Mapping[str, str]) -> Brokers:
    servers = given.get("kafka.bootstrap.servers")
    if not servers:
        raise OptionError("the option kafka.bootstrap.servers is missing")
    named = {name.removeprefix("kafka."): text for name, text in given.items() if _is_security(name)}
    protocol = named.get("security.protocol", PROTOCOLS[0])
    if protocol.upper() not in PROTOCOLS:
        raise OptionError(f"kafka.security.protocol must be one of {', '.join(PROTOCOLS)}, not {protocol!r}")
    try:
        security = security_settings(named, "kafka.")
        Security.of(security)
    except ValueError as error:
        raise OptionError(str(error)) from None
    return Brokers(servers, security=security)


def _is_security(name: str) -> bool:
    return name.startswith("kafka.") and is_of_security(name.removeprefix("kafka."))


def _settings(
    given: Mapping[str, str], known: Mapping[str, Any], of_the_other_side: Mapping[str, Any]
) -> dict[str, Any]:
    found = {}
    for name, text in given.items():
        if not name.startswith("kafka.") or name in _OWN or name in of_the_other_side or _is_security(name):
            continue
        if name not in known:
            raise OptionError(
                f"the option {name} is not supported; the supported options kafka.* are {', '.join(sorted(known))}"
            )
        setting, parse = known[name]
        try:
            found[setting] = parse(text)
        except ValueError:
            raise OptionError(f"{name} cannot be {text!r}") from None
    return found
