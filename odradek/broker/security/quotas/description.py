"""DescribeClientQuotas: which entities a filter selects. Source: docs/spec/security.md#s4-1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from odradek.broker.security.quotas.entities import CLIENT_ID, IP, TYPES, USER, QuotaEntity
from odradek.broker.security.quotas.image import ClientQuotasImage
from odradek.protocol.errors import ErrorCode, KafkaError


class Match(Enum):
    """The numbers of DescribeClientQuotas."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2  # the default of the type too


class Component(NamedTuple):
    """What an entity must have. match: the number; name: only with EXACT."""

    entity_type: str
    match: int
    name: str | None


def describe_client_quotas(
    image: ClientQuotasImage, components: Sequence[Component], *, strict: bool
) -> Iterator[tuple[QuotaEntity, Mapping[str, float]]]:
    """The entities that have all of `components`, and no other types if `strict`, with their limits.

    Raises INVALID_REQUEST, UNSUPPORTED_VERSION for a type that is not known.
    """
    wanted: dict[str, Match] = {}
    names: dict[str, str | None] = {}
    for component in components:
        wanted[component.entity_type] = checked_match(component, wanted)
        names[component.entity_type] = component.name
    if IP in wanted and (USER in wanted or CLIENT_ID in wanted):
        raise refused("An ip cannot be asked for together with a user or a client-id.")
    return (
        (entity, limits)
        for entity, limits in image.limits.items()
        if matches(dict(entity), wanted, names) and (not strict or len(entity) == len(wanted))
    )


def checked_match(component: Component, wanted: Mapping[str, Match]) -> Match:
    """The checks in Kafka's order."""
    entity_type = component.entity_type
    if not entity_type:
        raise refused("A component of the filter has no entity type.")
    if entity_type in wanted:
        raise refused(f"The filter names the entity type {entity_type} more than once.")
    if entity_type not in TYPES:
        what = f"Unknown quota entity type {entity_type!r}; there are {', '.join(TYPES)}."
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, what)
    try:
        match = Match(component.match)
    except ValueError:
        raise refused(f"There is no match type {component.match}.") from None
    if (match is Match.EXACT) is (component.name is None):
        raise refused("A name belongs to an exact match, and to no other.")
    return match


def matches(entity: Mapping[str, str | None], wanted: Mapping[str, Match], names: Mapping[str, str | None]) -> bool:
    return all(
        entity_type in entity and (match is Match.ANY or entity[entity_type] == names[entity_type])
        for entity_type, match in wanted.items()
    )


def refused(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)
