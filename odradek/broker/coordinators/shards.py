"""The shards of a coordinator: one for each partition of its internal topic, found by key, loaded in turn.

open → load one after the other → unload        the topic is there, or has just been created … deleted, or the end
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from odradek.broker.runtime.clock import Scan, TimerHandle, Timers, earliest
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.coordinators.shard import Core, Shard
    from odradek.broker.coordinators.shard_records import ShardLog

logger = logging.getLogger(__name__)

C = TypeVar("C", bound="Core")
L = TypeVar("L", bound="ShardLog")


class Shards(Generic[C, L]):
    """The shards of one internal topic; iterates over those that there are, by partition.

    A partition whose log is empty is served, and has no shard before the first request for it: most of them stay so.
    """

    def __init__(
        self,
        topic: str,
        *,
        keys: str,
        usual_partition_count: int,
        open_log: Callable[[int], L],
        new_shard: Callable[[int, str, L], Shard[C]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        loaded: Callable[[Shard[C]], object],
    ) -> None:
        """
        keys                   what has its coordinator there, for the broker's log
        usual_partition_count  while there is no topic: that of the topic that will be
        open_log               the log of one partition; raises KafkaError if it cannot be used
        new_shard              takes the partition, its name, its log
        spawn                  runs a coroutine beside what the loop is doing
        loaded                 is called for each shard as soon as its log has been replayed
        """
        self._topic = topic
        self._keys = keys
        self._usual_partition_count = usual_partition_count
        self._open_log = open_log
        self._new_shard = new_shard
        self._spawn = spawn
        self._loaded = loaded
        self._partition_count: int | None = None
        self._shards: dict[int, Shard[C]] = {}
        self._empty: set[int] = set()  # partitions that have no shard yet, since their logs are empty

    # The topic's life.

    def open(self, partition_count: int) -> None:
        """The topic is there. A partition that is not loaded says COORDINATOR_LOAD_IN_PROGRESS; empty ones are served.

        Also when partitions were added to it. As in Kafka, keys stay where they are until the next start, which then
        looks for them elsewhere: it is nothing that should be done.
        """
        if self._partition_count is None:
            self._partition_count = partition_count
        for index in range(partition_count):
            if index not in self._shards and index not in self._empty:
                self._open(index, is_asked=False)
        self._spawn(self._load_all())

    def _open(self, index: int, *, is_asked: bool) -> None:
        """is_asked: whether it is to have its shard also if its log is empty"""
        name = f"{self._topic}-{index}"
        try:
            log = self._open_log(index)
        except KafkaError as error:
            logger.error("%s cannot be used, its %s have no coordinator: %s", name, self._keys, error)
            return
        if log.is_empty and not is_asked:
            self._empty.add(index)
        else:
            self._shards[index] = self._new_shard(index, name, log)

    def _first_asked(self, index: int) -> Shard[C]:
        """Makes the shard of an empty log. Raises NOT_COORDINATOR where there is no such partition."""
        if index in self._empty:
            self._empty.discard(index)
            self._open(index, is_asked=True)
        shard = self._shards.get(index)
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if shard.load_if_empty():
            self._loaded(shard)
        else:  # it has been written by others meanwhile
            self._spawn(self._load_all())
        return shard

    async def _load_all(self) -> None:
        # One after the other: loading is work for the loop, and a loaded partition serves while the next one loads.
        for shard in list(self):
            if not shard.has_begun_to_load:
                await shard.load()
                self._loaded(shard)

    def delete(self) -> None:
        """The topic is gone, and all that was in it."""
        shards, self._shards, self._partition_count = self._shards, {}, None
        self._empty.clear()
        for shard in shards.values():
            shard.end()

    def reload(self, index: int) -> None:
        """Another coordinator takes over this partition, and reads its log anew."""
        shard = self._shards.pop(index, None)
        if shard is None and index not in self._empty:
            return
        if shard is not None:
            shard.end()
        self._empty.discard(index)
        self._open(index, is_asked=True)
        self._spawn(self._load_all())

    def unload(self) -> None:
        """Waiting requests are told to look for another coordinator: there may be one after the restart.

        It lets go of whom it belongs to, which goes so without the garbage collector.
        """
        self._empty.clear()
        shards, self._shards = self._shards, {}
        for shard in shards.values():
            shard.end()
        self._new_shard = _no_more
        self._loaded = _pass_over

    # Finding one's way.

    def __iter__(self) -> Iterator[Shard[C]]:
        return iter(self._shards.values())

    def items(self) -> Iterator[tuple[int, Shard[C]]]:
        return iter(self._shards.items())

    @property
    def is_open(self) -> bool:
        return self._partition_count is not None

    @property
    def is_loaded(self) -> bool:
        """Whether every partition whose log can be used is served."""
        return all(shard.is_loaded for shard in self)

    def earliest(self, due_ms: Callable[[C], int | None]) -> int | None:
        """Over the shards that are loaded: no scan finds anything in the others."""
        return earliest(shard.look(due_ms) for shard in self if shard.is_loaded)

    @property
    def is_complete(self) -> bool:
        """Whether the log of every partition can be used."""
        return len(self._shards) + len(self._empty) == self._partition_count

    @property
    def partition_count(self) -> int:
        """Partitions of the topic, or of the topic that will be."""
        return self._partition_count or self._usual_partition_count

    def partition_for(self, key: str) -> int:
        return java_hash(key) % self.partition_count

    def of_key(self, key: str) -> Shard[C]:
        """Raises NOT_COORDINATOR where there is no such partition, which is so before the topic is created."""
        index = java_hash(key) % (self._partition_count or self._usual_partition_count)
        return self._shards.get(index) or self._first_asked(index)

    def of_partition(self, index: int) -> Shard[C]:
        """Raises NOT_COORDINATOR where there is no such partition."""
        return self._shards.get(index) or self._first_asked(index)


def _no_more(index: int, name: str, log: object) -> NoReturn:
    raise RuntimeError(f"{name} is opened by a coordinator that has stopped")


def _pass_over(shard: object) -> None:
    pass


class Scans:
    """Actions that a coordinator repeats until it stops."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._armed: dict[Callable[[], None], TimerHandle] = {}
        self._scans: dict[Callable[[], None], Scan] = {}

    def every(self, interval_ms: int, action: Callable[[], None], due_ms: Callable[[], int | None]) -> None:
        """due_ms: see `Scan`"""

        def fire() -> None:
            self._armed[action] = self._timers.after(interval_ms, self._scans[action])
            action()

        scan = self._scans[action] = Scan(fire, interval_ms, due_ms)
        self._armed[action] = self._timers.after(interval_ms, scan)

    def stop(self) -> None:
        for handle in self._armed.values():
            handle.cancel()
        self._armed.clear()
        self._scans.clear()


@lru_cache(4096)
def java_hash(text: str) -> int:
    """`Utils.abs(text.hashCode())` of Kafka's clients and brokers: 31-based over UTF-16 units, 32 bits, no sign."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (value * 31 + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    if value >= 0x80000000:
        value = 0x100000000 - value
    return 0 if value == 0x80000000 else value
