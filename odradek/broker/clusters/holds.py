"""Holds: requests, markers and steps of the broker that wait until somebody releases them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from odradek.broker.clusters.rules import Point, Seen

TOLD = 20  # of those that wait at one hold
MANY = 500  # as Kafka's queue of requests takes, queued.max.requests
About: TypeAlias = Mapping[str, object]  # who waits


@dataclass(frozen=True, slots=True)
class _Waiting:
    go_on: list[Callable[[], None]]
    about: About


class Holds:
    """Waiting requests, markers and steps, by the name of the hold."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[object, _Waiting]] = {}

    def wait(self, name: str, who: object, go_on: Callable[[], None], about: About) -> None:
        self._waiting.setdefault(name, {})[who] = _Waiting([go_on], about)

    def also(self, whos: Collection[object], go_on: Callable[[], None]) -> bool:
        """Has `go_on` run, too, when one of these is released, if all of them wait. Returns whether they do."""
        waiting = [each for held in self._waiting.values() for who, each in held.items() if who in whos]
        if len(waiting) < len(whos):
            return False
        for each in waiting:
            if go_on not in each.go_on:
                each.go_on.append(go_on)
        return True

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

    def release(self, name: str) -> int:
        """Returns how many went on; none of them waits any more when this returns."""
        waiting = self._waiting.pop(name, {})
        for each in waiting.values():
            for go_on in each.go_on:
                go_on()
        return len(waiting)


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
