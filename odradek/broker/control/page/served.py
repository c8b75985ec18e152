"""What the views look at, and how they are asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from odradek.broker.runtime.slices import visit_in_slices

if TYPE_CHECKING:
    from logging import LogRecord

    from odradek.broker.broker import Broker
    from odradek.broker.control.measures import Traffic
    from odradek.broker.control.page.json_value import View

Query: TypeAlias = "Mapping[str, str]"
Job: TypeAlias = "Callable[[], View]"  # what is left to do waits for the disk: for a thread
Show: TypeAlias = "Callable[[Served, Query], View | Job | Awaitable[View | Job]]"  # awaited where there may be many

T = TypeVar("T")

PAGE = "page"  # to the watchdog
SHOWN = 200  # of a list; `find` finds the others


@dataclass(frozen=True, slots=True)
class Served:
    """`warnings`: the latest of the log, oldest first."""

    broker: Broker
    traffic: Traffic
    warnings: Sequence[LogRecord]

    async def visit(self, items: Iterable[T], look: Callable[[T], None]) -> None:
        """Each of what may be very many: clients are served in between, and an item may be gone when it is its turn."""
        await visit_in_slices(items, look, self.broker.watch, PAGE)
