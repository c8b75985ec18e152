"""What the views look at, and how they are asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from logging import LogRecord

    from odradek.broker.broker import Broker
    from odradek.broker.control.measures import Traffic
    from odradek.broker.control.page.json_value import View

Query: TypeAlias = "Mapping[str, str]"
Job: TypeAlias = "Callable[[], View]"  # what is left to do waits for the disk: for a thread
Show: TypeAlias = "Callable[[Served, Query], View | Job]"

SHOWN = 200  # of a list; `find` finds the others


@dataclass(frozen=True, slots=True)
class Served:
    """`warnings`: the latest of the log, oldest first."""

    broker: Broker
    traffic: Traffic
    warnings: Sequence[LogRecord]
