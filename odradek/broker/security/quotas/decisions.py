"""Decides on the changes in AlterClientQuotas and finds the entities for DescribeClientQuotas. Source:
docs/spec/security.md#s4-1.

The entries of AlterClientQuotas are independent. Each entry is applied or refused as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import isnan
from typing import TYPE_CHECKING, NamedTuple

from odradek.broker.security.quotas.entities import (
    ADDRESS_QUOTAS,
    CLIENT_ID,
    CLIENT_QUOTAS,
    IP,
    TYPES,
    USER,
    AllowedNumbers,
    ClientQuotasImage,
    QuotaEntity,
    entity_of,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.client_quota_record import ClientQuotaRecord, EntityData

if TYPE_CHECKING:
    from odradek.broker.runtime.slices import Steps

MAX_VALUES = {AllowedNumbers.LONG: float(2**63 - 1), AllowedNumbers.INT: float(2**31 - 1)}
EPSILON = 1e-6  # a limit this close to a whole number is treated as whole
COMBINATIONS = frozenset({(USER,), (CLIENT_ID,), (USER, CLIENT_ID), (IP,)})


class LimitChange(NamedTuple):
    """A change to one limit. `limit` is the new value, or None to remove the limit."""

    key: str
    limit: float | None


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """An entry of AlterClientQuotas. `named` holds pairs of type and name, in the order of the request."""

    named: Sequence[tuple[str, str | None]]
    limits: Sequence[LimitChange]

    @property
    def entity(self) -> QuotaEntity:
        return entity_of(dict(self.named))


def alter_client_quotas(
    image: ClientQuotasImage, changes: Sequence[QuotaChange], resolves: Callable[[str], bool]
) -> Steps[tuple[list[KafkaError | None], list[ClientQuotaRecord]]]:
    """Decides on the changes. Returns the result of each change, in order, and the records to write.

    resolves  returns whether a string is an address, or a host name that can be resolved
    """
    times: Counter[frozenset[tuple[str, str | None]]] = Counter()
    for change in changes:
        times[frozenset(change.named)] += 1
        yield
    results: list[KafkaError | None] = []
    records: list[ClientQuotaRecord] = []
    for change in changes:
        try:
            # Kafka applies the first of these changes, but reports an error for it.
            if times[frozenset(change.named)] > 1:
                raise invalid_change("The request names this entity more than once.")
            check(change, resolves)
        except KafkaError as refusal:
            results.append(refusal)
        else:
            results.append(None)
            records += records_of(change, image.limits.get(change.entity, {}))
        yield
    return results, records


def check(change: QuotaChange, resolves: Callable[[str], bool]) -> None:
    """Checks one change. Raises INVALID_REQUEST if it is not valid."""
    keys = keys_of(change.named, resolves)
    for key, times in Counter(each.key for each in change.limits).items():
        if times > 1:
            raise invalid_change(f"The quota {key} is given more than once for this entity.")
    for key, limit in change.limits:
        if limit is not None:
            check_limit(key, limit, keys)


def keys_of(named: Sequence[tuple[str, str | None]], resolves: Callable[[str], bool]) -> Mapping[str, AllowedNumbers]:
    """Returns the keys of the limits that this entity can have. Raises INVALID_REQUEST if the entity is not valid."""
    if not named:
        raise invalid_change("A quota entity must have at least one type.")
    for entity_type, name in named:
        if entity_type not in TYPES:
            raise invalid_change(f"Unknown quota entity type {entity_type!r}; the valid types are {', '.join(TYPES)}.")
        if name == "":
            raise invalid_change(f"The name of the {entity_type} is empty; null means the default.")
    types = tuple(entity_type for entity_type, _ in named)
    if len(set(types)) < len(types):  # Kafka would use the last name of the type instead
        raise invalid_change("The entity has a type more than once.")
    if tuple(sorted(types, key=TYPES.index)) not in COMBINATIONS:
        raise invalid_change("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
    if types != (IP,):
        return CLIENT_QUOTAS
    (address,) = (name for _, name in named)
    if address is not None and not resolves(address):
        raise invalid_change(f"{address} is not a valid IP or resolvable host.")
    return ADDRESS_QUOTAS


def check_limit(key: str, limit: float, keys: Mapping[str, AllowedNumbers]) -> None:
    """Checks the limit for this key. Raises INVALID_REQUEST if it is not allowed."""
    numbers = keys.get(key)
    if numbers is None:
        raise invalid_change(f"Invalid quota key {key!r}; this entity can have {', '.join(keys)}.")
    if isnan(limit) or limit <= 0:
        raise invalid_change(f"The quota {key} must be greater than 0.")
    if numbers is AllowedNumbers.DOUBLE:
        return
    if limit > MAX_VALUES[numbers] or abs(int(limit + EPSILON) - limit) > EPSILON:
        raise invalid_change(f"The quota {key} must be {numbers.value}.")


def records_of(change: QuotaChange, current: Mapping[str, float]) -> list[ClientQuotaRecord]:
    """Returns a record for each key whose limit has to change."""
    records = []
    for key, limit in change.limits:
        if current.get(key) == limit:
            continue  # this includes the removal of a limit that does not exist
        entity = [EntityData(entity_type=entity_type, entity_name=name) for entity_type, name in change.entity]
        if limit is None:
            records.append(ClientQuotaRecord(entity=entity, key=key, remove=True))
        else:
            records.append(ClientQuotaRecord(entity=entity, key=key, value=limit))
    return records


def invalid_change(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)


class MatchType(Enum):
    """Determines how a filter component matches names. The values are those of DescribeClientQuotas."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2  # including the default entity of the type


class FilterComponent(NamedTuple):
    """A condition for entities. `match` is the number in the request. `name` is only set for EXACT."""

    entity_type: str
    match: int
    name: str | None


def describe_client_quotas(
    image: ClientQuotasImage, components: Sequence[FilterComponent], *, strict: bool
) -> Iterator[tuple[QuotaEntity, Mapping[str, float]]]:
    """Returns the entities that match all components, with their limits. If `strict` is set, entities with additional
    types do not match.

    Raises INVALID_REQUEST, or UNSUPPORTED_VERSION for an unknown type.
    """
    match_types: dict[str, MatchType] = {}
    names: dict[str, str | None] = {}
    for component in components:
        match_types[component.entity_type] = checked_match(component, match_types)
        names[component.entity_type] = component.name
    if IP in match_types and (USER in match_types or CLIENT_ID in match_types):
        why = "IP filter component should not be used with user or clientId filter component."
        raise invalid_change(f"Invalid entity filter component combination. {why}")
    return (
        (entity, limits)
        for entity, limits in image.limits.items()
        if matches(dict(entity), match_types, names) and (not strict or len(entity) == len(match_types))
    )


def checked_match(component: FilterComponent, match_types: Mapping[str, MatchType]) -> MatchType:
    """Checks a component in the same order as Kafka. Returns its match type. Raises KafkaError."""
    entity_type = component.entity_type
    if not entity_type:
        raise invalid_change("A component of the filter has no entity type.")
    if entity_type in match_types:
        raise invalid_change(f"The filter names the entity type {entity_type} more than once.")
    if entity_type not in TYPES:
        what = f"Unknown quota entity type {entity_type!r}; the valid types are {', '.join(TYPES)}."
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, what)
    try:
        match = MatchType(component.match)
    except ValueError:
        raise invalid_change(f"Unknown match type {component.match}.") from None
    if (match is MatchType.EXACT) is (component.name is None):
        raise invalid_change(
            "A component with an exact match must have a name, and any other component must not have one."
        )
    return match


def matches(
    entity: Mapping[str, str | None], match_types: Mapping[str, MatchType], names: Mapping[str, str | None]
) -> bool:
    return all(
        entity_type in entity and (match is MatchType.ANY or entity[entity_type] == names[entity_type])
        for entity_type, match in match_types.items()
    )
