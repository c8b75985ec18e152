"""The options of `format("odradek")`: names, JSON and defaults of Spark's Kafka source (docs/spec/spark.md#s8).

What the client does not have is refused by name, rather than ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from odradek.client.common.values import TopicPartition
from odradek.client.security.properties import is_of_security, security_settings
from odradek.client.security.settings import Security
from odradek.spark.brokers import Brokers
from odradek.spark.names import DEFAULT_PREFIX

EARLIEST, LATEST = -2, -1  # in place of an offset
PATH = "path"
POLL_TIMEOUT_MS = 120_000
STRATEGY = "startingOffsetsByTimestampStrategy"
_BOUNDS = {"earliest": EARLIEST, "latest": LATEST}

# Kafka's name → the client's setting, and how its text is read.
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


class OptionError(ValueError):
    """An option that is missing, unknown, or means nothing."""


class Delivery(Enum):
    EXACTLY_ONCE = "exactlyOnce"
    AT_LEAST_ONCE = "atLeastOnce"


@dataclass(frozen=True, slots=True)
class Bound:
    """Where reading begins or ends: `everywhere` an offset or EARLIEST, LATEST, unless `offsets` says otherwise; or the
    first record with a timestamp, in ms."""

    everywhere: int
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    timestamp_ms: int | None = None
    timestamps_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    needs_record: bool = False  # where no record is as late as a timestamp: an error, rather than the end

    def named(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Those that it names, or all where it names none."""
        return {*self.offsets, *self.timestamps_ms} or set(partitions)

    @property
    def is_latest(self) -> bool:
        """For any partition, and not by a timestamp."""
        by_time = self.timestamp_ms is not None or bool(self.timestamps_ms)
        return not by_time and (self.everywhere == LATEST or LATEST in self.offsets.values())


@dataclass(frozen=True, slots=True)
class Choice:
    """What is to be read; exactly one is set."""

    topics: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    pattern: str | None = None

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Choice | None:
        """None where no option says it. Raises OptionError."""
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
    """Exactly one of `topics`, `partitions` and `pattern` is set."""

    brokers: Brokers
    topics: tuple[str, ...]
    partitions: tuple[TopicPartition, ...]
    pattern: str | None
    isolation_level: str
    starting: Bound
    ending: Bound
    max_offsets_per_trigger: int | None
    min_partitions: int | None
    fail_on_data_loss: bool
    include_headers: bool
    poll_timeout_ms: int
    consumer: Mapping[str, Any]

    @classmethod
    def read(cls, options: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
        """Raises OptionError. `options` by their names in any case."""
        given = {name.lower(): value for name, value in options.items()}
        chosen = Choice.read(given)
        if chosen is None:
            raise OptionError("one of the options subscribe, subscribePattern and assign has to be set")
        starting, ending = bounds(given, is_stream=is_stream)
        return cls(
            brokers=_brokers(given),
            topics=chosen.topics,
            partitions=chosen.partitions,
            pattern=chosen.pattern,
            isolation_level=isolation_level(given),
            starting=starting,
            ending=ending,
            max_offsets_per_trigger=number(given, "maxOffsetsPerTrigger"),
            min_partitions=number(given, "minPartitions"),
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
    delivery: Delivery
    idempotency_key: str | None
    producer: Mapping[str, Any]

    @classmethod
    def read(cls, options: Mapping[str, str]) -> SinkOptions:
        """Raises OptionError."""
        given = {name.lower(): value for name, value in options.items()}
        try:
            delivery = Delivery(given.get("delivery", Delivery.EXACTLY_ONCE.value))
        except ValueError:
            raise OptionError(f"delivery is exactlyOnce or atLeastOnce, not {given['delivery']!r}") from None
        return cls(
            brokers=_brokers(given),
            topic=given.get("topic"),
            prefix=given.get("transactionalidprefix", DEFAULT_PREFIX),
            delivery=delivery,
            idempotency_key=given.get("idempotencykey"),
            producer=_settings(given, _PRODUCER | _BOTH, _CONSUMER),
        )


def is_of_files(options: Mapping[str, str]) -> bool:
    return any(name.lower() == PATH and value for name, value in options.items())


def flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise OptionError(f"{name} is true or false, not {text!r}")
    return text.lower() == "true"


def offsets_json(text: str) -> dict[TopicPartition, int]:
    """{"topic": {"0": 23, "1": -2}}. Raises OptionError."""
    try:
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, offsets in json.loads(text).items()
            for partition, offset in offsets.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise OptionError(f'not offsets of the form {{"topic": {{"0": 23, "1": -2}}}}: {text}') from None


def isolation_level(given: Mapping[str, str]) -> str:
    level = given.get("kafka.isolation.level", "read_committed")
    if level not in ("read_committed", "read_uncommitted"):
        raise OptionError(f"kafka.isolation.level is read_committed or read_uncommitted, not {level!r}")
    return level


def bounds(given: Mapping[str, str], *, is_stream: bool) -> tuple[Bound, Bound]:
    """Where reading starts and ends. Raises OptionError."""
    starting = _bound(given, "starting", LATEST if is_stream else EARLIEST)
    ending = _bound(given, "ending", LATEST)
    if ending.everywhere == EARLIEST or EARLIEST in ending.offsets.values():
        raise OptionError("endingOffsets cannot be earliest (-2)")
    if not is_stream and starting.is_latest:
        raise OptionError("startingOffsets of a batch cannot be latest (-1)")
    strategy = given.get(STRATEGY.lower(), "error").lower()
    if strategy not in ("error", "latest"):
        raise OptionError(f"{STRATEGY} is error or latest, not {strategy!r}")
    return replace(starting, needs_record=strategy == "error"), ending


def _bound(given: Mapping[str, str], which: str, default: int) -> Bound:
    """By Spark's precedence: a timestamp, timestamps, offsets."""
    timestamp_ms = number(given, f"{which}Timestamp")
    if timestamp_ms is not None:
        return Bound(LATEST, timestamp_ms=timestamp_ms)
    if (by_timestamp := given.get(f"{which}offsetsbytimestamp")) is not None:
        return Bound(LATEST, timestamps_ms=offsets_json(by_timestamp))
    text = given.get(f"{which}offsets")
    if text is None:
        return Bound(default)
    if text.lower() in _BOUNDS:
        return Bound(_BOUNDS[text.lower()])
    return Bound(default, offsets_json(text))


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    try:
        return tuple(
            TopicPartition(topic, int(each)) for topic, partitions in json.loads(text).items() for each in partitions
        )
    except (AttributeError, TypeError, ValueError):
        raise OptionError(f'assign has the form {{"topic": [0, 1]}}, not {text}') from None


def number(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not text.isdecimal() or not int(text):
        raise OptionError(f"{name} is a number above 0, not {text!r}")
    return int(text)


def _brokers(given: Mapping[str, str]) -> Brokers:
    servers = given.get("kafka.bootstrap.servers")
    if not servers:
        raise OptionError("the option kafka.bootstrap.servers is missing")
    named = {name.removeprefix("kafka."): text for name, text in given.items() if _is_security(name)}
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
            raise OptionError(f"the option {name} is not supported; those of kafka.* are {', '.join(sorted(known))}")
        setting, parse = known[name]
        try:
            found[setting] = parse(text)
        except ValueError:
            raise OptionError(f"{name} cannot be {text!r}") from None
    return found
