"""The types that all views share: their JSON values, their functions, and the broker that they show."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from odradek.broker.runtime.slices import visit_in_slices

if TYPE_CHECKING:
    from logging import LogRecord

    from odradek.broker.broker import Broker
    from odradek.broker.http.measures import Traffic

JsonValue: TypeAlias = "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
View: TypeAlias = "Mapping[str, JsonValue]"


Query: TypeAlias = "Mapping[str, str]"
Job: TypeAlias = "Callable[[], View]"  # the rest of a view's work, which reads from the disk and so runs in a thread
Show: TypeAlias = (
    "Callable[[ViewedBroker, Query], View | Job | Awaitable[View | Job]]"  # a coroutine if it visits many items
)

T = TypeVar("T")

PAGE = "page"  # name of this work in the loop watch
SHOWN = 200  # maximum number of rows in a list; `find` gives access to the others


class ControlledClusters(Protocol):
    """The clusters that tests control, if control is on (docs/testing.md)."""

    def list(self, part: str) -> View:
        """Lists the clusters whose id contains `part`."""

    def show(self, name: str) -> View:
        """Shows one cluster. Raises KafkaError if it does not exist."""

    def served(self, name: str, default: ViewedBroker) -> ViewedBroker:
        """Returns the broker of a cluster. Raises KafkaError if it is not running.

        default  the broker of the process, for the cluster `default` and for an empty name
        """

    def tokens(self, name: str | None) -> Sequence[str]:
        """Returns the tokens, besides that of the process, that give access to the calls of a cluster."""


def nothing_held() -> Sequence[View]:
    return ()


@dataclass(frozen=True, slots=True)
class ViewedBroker:
    """The broker that the views show.

    warnings  the most recent warnings of the log, oldest first
    clusters  None if control is off
    holds     returns the holds at which something waits, in the form of `GET /control/v1/holds`
    """

    broker: Broker
    traffic: Traffic
    warnings: Sequence[LogRecord]
    clusters: ControlledClusters | None = None
    holds: Callable[[], Sequence[View]] = nothing_held

    async def visit(self, items: Iterable[T], look: Callable[[T], None]) -> None:
        """Calls `look` for each item, in slices, so that clients are served in between.

        There may be very many items. An item may have been deleted when its turn comes.
        """
        await visit_in_slices(items, look, self.broker.watch, PAGE)
