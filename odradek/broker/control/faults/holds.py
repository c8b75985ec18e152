"""Holds: requests, markers and steps of the broker that wait until somebody releases them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from odradek.broker.control.faults.rules import Point, Seen
    from odradek.broker.runtime.delayed import Deferred

TOLD = 20  # of those that wait at one hold
MANY = 500  # as Kafka's queue of requests takes, queued.max.requests
About: TypeAlias = Mapping[str, object]  # who waits
GoOn: TypeAlias = "Callable[[], Deferred[None] | None]"  # the answer comes when the effect is there; None: it is


@dataclass(frozen=True, slots=True)
class _Waiting:
    go_on: GoOn
    about: About
    is_begun_again: bool


@dataclass(frozen=True, slots=True)
class Released:
    """A hold that was released: how many went on, and answers that come when their effects are there."""

    count: int
    effects: Sequence[Deferred[None]]


class Holds:
    """Waiting requests, markers and steps, by the name of the hold."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[object, _Waiting]] = {}

    def wait(self, name: str, who: object, go_on: GoOn, about: About, *, is_begun_again: bool = False) -> None:
        """Runs `go_on` when the hold is released.

        is_begun_again  whether the next start of the broker begins this step again, from its log. Then it does not go
                        on when the broker stops: what the rule holds back is not there after the restart either
        """
        self._waiting.setdefault(name, {})[who] = _Waiting(go_on, about, is_begun_again)

    def forget(self, name: str, who: object) -> None:
        self._waiting.get(name, {}).pop(who, None)

    def counts(self) -> dict[str, int]:
        return {name: len(waiting) for name, waiting in self._waiting.items() if waiting}

    @property
    def are_many(self) -> bool:
        """Whether so many wait that requests whose client has gone are forgotten."""
        return sum(map(len, self._waiting.values())) > MANY

    def told(self) -> list[dict[str, object]]:
        """Returns each hold with how many wait, and who the first `TOLD` of them are."""
        return [
            {"name": name, "waiting": len(waiting), "who": [each.about for each in list(waiting.values())[:TOLD]]}
            for name, waiting in self._waiting.items()
            if waiting
        ]

    def release(self, name: str) -> Released:
        """None of them waits any more when this returns."""
        waiting = self._waiting.pop(name, {})
        answers = [each.go_on() for each in waiting.values()]
        return Released(len(waiting), [each for each in answers if each is not None])

    def end(self) -> None:
        """Ends all holds, since the broker stops: what its next start begins again is forgotten, the others go on."""
        for name in self.counts():
            for each in self._waiting.pop(name).values():
                if not each.is_begun_again:
                    each.go_on()


def held_at(point: Point, seen: Seen) -> About:
    """Tells who waits: where, and what it is about, as far as it names that."""
    about: dict[str, object] = {"at": point.value}
    if seen.api is not None:
        about["api"] = seen.api.kafka_name
    about |= {name: seen.about[name] for name in ("client_id", "connection") if seen.about.get(name) is not None}
    for name in ("transactional_id", "group", "producer_id"):
        values = [each for each in seen.named.get(name, ()) if each not in (None, "", -1)]
        if len(values) == 1:
            about[name] = values[0]
    partitions = sorted((topic, index) for topic, index in seen.places if index is not None)
    topics = sorted({topic for topic, _ in seen.places} - {topic for topic, _ in partitions})
    about["partitions"] = [f"{topic}-{index}" for topic, index in partitions][:TOLD]
    if topics:
        about["topics"] = topics[:TOLD]
    return about
