"""Whom client quotas are for, and what they limit, in the words of Kafka's records and requests."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeAlias

USER, CLIENT_ID, IP = "user", "client-id", "ip"
TYPES = (USER, CLIENT_ID, IP)

# Pairs of type and name, in the order of TYPES. A name of None stands for the default of its type.
QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]

PRODUCER_BYTE_RATE = "producer_byte_rate"  # bytes of requests per second
CONSUMER_BYTE_RATE = "consumer_byte_rate"  # bytes of answers per second
REQUEST_PERCENTAGE = "request_percentage"  # 100: one thread, all the time
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"  # partitions created or deleted per second
CONNECTION_CREATION_RATE = "connection_creation_rate"  # connections per second


class Numbers(Enum):
    """What a limit may be, besides positive."""

    LONG = "a whole number of at most 9223372036854775807"
    INT = "a whole number of at most 2147483647"
    DOUBLE = "any number"


OF_CLIENTS: Mapping[str, Numbers] = {
    PRODUCER_BYTE_RATE: Numbers.LONG,
    CONSUMER_BYTE_RATE: Numbers.LONG,
    REQUEST_PERCENTAGE: Numbers.DOUBLE,
    CONTROLLER_MUTATION_RATE: Numbers.DOUBLE,
}
OF_ADDRESSES: Mapping[str, Numbers] = {CONNECTION_CREATION_RATE: Numbers.INT}


def entity_of(names: Mapping[str, str | None]) -> QuotaEntity:
    """names: by type; others than TYPES are left out."""
    return tuple((each, names[each]) for each in TYPES if each in names)
