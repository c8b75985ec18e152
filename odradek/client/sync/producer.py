"""`odradek.client.Producer` without `await`."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from odradek.client import producer
from odradek.client.common.values import RecordMetadata
from odradek.client.producing.producer_batch import COLUMN_BATCH_BYTES
from odradek.client.sync.background import Blocking, Work, blocking, with_parameters_of

if TYPE_CHECKING:
    import pyarrow as pa

R = TypeVar("R")

MAX_WAITING_BYTES = 1024 * 1024  # limit on the bytes that `send` has accepted and the loop has not read yet
OVERHEAD_BYTES = 100  # estimated size of a record in addition to its key and value


class RecordFuture(Future[RecordMetadata]):
    """A future for a record's metadata. It cannot be cancelled."""

    def cancel(self) -> bool:
        return False


Sending = tuple[
    int, RecordFuture, str, bytes | None, bytes | None, int | None, int | None, Iterable[tuple[str, bytes | None]]
]
"""A record on its way to the loop: its approximate size, its future, then topic, value, key, partition, timestamp and
headers as passed to `send`."""


class Producer(Blocking[producer.Producer]):
    """Sends records to topics in a program without an event loop. `odradek.client.Producer` describes the settings.

        with Producer(bootstrap_servers="localhost:9092") as producer:
            producer.send("orders", b"value", key=b"key")

    A producer must be started before use and closed afterwards, preferably with `with`. Several threads may use it. A
    transaction, however, belongs to the producer, not to a thread.
    """

    @with_parameters_of(producer.Producer)
    def __init__(self, make: Callable[[], producer.Producer]) -> None:
        self._sendings: deque[Sending] = deque()
        self._lock = threading.Lock()
        self._taken_bytes = 0  # bytes that `send` has accepted; `_passed_bytes` of them have been read by the loop
        self._passed_bytes = 0
        self._is_passing = False
        self._passing: asyncio.Task[None] | None = None
        self._refused: Exception | None = None
        self._next = RecordFuture()  # the future of the record that is being passed to the asyncio producer
        super().__init__(make)
        self._client.make_futures_with(lambda: self._next)

    start = blocking(producer.Producer.start)

    def close(self, *, timeout_ms: float | None = None) -> None:
        """Closes the producer. If it has no transactional id, first sends all records that were passed to `send`. Gives
        up after `timeout_ms`.

        An open transaction is aborted, and its unsent records are discarded. A prepared transaction remains prepared. A
        record's error is raised by its future, not by this call.
        """
        super()._wait(lambda: self._after_sending(lambda: self._client.close(timeout_ms=timeout_ms), raises=False))

    def send(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> Future[RecordMetadata]:
        """Sends a record and returns a future for its metadata. Waits only while too many bytes are on their way to the
        loop or to the broker.

        The future resolves to the record's metadata, or fails with a ClientError. Errors in the call itself (the record
        is too large, no transaction is open) also fail the future. To make sure that such an error does not go
        unnoticed, the next call to any other method, except `abort_transaction` and `close`, raises the error again.
        """
        future = RecordFuture()
        size_bytes = OVERHEAD_BYTES + len(key or b"") + len(value or b"")
        with self._lock:
            self._taken_bytes += size_bytes
        self._sendings.append((size_bytes, future, topic, value, key, partition, timestamp_ms, headers))
        if not self._is_passing:
            self._is_passing = True
            self._background.call_soon(self._begin_to_pass)
        if self._taken_bytes - self._passed_bytes > MAX_WAITING_BYTES:
            super()._wait(lambda: self._after_sending(_nothing, raises=False))
        return future

    def send_batch(
        self,
        topic: str,
        partition: int,
        keys: pa.Array | None,
        values: pa.Array,
        timestamps_ms: pa.Array | None = None,
        headers: pa.Array | None = None,
        *,
        batch_bytes: int = COLUMN_BATCH_BYTES,
    ) -> Future[list[RecordMetadata]]:
        """Sends Arrow columns, one record per row, without creating an object per record. Needs `odradek[columns]`.

        keys, values    binary or string; nulls are allowed
        timestamps_ms   int64; the current time if left out
        headers         lists of struct(key: string, value: binary)
        batch_bytes     size limit of a record batch before compression, capped at `max_request_size`

        The rows are written in order, after all records that were sent before. The future resolves to the metadata of
        the first record of each batch, or fails with a ClientError. If any row cannot be encoded or is too large, no
        rows are sent.

        Raises ValueError if the columns have different lengths or a row cannot be encoded. Raises RetriableError if the
        wait for the buffer or for metadata exceeds `max_block_ms`, and ClientError if a record is too large or the
        partition does not exist. If a transaction is open, the call raises AbortableError instead of RetriableError or
        ClientError, and the transaction must be aborted. Raises IllegalState if the producer has a transactional id and
        no transaction is open. The call also raises the error of an earlier `send` call.
        """
        sent: Future[list[RecordMetadata]] = Future()

        async def send() -> None:
            future = await self._client.send_batch(
                topic, partition, keys, values, timestamps_ms, headers, batch_bytes=batch_bytes
            )
            future.add_done_callback(partial(_pass_outcome, sent))

        self._wait(send)
        return sent

    flush = blocking(producer.Producer.flush)
    init_transactions = blocking(producer.Producer.init_transactions)
    begin_transaction = blocking(producer.Producer.begin_transaction)
    send_offsets_to_transaction = blocking(producer.Producer.send_offsets_to_transaction)
    send_share_acknowledgements_to_transaction = blocking(producer.Producer.send_share_acknowledgements_to_transaction)
    prepare_transaction = blocking(producer.Producer.prepare_transaction)
    complete_transaction = blocking(producer.Producer.complete_transaction)
    commit_transaction = blocking(producer.Producer.commit_transaction)

    def abort_transaction(self) -> None:
        """Discards unsent records, aborts the transaction, and clears pending errors from `send`.

        Raises RetriableError if the coordinator does not answer within `max_block_ms`; repeat the call. Raises
        IllegalState if no transaction is open; ProducerFenced if a newer producer has taken over.
        """
        super()._wait(lambda: self._after_sending(self._client.abort_transaction, raises=False))
        self._refused = None

    def _wait(self, work: Work[R]) -> R:
        return super()._wait(lambda: self._after_sending(work, raises=True))

    # The following methods run on the loop.

    async def _after_sending(self, work: Work[R], *, raises: bool) -> R:
        """Runs `work()` after all earlier records have been passed to the asyncio producer and returns its result. If
        `raises` is set, raises the error of an earlier `send` call instead."""
        while self._sendings or self._passing is not None:
            self._begin_to_pass()
            assert self._passing is not None
            await asyncio.shield(self._passing)
        if raises and self._refused is not None:
            refused, self._refused = self._refused, None
            raise refused
        return await work()

    def _begin_to_pass(self) -> None:
        if self._passing is None:
            self._passing = asyncio.get_running_loop().create_task(self._pass_on())

    async def _pass_on(self) -> None:
        send, sendings = self._client.send, self._sendings
        try:
            while True:
                while sendings:
                    size_bytes, self._next, topic, value, key, partition, timestamp_ms, headers = sendings.popleft()
                    self._passed_bytes += size_bytes
                    try:
                        await send(
                            topic, value, key=key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
                        )
                    except Exception as error:
                        self._refused = error
                        self._next.set_exception(error)
                self._is_passing = False
                # `send` starts no new task while `_is_passing` is set, so a record may have been added just before this
                # task cleared `_is_passing`.
                if not sendings:
                    return
                self._is_passing = True
        finally:
            self._passing = None


def _pass_outcome(to: Future[list[RecordMetadata]], done: asyncio.Future[list[RecordMetadata]]) -> None:
    if (error := done.exception()) is not None:
        to.set_exception(error)
    else:
        to.set_result(done.result())


async def _nothing() -> None:
    pass
