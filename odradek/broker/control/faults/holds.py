"""Holds make requests, transaction markers and steps of the broker wait until the test releases them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from odradek.broker.control.faults.rules import Occurrence, Point
    from odradek.broker.runtime.waiting import Deferred

MAX_LISTED_ELEMENTS = 20  # maximum number of listed waiters per hold, and of listed partitions or topics per waiter
MANY = 500  # the default size of Kafka's request queue (queued.max.requests)
WaiterFacts: TypeAlias = Mapping[str, object]  # facts that describe a waiter
# Resumes a waiter. Returns a Deferred that resolves when the effect is complete, or None if it is already complete.
Resume: TypeAlias = "Callable[[], Deferred[None] | None]"


@dataclass(frozen=True, slots=True)
class _Waiter:
    resume: Resume
    facts: WaiterFacts
    is_repeated_at_start: bool


@dataclass(frozen=True, slots=True)
class ReleaseResult:
    """The result of releasing a hold: the number of waiters, and Deferreds that resolve when the effects of the release
    are complete."""

    count: int
    effects: Sequence[Deferred[None]]


class Holds:
    """The waiting requests, markers and steps, by hold name."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[object, _Waiter]] = {}

    def add_waiter(
        self, name: str, who: object, resume: Resume, facts: WaiterFacts, *, is_repeated_at_start: bool = False
    ) -> None:
        """Registers a waiter, and calls `resume` when the hold is released or the broker stops.

        is_repeated_at_start  whether the broker repeats this step after a restart, because the step is recorded in its
                              log. If so, `resume` is not called when the broker stops, because the rule must still hold
                              the step back after the restart
        """
        self._waiting.setdefault(name, {})[who] = _Waiter(resume, facts, is_repeated_at_start)

    def remove_waiter(self, name: str, who: object) -> None:
        self._waiting.get(name, {}).pop(who, None)

    def counts(self) -> dict[str, int]:
        return {name: len(waiting) for name, waiting in self._waiting.items() if waiting}

    @property
    def are_many(self) -> bool:
        """True if so many requests are waiting that requests of disconnected clients should be dropped."""
        return sum(map(len, self._waiting.values())) > MANY

    def as_json(self) -> list[dict[str, object]]:
        """Returns, for each hold, the number of waiters and descriptions of the first `MAX_LISTED_ELEMENTS` waiters."""
        return [
            {
                "name": name,
                "waiting": len(waiting),
                "who": [each.facts for each in list(waiting.values())[:MAX_LISTED_ELEMENTS]],
            }
            for name, waiting in self._waiting.items()
            if waiting
        ]

    def release(self, name: str) -> ReleaseResult:
        """Releases everything that waits at this hold."""
        waiting = self._waiting.pop(name, {})
        answers = [each.resume() for each in waiting.values()]
        return ReleaseResult(len(waiting), [each for each in answers if each is not None])

    def end(self) -> None:
        """Ends all holds because the broker stops.

        Steps that the broker repeats after its next start are forgotten; all other waiters are released.
        """
        for name in self.counts():
            for each in self._waiting.pop(name).values():
                if not each.is_repeated_at_start:
                    each.resume()


def waiter_facts(point: Point, occurrence: Occurrence) -> WaiterFacts:
    """Describes a waiter by its point, and by the client, transaction, group and partitions of its request or step."""
    facts: dict[str, object] = {"at": point.value}
    if occurrence.api is not None:
        facts["api"] = occurrence.api.kafka_name
    connection = occurrence.connection_facts
    facts |= {name: connection[name] for name in ("client_id", "connection") if connection.get(name) is not None}
    for name in ("transactional_id", "group", "producer_id"):
        values = [each for each in occurrence.field_values.get(name, ()) if each not in (None, "", -1)]
        if len(values) == 1:
            facts[name] = values[0]
    partitions = sorted((topic, index) for topic, index in occurrence.places if index is not None)
    topics = sorted({topic for topic, _ in occurrence.places} - {topic for topic, _ in partitions})
    facts["partitions"] = [f"{topic}-{index}" for topic, index in partitions][:MAX_LISTED_ELEMENTS]
    if topics:
        facts["topics"] = topics[:MAX_LISTED_ELEMENTS]
    return facts
