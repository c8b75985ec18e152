"""Holds the client quotas in the metadata log and determines which quota applies to a client.

Only `replay` changes the quotas. Entity types and keys are those of Kafka's records and requests. Source:
docs/spec/security.md#s4-2.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from odradek.protocol.messages.client_quota_record import ClientQuotaRecord

USER, CLIENT_ID, IP = "user", "client-id", "ip"
TYPES = (USER, CLIENT_ID, IP)

# Pairs of type and name, in the order of TYPES. The name None means the default entity of the type.
QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]

PRODUCER_BYTE_RATE = "producer_byte_rate"  # bytes per second in requests
CONSUMER_BYTE_RATE = "consumer_byte_rate"  # bytes per second in responses
REQUEST_PERCENTAGE = "request_percentage"  # 100 means one thread that is constantly busy
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"  # partitions created or deleted per second
CONNECTION_CREATION_RATE = "connection_creation_rate"  # connections per second


class AllowedNumbers(Enum):
    """The values allowed for a limit, which must also be positive."""

    LONG = "a whole number of at most 9223372036854775807"
    INT = "a whole number of at most 2147483647"
    DOUBLE = "any number"


CLIENT_QUOTAS: Mapping[str, AllowedNumbers] = {
    PRODUCER_BYTE_RATE: AllowedNumbers.LONG,
    CONSUMER_BYTE_RATE: AllowedNumbers.LONG,
    REQUEST_PERCENTAGE: AllowedNumbers.DOUBLE,
    CONTROLLER_MUTATION_RATE: AllowedNumbers.DOUBLE,
}
ADDRESS_QUOTAS: Mapping[str, AllowedNumbers] = {CONNECTION_CREATION_RATE: AllowedNumbers.INT}


def entity_of(names: Mapping[str, str | None]) -> QuotaEntity:
    """Creates an entity. `names` contains the name for each type. Types that are not in TYPES are ignored."""
    return tuple((each, names[each]) for each in TYPES if each in names)


class ClientQuotasImage:
    """The client quotas in the metadata log. `limits` contains the limits of each entity by key."""

    __slots__ = ("limits",)

    def __init__(self) -> None:
        self.limits: dict[QuotaEntity, dict[str, float]] = {}

    def replay(self, record: ClientQuotaRecord) -> None:
        """Applies a record. As in Kafka, the last name is used if the record names a type twice."""
        entity = entity_of({each.entity_type: each.entity_name for each in record.entity})
        if not record.remove:
            self.limits.setdefault(entity, {})[record.key] = record.value
            return
        limits = self.limits.get(entity)
        if limits is not None:
            limits.pop(record.key, None)
            if not limits:
                del self.limits[entity]


class SharingClients(NamedTuple):
    """The clients that share a rate. None means all users or all client ids."""

    user: str | None
    client_id: str | None


class AppliedLimit(NamedTuple):
    limit: float
    sharers: SharingClients


def quota_of(
    limits: Mapping[QuotaEntity, Mapping[str, float]], key: str, user: str, client_id: str
) -> AppliedLimit | None:
    """Returns the limit for `key` at the most specific level that has one, or None if the client is not limited."""
    own, of_user, of_client = (
        SharingClients(user, client_id),
        SharingClients(user, None),
        SharingClients(None, client_id),
    )
    levels: tuple[tuple[QuotaEntity, SharingClients], ...] = (
        (((USER, user), (CLIENT_ID, client_id)), own),
        (((USER, user), (CLIENT_ID, None)), own),
        (((USER, user),), of_user),
        (((USER, None), (CLIENT_ID, client_id)), own),
        (((USER, None), (CLIENT_ID, None)), own),
        (((USER, None),), of_user),
        (((CLIENT_ID, client_id),), of_client),
        (((CLIENT_ID, None),), of_client),
    )
    for entity, sharers in levels:
        limit = limits.get(entity, {}).get(key)
        if limit is not None:
            return AppliedLimit(limit, sharers)
    return None
