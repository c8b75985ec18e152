"""Checks that the internal topics can be created with the settings that the broker was given for them.

Kafka starts with any value. When the topic cannot be created later, FindCoordinator answers COORDINATOR_NOT_AVAILABLE
without end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from odradek.broker.configuration.settings import Range
from odradek.broker.configuration.topic_settings import TOPIC_SETTINGS

# A change of the metadata log has 10,000 records at most; the topic and its settings take up to 6.
MAX_PARTITIONS = 9_994
_PREFIXES = ("offsets.topic.", "transaction.state.log.", "share.coordinator.state.topic.")
_SEGMENT_BYTES = TOPIC_SETTINGS["segment.bytes"].allowed
assert isinstance(_SEGMENT_BYTES, Range)
# Setting → what its topic can be created with, and why no other value.
CREATABLE: Mapping[str, tuple[Range, str]] = {
    prefix + suffix: limit
    for prefix in _PREFIXES
    for suffix, limit in {
        "num.partitions": (Range(1, MAX_PARTITIONS), ""),
        "replication.factor": (Range(1, 1), ", since this broker is the only one"),
        "segment.bytes": (_SEGMENT_BYTES, ", as for every topic"),
    }.items()
}


class Uncreatable(NamedTuple):
    """A setting with which its topic would be refused."""

    name: str
    value: int
    why: str


def uncreatable(value_of: Callable[[str], int]) -> Iterator[Uncreatable]:
    """value_of: the value of a broker setting, by its name."""
    for name, (allowed, reason) in CREATABLE.items():
        value = value_of(name)
        if value < allowed.least or (allowed.most is not None and value > allowed.most):
            rule = f"{allowed.least}" if allowed.least == allowed.most else allowed.describe()
            yield Uncreatable(name, value, f"its topic could not be created (allowed: {rule}{reason})")
