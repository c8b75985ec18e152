"""The types that all views share: their JSON values, their functions, and the broker that they show."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

from odradek.broker.runtime.slices import visit_in_slices
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from logging import LogRecord

    from odradek.broker.api.context import ConnectionInfo
    from odradek.broker.api.schema_values import DecodedContent, DecodingLimits, SchemaValues, StoredContent
    from odradek.broker.broker import Broker
    from odradek.broker.http.measures import Traffic

JsonValue: TypeAlias = "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
View: TypeAlias = "Mapping[str, JsonValue]"


Query: TypeAlias = "Mapping[str, str]"
# The rest of a view's work, which runs in a thread because it may take a long time.
Job: TypeAlias = "Callable[[], View]"
Show: TypeAlias = (
    "Callable[[ViewedBroker, Query], View | Job | Awaitable[View | Job]]"  # views that visit many items are coroutines
)

T = TypeVar("T")

PAGE = "page"  # the name under which the loop watch reports this work
NUMBER = re.compile("[0-9]+")
SHOWN = 200  # maximum number of rows in a list; `find` can find the other rows


class Order(NamedTuple):
    """The order that a query requests with `sort`, and the part of the list that it requests with `from`.

    by       the property to sort by; empty for the default order of the list
    is_down  whether the largest value comes first, because the query has a "-" before the property
    start    the number of the first row to show
    """

    by: str
    is_down: bool
    start: int

    @property
    def end(self) -> int:
        return self.start + SHOWN

    def visible_rows(self, rows: list[dict[str, JsonValue]]) -> list[dict[str, JsonValue]]:
        """Sorts rows by the property, with rows that lack a value last, and returns the visible part."""
        if self.by:
            found = [each for each in rows if each.get(self.by) is not None]
            found.sort(key=lambda each: sort_key(each[self.by]), reverse=self.is_down)
            rows = found + [each for each in rows if each.get(self.by) is None]
        return rows[self.start : self.end]


def sort_key(value: JsonValue) -> Any:
    """Returns the sort key of a value in a column. Names are sorted by `name_order`, and all other values directly."""
    return name_order(value) if isinstance(value, str) else value


def name_order(name: str) -> str:
    """Returns a sort key that compares the numbers in names as numbers, so that t-2 comes before t-10.

    Each number in the key is preceded by its number of digits. Numbers are not parsed, because a group id may contain
    more digits than `int` accepts.
    """
    return NUMBER.sub(with_length, name)


def with_length(number: re.Match[str]) -> str:
    digits = number[0].lstrip("0")
    return chr(len(digits)) + digits


def order_of(query: Query, properties: Sequence[str]) -> Order:
    """Returns the order that a query requests. Raises KafkaError if the list cannot be sorted by that property, or if
    `from` is not a number."""
    sort = query.get("sort", "")
    by, start = sort.removeprefix("-"), query.get("from") or "0"
    if by and by not in properties:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"This list can be sorted by {', '.join(properties)}.")
    if not start.isdecimal() or len(start) > 10:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "from must be a whole number.")
    return Order(by, sort.startswith("-"), int(start))


class ControlledClusters(Protocol):
    """The clusters that tests control (docs/testing.md). Exists only if control is on."""

    def list(self, part: str, order: Order) -> View:
        """Lists the clusters whose id contains `part`."""

    def show(self, name: str) -> View:
        """Shows one cluster. Raises KafkaError if the cluster does not exist."""

    def broker_of(self, name: str, default: ViewedBroker) -> ViewedBroker:
        """Returns a cluster's broker. Raises KafkaError if the broker is not running.

        default  the process's own broker, returned for the cluster `default` and for an empty name
        """

    def tokens(self, name: str | None) -> Sequence[str]:
        """Returns the tokens that authorize API calls to a cluster, in addition to the process-wide token."""


def no_holds() -> Sequence[View]:
    return ()


@dataclass(frozen=True, slots=True)
class SchemaDecoder:
    """Decodes keys and values with the schema registry, for the client that sent one request.

    client  None if the client may see everything
    """

    values: SchemaValues
    client: ConnectionInfo | None

    async def decode(
        self, topic: str, contents: Sequence[StoredContent], limits: DecodingLimits
    ) -> Sequence[DecodedContent | None]:
        """Decodes a topic's keys and values. The result is None for bytes that contain no schema id."""
        return await self.values.decode(topic, contents, self.client, limits)


@dataclass(frozen=True, slots=True)
class ViewedBroker:
    """The broker that the views show.

    warnings  the most recent warnings of the log, oldest first
    clusters  None if control is off
    holds     returns the holds where requests or steps are waiting, in the format that `GET /control/v1/holds` returns
    decoder   None if the broker has no schema registry
    """

    broker: Broker
    traffic: Traffic
    warnings: Sequence[LogRecord]
    clusters: ControlledClusters | None = None
    holds: Callable[[], Sequence[View]] = no_holds
    decoder: SchemaDecoder | None = None

    async def visit(self, items: Iterable[T], look: Callable[[T], None]) -> None:
        """Calls `look` for each item. Works in slices, so that clients are served in the meantime.

        An item may have been deleted by the time it is visited.
        """
        await visit_in_slices(items, look, self.broker.watch, PAGE)
