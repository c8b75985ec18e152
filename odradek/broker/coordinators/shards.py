"""The shards of a coordinator, one for each partition of its internal topic. Requests find their shard by key. Shards
are loaded one at a time.

`open` is called at startup if the topic exists, or when the topic is created. `delete` is called when the topic is
deleted, and `unload` when the broker stops.
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
    """The shards of one internal topic. Iteration yields the existing shards.

    A partition with an empty log gets its shard only when the first request for it arrives, because most partitions
    stay empty.
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
        """Creates an empty collection of shards. `open` adds the topic's shards.

        keys                   the kind of objects that the partitions coordinate, for log messages
        usual_partition_count  the number of partitions to assume while the topic does not exist
        open_log               opens the log of a partition; raises KafkaError if the log is unusable
        new_shard              creates a shard from the partition's index, name and log
        spawn                  runs a coroutine as a task on the loop
        loaded                 called with each shard as soon as its log has been replayed
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
        self._empty: set[int] = set()  # partitions that have no shard yet because their logs are empty

    # The life cycle of the topic.

    def open(self, partition_count: int) -> None:
        """Opens the partitions of the topic. Empty partitions can be used immediately. Requests for other partitions
        fail with COORDINATOR_LOAD_IN_PROGRESS until the partitions are loaded.

        Also called after partitions have been added. As in Kafka, keys keep their partitions until the broker restarts.
        After that, keys are looked up in other partitions, so partitions should not be added to internal topics.
        """
        if self._partition_count is None:
            self._partition_count = partition_count
        for index in range(partition_count):
            if index not in self._shards and index not in self._empty:
                self._open(index, is_asked=False)
        self._spawn(self._load_all())

    def _open(self, index: int, *, is_asked: bool) -> None:
        """Opens a partition. If `is_asked`, creates its shard even if its log is empty."""
        name = f"{self._topic}-{index}"
        try:
            log = self._open_log(index)
        except KafkaError as error:
            logger.error("%s cannot be used, so its %s have no coordinator: %s", name, self._keys, error)
            return
        if log.is_empty and not is_asked:
            self._empty.add(index)
        else:
            self._shards[index] = self._new_shard(index, name, log)

    def _open_on_first_request(self, index: int) -> Shard[C]:
        """Creates the shard of a partition with an empty log. Raises NOT_COORDINATOR if the partition does not exist or
        is unusable."""
        if index in self._empty:
            self._empty.discard(index)
            self._open(index, is_asked=True)
        shard = self._shards.get(index)
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if shard.load_if_empty():
            self._loaded(shard)
        else:  # The log is no longer empty.
            self._spawn(self._load_all())
        return shard

    async def _load_all(self) -> None:
        # Shards are loaded one at a time, because loading occupies the event loop, and a loaded partition can handle
        # requests while the next partition is loaded.
        for shard in list(self):
            if not shard.has_begun_to_load:
                await shard.load()
                self._loaded(shard)

    def delete(self) -> None:
        """Drops all shards after the topic has been deleted."""
        shards, self._shards, self._partition_count = self._shards, {}, None
        self._empty.clear()
        for shard in shards.values():
            shard.end()

    def reload(self, index: int) -> None:
        """Reloads a partition from its log, as a new coordinator would when it takes over the partition."""
        shard = self._shards.pop(index, None)
        if shard is None and index not in self._empty:
            return
        if shard is not None:
            shard.end()
        self._empty.discard(index)
        self._open(index, is_asked=True)
        self._spawn(self._load_all())

    def unload(self) -> None:
        """Unloads all shards. Waiting requests fail with NOT_COORDINATOR, so that clients look up the coordinator again
        after a restart.

        Also drops the references to the coordinator, so that the coordinator is freed without the garbage collector.
        """
        self._empty.clear()
        shards, self._shards = self._shards, {}
        for shard in shards.values():
            shard.end()
        self._new_shard = _no_more
        self._loaded = _pass_over

    # Finding shards.

    def __iter__(self) -> Iterator[Shard[C]]:
        return iter(self._shards.values())

    def items(self) -> Iterator[tuple[int, Shard[C]]]:
        return iter(self._shards.items())

    @property
    def is_open(self) -> bool:
        return self._partition_count is not None

    @property
    def is_loaded(self) -> bool:
        """True if every usable partition is loaded."""
        return all(shard.is_loaded for shard in self)

    def earliest(self, due_ms: Callable[[C], int | None]) -> int | None:
        """Returns the earliest time that `due_ms` returns for any loaded shard, or None if `due_ms` returns no time.
        Skips shards that are not loaded, because they have nothing to scan yet."""
        return earliest(shard.read_state(due_ms) for shard in self if shard.is_loaded)

    @property
    def is_complete(self) -> bool:
        """True if the log of every partition is usable."""
        return len(self._shards) + len(self._empty) == self._partition_count

    @property
    def partition_count(self) -> int:
        """The number of partitions of the topic, or the configured number if the topic does not exist yet."""
        return self._partition_count or self._usual_partition_count

    def partition_for(self, key: str) -> int:
        return java_hash(key) % self.partition_count

    def of_key(self, key: str) -> Shard[C]:
        """Returns the shard for a key. Raises NOT_COORDINATOR if the key has no shard, for instance because the topic
        does not exist."""
        index = java_hash(key) % (self._partition_count or self._usual_partition_count)
        return self._shards.get(index) or self._open_on_first_request(index)

    def of_partition(self, index: int) -> Shard[C]:
        """Returns the shard for a partition. Raises NOT_COORDINATOR if the partition does not exist."""
        return self._shards.get(index) or self._open_on_first_request(index)


def _no_more(index: int, name: str, log: object) -> NoReturn:
    raise RuntimeError(f"{name} is opened by a coordinator that has stopped")


def _pass_over(shard: object) -> None:
    pass


class Scans:
    """A coordinator's periodic actions, which stop when the coordinator stops."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._armed: dict[Callable[[], None], TimerHandle] = {}
        self._scans: dict[Callable[[], None], Scan] = {}

    def repeat(self, interval_ms: int, action: Callable[[], None], due_ms: Callable[[], int | None]) -> None:
        """Runs an action periodically until `stop` is called. See `Scan` for `due_ms`."""

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
    """Returns `Utils.abs(text.hashCode())` as Kafka computes it: base 31 over UTF-16 units, 32 bits, without sign."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (value * 31 + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    if value >= 0x80000000:
        value = 0x100000000 - value
    return 0 if value == 0x80000000 else value
