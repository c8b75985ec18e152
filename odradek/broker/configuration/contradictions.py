"""Finds contradictory settings that keep a broker from starting. Source: the checks that Kafka 4.3.1 makes on its
settings.

One check exists only in Odradek. Kafka starts even if its settings make it impossible to create an internal topic, and
then keeps answering FindCoordinator with COORDINATOR_NOT_AVAILABLE. The authorizer's settings are parsed in the same
way as in Kafka's StandardAuthorizer: docs/spec/security.md#s1-1, 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from odradek.broker.configuration.broker_settings import BrokerSettings
from odradek.broker.configuration.settings import InvalidSetting, Range
from odradek.broker.configuration.topic_settings import TOPIC_SETTINGS

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CONSUMER_ASSIGNORS = ("uniform", "range")
BOOLEANS = {"true": True, "false": False}


def check_authorizer(class_name: str) -> None:
    """Checks the authorizer's class name; an empty name means no authorizer. Raises InvalidSetting."""
    if class_name not in ("", STANDARD_AUTHORIZER):
        raise InvalidSetting(
            f"the only supported authorizer is {STANDARD_AUTHORIZER}; remove this setting to use no authorizer"
        )


def super_users(text: str) -> frozenset[str]:
    """Parses super.users, such as `User:a;User:b`. Raises InvalidSetting."""
    users = frozenset(user for part in text.split(";") if (user := part.strip()))
    for user in users:
        kind, colon, name = user.partition(":")
        if not (kind and colon and name):
            raise InvalidSetting(f"{user} is not a principal: write User:{user}, and separate several with semicolons")
    return users


def allows_everyone(text: str) -> bool:
    """Parses allow.everyone.if.no.acl.found. Raises InvalidSetting."""
    value = BOOLEANS.get(text.strip().lower())
    if value is None:
        raise InvalidSetting("must be true or false")
    return value


# Each function raises InvalidSetting if the broker cannot start with the value.
AUTHORIZER_CHECKS: Mapping[str, Callable[[str], object]] = {
    "authorizer.class.name": check_authorizer,
    "super.users": super_users,
    "allow.everyone.if.no.acl.found": allows_everyone,
}


# Creating a topic writes at most 10,000 records to the metadata log. The topic and its settings need up to 6 of these
# records, leaving 9,994 for partitions.
MAX_PARTITIONS = 9_994
_PREFIXES = ("offsets.topic.", "transaction.state.log.", "share.coordinator.state.topic.")


class Contradiction(NamedTuple):
    """A setting whose value contradicts another setting, or cannot work with this number of nodes."""

    name: str
    value: object
    reason: str


def contradictions(
    config: BrokerSettings, current_text: Callable[[str], str | None], topic_defaults: Mapping[str, str], brokers: int
) -> Iterator[Contradiction]:
    roles = current_text("process.roles") or ""
    if "broker" not in [role.strip() for role in roles.split(",")]:
        yield Contradiction(
            "process.roles", roles, "must contain broker, because a controller on its own is not supported"
        )
    directories = config.log_dirs or config.log_dir
    if len(directories) != 1:
        name = "log.dirs" if config.log_dirs else "log.dir"
        yield Contradiction(name, ",".join(directories), "must name exactly one directory")
    if config.metadata_log_dir not in (None, directories[0]):
        yield Contradiction("metadata.log.dir", config.metadata_log_dir, f"must be {directories[0]} or not set")
    for name in TOPIC_SETTINGS["retention.ms"].synonyms:
        if current_text(name) == "0":
            yield Contradiction(name, "0", "must be -1 (no limit) or at least 1")
    for name, of_topics in (("log.roll.ms", "segment.ms"), ("log.roll.jitter.ms", "segment.jitter.ms")):
        millis, rule = int(topic_defaults[of_topics]), TOPIC_SETTINGS[of_topics].allowed
        if isinstance(rule, Range) and millis < rule.least:
            yield Contradiction(name, millis, f"must be at least {rule.least}")
    for name, check in AUTHORIZER_CHECKS.items():
        try:
            check(current_text(name) or "")
        except InvalidSetting as error:
            yield Contradiction(name, current_text(name), str(error))
    yield from uncreatable(lambda name: getattr(config, name.replace(".", "_")), brokers)
    max_ms = config.group_max_session_timeout_ms
    if config.group_min_session_timeout_ms > max_ms:
        why = f"must not exceed group.max.session.timeout.ms ({max_ms})"
        yield Contradiction("group.min.session.timeout.ms", config.group_min_session_timeout_ms, why)
    yield from impossible_consumer_groups(config)


def impossible_consumer_groups(config: BrokerSettings) -> Iterator[Contradiction]:
    """Finds contradictory consumer group defaults and nonexistent assignors. Source:
    docs/spec/consumer-groups.md#s8-2."""
    for what in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"):
        value, least, most = (
            getattr(config, f"group_consumer_{bound}{what.replace('.', '_')}") for bound in ("", "min_", "max_")
        )
        if not least <= value <= most:
            why = f"must be between group.consumer.min.{what} ({least}) and group.consumer.max.{what} ({most})"
            yield Contradiction(f"group.consumer.{what}", value, why)
    heartbeat_ms, session_ms = config.group_consumer_heartbeat_interval_ms, config.group_consumer_session_timeout_ms
    if heartbeat_ms >= session_ms:
        why = f"must be less than group.consumer.session.timeout.ms ({session_ms})"
        yield Contradiction("group.consumer.heartbeat.interval.ms", heartbeat_ms, why)
    unknown = [name for name in config.group_consumer_assignors if name not in CONSUMER_ASSIGNORS]
    if unknown:
        why = f"there is no assignor {unknown[0]}; the assignors are {' and '.join(CONSUMER_ASSIGNORS)}"
        yield Contradiction("group.consumer.assignors", ",".join(config.group_consumer_assignors), why)


def creatable(brokers: int) -> Mapping[str, tuple[Range, str]]:
    """Returns, for each setting of the internal topics, the range of values with which the topic can be created, and
    the reason for the limit."""
    segment_bytes = TOPIC_SETTINGS["segment.bytes"].allowed
    assert isinstance(segment_bytes, Range)
    one = ", because the cluster has only this broker"
    limits = {
        "num.partitions": (Range(1, MAX_PARTITIONS), ""),
        "replication.factor": (
            Range(1, brokers),
            one if brokers == 1 else f", because the cluster has {brokers} brokers",
        ),
        "segment.bytes": (segment_bytes, ", as in every topic"),
    }
    return {prefix + suffix: limit for prefix in _PREFIXES for suffix, limit in limits.items()}


def uncreatable(value_of: Callable[[str], int], brokers: int) -> Iterator[Contradiction]:
    """Finds settings that would make it impossible to create an internal topic.

    value_of: returns a broker setting's value, given the setting's name
    """
    for name, (allowed, reason) in creatable(brokers).items():
        value = value_of(name)
        if value < allowed.least or (allowed.most is not None and value > allowed.most):
            rule = f"{allowed.least}" if allowed.least == allowed.most else allowed.describe()
            yield Contradiction(
                name, value, f"the internal topic cannot be created with this value (allowed: {rule}{reason})"
            )
