"""Shared parts of the views: their values, what they look at, and how they are asked."""

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
Job: TypeAlias = "Callable[[], View]"  # what is left to do waits for the disk: for a thread
Show: TypeAlias = (
    "Callable[[ViewedBroker, Query], View | Job | Awaitable[View | Job]]"  # awaited where there may be many
)

T = TypeVar("T")

PAGE = "page"  # to the watchdog
SHOWN = 200  # of a list; `find` finds the others


class ControlledClusters(Protocol):
    """Clusters that tests control, where control is on (docs/testing.md)."""

    def list(self, part: str) -> View:
        """Lists those whose id contains `part`."""

    def show(self, name: str) -> View:
        """Raises KafkaError where there is none."""

    def served(self, name: str, default: ViewedBroker) -> ViewedBroker:
        """Returns the broker of a cluster. default: that of the process. Raises KafkaError where it does not run."""

    def tokens(self, name: str | None) -> Sequence[str]:
        """Returns what opens the calls below the path of a cluster, beside the token of the process."""


def nothing_held() -> Sequence[View]:
    return ()


@dataclass(frozen=True, slots=True)
class ViewedBroker:
    """Broker that the views look at.

    warnings  the latest of the log, oldest first
    clusters  None where control is off
    holds     what waits at holds, as `GET /control/v1/holds` tells it
    """

    broker: Broker
    traffic: Traffic
    warnings: Sequence[LogRecord]
    clusters: ControlledClusters | None = None
    holds: Callable[[], Sequence[View]] = nothing_held

    async def visit(self, items: Iterable[T], look: Callable[[T], None]) -> None:
        """Visits each of what may be very many: clients are served in between, and an item may be gone when it is its
        turn.
        """
        await visit_in_slices(items, look, self.broker.watch, PAGE)
