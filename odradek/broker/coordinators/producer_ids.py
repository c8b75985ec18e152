"""Producer ids for idempotent and transactional producers, taken from the metadata log in blocks of 1,000.

A block is durable in the metadata log before its first id is given out; a restart loses the rest of it. So an id is
never given out twice, and one record pays for a thousand producers. Where a block cannot be allocated, requests are
answered COORDINATOR_LOAD_IN_PROGRESS, as in Kafka: all clients retry that.

Beside them `TwoPhaseProducers`: the ids that an external coordinator relies on.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from odradek.broker.runtime.clock import Timers
from odradek.protocol.errors import ErrorCode, KafkaError

BLOCK_SIZE: Final = 1000
RETRY_AFTER_MS: Final = 50  # of a block that could not be had
PREFETCH_AFTER: Final = 900  # ids of a block; so that nobody waits for the next one

OnProducerId = Callable[[int | KafkaError], None]


class BlockSource(Protocol):
    def allocate_producer_ids(self, count: int, then: OnProducerId) -> None:
        """Calls `then`, once durable, with the first of `count` ids that nobody had before; or with why not."""
        ...


class ProducerIds:
    def __init__(self, source: BlockSource, timers: Timers) -> None:
        self._source = source
        self._timers = timers
        self._ids: deque[range] = deque()  # what is left of the current block, and the next one
        self._waiting: deque[OnProducerId] = deque()
        self._is_allocating = False
        self._failure: KafkaError | None = None  # for RETRY_AFTER_MS

    def take(self, then: OnProducerId) -> None:
        """Call `then` (maybe at once) with a producer id that nobody had before, or with why there is none."""
        self._waiting.append(then)
        self._serve()

    def _serve(self) -> None:
        while self._waiting and self._ids:
            block = self._ids.popleft()
            if len(block) > 1:
                self._ids.appendleft(block[1:])
            self._waiting.popleft()(block[0])
        left = sum(len(block) for block in self._ids)
        wants_more = bool(self._waiting) or 0 < left <= BLOCK_SIZE - PREFETCH_AFTER
        if self._failure is not None:
            self._refuse(self._failure)
        elif wants_more and not self._is_allocating:
            self._is_allocating = True
            self._source.allocate_producer_ids(BLOCK_SIZE, self._allocated)

    def _allocated(self, first: int | KafkaError) -> None:
        self._is_allocating = False
        if isinstance(first, KafkaError):
            self._failure = KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, first.message)
            self._timers.after(RETRY_AFTER_MS, self._forget_failure)
            self._refuse(self._failure)
            return
        self._ids.append(range(first, first + BLOCK_SIZE))
        self._serve()

    def _refuse(self, failure: KafkaError) -> None:
        refused, self._waiting = self._waiting, deque()
        for then in refused:
            then(failure)

    def _forget_failure(self) -> None:
        self._failure = None


class TwoPhaseProducers:
    """Producer ids with Enable2Pc, to whom all that is answered survives power failure.

    The cores of the transaction coordinator register them as they replay their records; partitions look them up for
    every transactional batch: by producer id, because a leader that has the transaction open does not look up its
    transactional id. While some transactional ids are not loaded, any producer may be among them.
    """

    __slots__ = ("are_all_known", "ids")

    def __init__(self, *, are_all_known: bool) -> None:
        self.are_all_known = are_all_known
        self.ids: set[int] = set()

    def __contains__(self, producer_id: object) -> bool:
        return producer_id in self.ids or not self.are_all_known
