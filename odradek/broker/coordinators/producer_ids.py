"""Allocates producer ids for idempotent and transactional producers, in blocks of 1,000 from the metadata log.

A block is durable in the metadata log before its first id is used, and a restart discards the rest of the block, so no
id is used twice. One record is enough for a thousand producers. If no block can be allocated, requests fail with
COORDINATOR_LOAD_IN_PROGRESS, as in Kafka, because all clients retry after this error.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from odradek.broker.runtime.clock import Timers
from odradek.protocol.errors import ErrorCode, KafkaError

BLOCK_SIZE: Final = 1000
RETRY_AFTER_MS: Final = 50  # pause after a failed allocation
# The next block is allocated after this many ids of a block have been used, so that no request has to wait for the
# block.
PREFETCH_AFTER: Final = 900

OnProducerId = Callable[[int | KafkaError], None]


class BlockSource(Protocol):
    def allocate_producer_ids(self, count: int, then: OnProducerId) -> None:
        """Allocates `count` unused ids. Calls `then` with the first id once the allocation is durable, or with an
        error."""
        ...


class ProducerIds:
    def __init__(self, source: BlockSource, timers: Timers) -> None:
        self._source = source
        self._timers = timers
        self._ids: deque[range] = deque()  # the rest of the current block, and the next block if allocated
        self._waiting: deque[OnProducerId] = deque()
        self._is_allocating = False
        self._failure: KafkaError | None = None  # the last error, kept for RETRY_AFTER_MS

    def allocate(self, then: OnProducerId) -> None:
        """Calls `then`, possibly immediately, with an unused producer id, or with an error."""
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
