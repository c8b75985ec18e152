"""The producer, which may be plain, idempotent or transactional. An external coordinator may decide its transactions
(KIP-939)."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Unpack, cast

from odradek.client.common.errors import AbortableError, ClientError, IllegalState, RetriableError
from odradek.client.common.values import (
    ConsumerGroupMetadata,
    Headers,
    OffsetAndMetadata,
    PreparedTxnState,
    RecordMetadata,
    ShareGroupMetadata,
    TopicPartition,
)
from odradek.client.metrics.producer_metrics import ProducerMetrics
from odradek.client.network.cluster import (
    DEFAULT_METADATA_MAX_AGE_MS,
    DEFAULT_REQUEST_TIMEOUT_MS,
    DEFAULT_RETRY_BACKOFF_MAX_MS,
    DEFAULT_RETRY_BACKOFF_MS,
    Cluster,
)
from odradek.client.network.connected import ConnectedClient
from odradek.client.producing.outbox import Outbox
from odradek.client.producing.partitioner import Partitioner, StickyChoice
from odradek.client.producing.plain_identity import PlainIdentity
from odradek.client.producing.producer_batch import COLUMN_BATCH_BYTES, SendFuture, all_of, encoded
from odradek.client.producing.sender import ACKS, ALL, COMPRESSIONS, Sender, SendingRules
from odradek.client.producing.share_acknowledgements import ToAcknowledge, acknowledgements
from odradek.client.producing.transaction import ABORTED_BY_CLOSE, Call, Completion, completion
from odradek.client.producing.transaction_session import TransactionSession
from odradek.client.producing.verdicts import Verdict
from odradek.client.security.settings import Security, SecuritySettings
from odradek.protocol.errors import ErrorCode
from odradek.protocol.key_partition import partition_for_key

if TYPE_CHECKING:
    import pyarrow as pa

DEFAULT_TRANSACTION_TIMEOUT_MS = 60_000
# Maximum of `max_in_flight` with idempotence, because a broker recognises a retried batch only among a producer's last
# five batches in the partition.
MAX_IN_FLIGHT_IN_ORDER = 5
RECORD_OVERHEAD_BYTES = 70  # maximum size of a batch with one record, not counting the record's key, value and headers


class Producer(ConnectedClient):
    """Sends records to topics.

        async with Producer(bootstrap_servers="localhost:9092") as producer:
            written = await producer.send("orders", b"1 book", key=b"kate")
            print((await written).offset)

    `send` returns a future as soon as the record is in the producer's buffer. The future resolves when the broker has
    written the record.

    A producer must be started before use and closed afterwards, preferably with `async with`. With a
    `transactional_id`, records are sent in transactions:

        async with Producer(bootstrap_servers="localhost:9092", transactional_id="shop") as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send("orders", b"1 book")
            await producer.commit_transaction()

    Each record is written exactly once, and the records of a partition are written in the order of the `send` calls,
    even if requests or responses are lost. `enable_idempotence`, which is on by default, ensures this.

    All methods except `metrics` must be called on the event loop that the producer was started on. Methods that send
    records or control transactions raise IllegalState before `start`, after `close`, and if the state of the
    transaction does not allow the call. After a FatalError, such as ProducerFenced, they raise that error again, and
    the producer must be closed.
    """

    def __init__(
        self,
        *,
        bootstrap_servers: str | Sequence[str],
        client_id: str = "odradek",
        transactional_id: str | None = None,
        two_phase_commit: bool = False,
        transaction_timeout_ms: int | None = None,
        acks: int | str = "all",
        enable_idempotence: bool | None = None,
        compression_type: str | None = None,
        batch_size: int = 16_384,
        linger_ms: float = 5,
        max_in_flight: int = MAX_IN_FLIGHT_IN_ORDER,
        max_request_size: int = 1_048_576,
        buffer_memory: int = 33_554_432,
        max_block_ms: float = 60_000,
        delivery_timeout_ms: float = 120_000,
        request_timeout_ms: float = DEFAULT_REQUEST_TIMEOUT_MS,
        retry_backoff_ms: float = DEFAULT_RETRY_BACKOFF_MS,
        retry_backoff_max_ms: float = DEFAULT_RETRY_BACKOFF_MAX_MS,
        metadata_max_age_ms: float = DEFAULT_METADATA_MAX_AGE_MS,
        bootstrap_timeout_ms: float = 0,
        partitioner: Partitioner | None = None,
        rng: random.Random | None = None,
        **security: Unpack[SecuritySettings],
    ) -> None:
        """Creates a producer. `start` connects it. Raises ValueError if settings contradict each other.

        Most settings have the names and meanings of Kafka's Java client. Sizes are in bytes.

        bootstrap_servers         one or more brokers as `host:port`, in a sequence or separated by commas
        client_id                 the name of this client in metrics and in the broker's logs and quotas
        transactional_id          enables transactions. At any time only one producer with this id can be active.
        two_phase_commit          an external coordinator decides the transactions (KIP-939), so they have no timeout.
                                  Requires a `transactional_id`. Kafka calls this setting
                                  `transaction.two.phase.commit.enable`.
        transaction_timeout_ms    how long a transaction may stay open before the broker aborts it; 60,000 by default
        acks                      which replicas must have a record before the broker acknowledges it: "all" in-sync
                                  replicas, 1 for the leader alone, or 0 to wait for no acknowledgement
        enable_idempotence        write each record exactly once and in order. On by default with `acks="all"`, which it
                                  requires.
        compression_type          none (the default), gzip, snappy, lz4 or zstd
        batch_size                size limit of a batch before compression. (Kafka's Java client compares the estimated
                                  size after compression.)
        linger_ms                 how long a batch waits for more records before it is sent
        max_in_flight             how many requests a connection may have in flight; at most 5 with idempotence. Kafka
                                  calls this setting `max.in.flight.requests.per.connection`.
        max_request_size          size limit of a request, and of a record before compression
        buffer_memory             size limit of the records that are waiting to be sent. When it is reached, `send`
                                  waits.
        max_block_ms              how long `send` and the methods for transactions wait before they raise an error
        delivery_timeout_ms       how long after the `send` call the producer keeps trying to write a record before the
                                  record fails
        request_timeout_ms        how long the producer waits for a response before it closes the connection and retries
        retry_backoff_ms          delay after the first failure of a request; it doubles with each additional failure
        retry_backoff_max_ms      upper limit of the delay
        metadata_max_age_ms       how often to refresh the metadata, even if no request fails
        bootstrap_timeout_ms      how long `start` retries if no broker answers; 0 to try each server once
        partitioner               a function (topic, key, number of partitions) -> partition. By default, the murmur2
                                  hash of the key determines the partition. Records without a key fill one batch in one
                                  partition, then the next batch in another.
        rng                       the source of randomness for the default partitioner
        **security                see `odradek.client.security.settings.SecuritySettings`
        """
        if acks not in ACKS:
            raise ValueError(f"acks must be 0, 1 or 'all', not {acks!r}")
        if compression_type is not None and compression_type not in COMPRESSIONS:
            raise ValueError(f"compression_type must be one of {', '.join(COMPRESSIONS)}, not {compression_type!r}")
        is_idempotent = ACKS[acks] == ALL if enable_idempotence is None else enable_idempotence
        if is_idempotent and ACKS[acks] != ALL:
            raise ValueError("enable_idempotence needs acks='all'")
        if max_in_flight < 1 or (is_idempotent and max_in_flight > MAX_IN_FLIGHT_IN_ORDER):
            raise ValueError(f"max_in_flight must be at least 1, and at most {MAX_IN_FLIGHT_IN_ORDER} with idempotence")
        if transactional_id is not None and not is_idempotent:
            raise ValueError("a transactional_id needs idempotence")
        if two_phase_commit and transactional_id is None:
            raise ValueError("two_phase_commit needs a transactional_id")
        if two_phase_commit and transaction_timeout_ms is not None:
            raise ValueError("with two_phase_commit, a transaction has no timeout: leave out transaction_timeout_ms")
        self._metrics: ProducerMetrics = ProducerMetrics(client_id)
        self._cluster = Cluster(
            bootstrap_servers,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            metadata_max_age_ms=metadata_max_age_ms,
            bootstrap_timeout_ms=bootstrap_timeout_ms,
            security=Security.of(security),
            metrics=self._metrics,
        )
        self._metrics.watch(
            requests_in_flight=lambda: self._cluster.requests_in_flight,
            metadata_age_s=lambda: self._cluster.metadata_age_s,
            buffer_bytes=buffer_memory,
            buffered_bytes=lambda: 0 if self._sender is None else self._sender.backlog.buffered_bytes,
            waiting=lambda: 0 if self._sender is None else self._sender.backlog.waiting_for_room,
        )
        self._rules = SendingRules(
            acks=ACKS[acks],
            compression=COMPRESSIONS[compression_type or "none"],
            batch_size=batch_size,
            linger_s=linger_ms / 1000,
            max_in_flight=max_in_flight,
            max_request_size=max_request_size,
            delivery_timeout_s=delivery_timeout_ms / 1000,
            request_timeout_ms=request_timeout_ms,
            metadata_max_age_s=metadata_max_age_ms / 1000,
            is_idempotent=is_idempotent,
            transactional_id=transactional_id,
        )
        self._two_phase_commit = two_phase_commit
        self._transaction_timeout_ms = (
            DEFAULT_TRANSACTION_TIMEOUT_MS if transaction_timeout_ms is None else transaction_timeout_ms
        )
        self._buffer_memory = buffer_memory
        self._max_block_ms = max_block_ms
        self._partitioner = partitioner
        self._rng = rng or random.Random()
        self._sticky: dict[str, StickyChoice] = {}
        self._session: TransactionSession | None = None
        self._plain: PlainIdentity | None = None
        self._sender: Sender | None = None
        self._make_future: Callable[[], SendFuture] | None = None
        self._is_closed = False

    async def start(self) -> None:
        """Connects to the cluster.

        Raises RetriableError if no bootstrap server answers within `bootstrap_timeout_ms`. With the default of 0, each
        server is tried once. After a failure, create a new producer. Raises IllegalState if the producer was already
        started; AuthenticationFailed if a broker refuses the login.
        """
        if self._sender is not None or self._is_closed:
            raise IllegalState("a producer can be started only once")
        try:
            await self._connect()
        except BaseException:
            self._is_closed = True
            raise
        transactional_id = self._rules.transactional_id
        if transactional_id is None:
            self._plain = PlainIdentity(
                self._cluster,
                is_idempotent=self._rules.is_idempotent,
                on_error=self._on_error,
                on_progress=self._on_progress,
            )
            self._sender = Sender(self._cluster, self._rules, self._plain, self._metrics)
            self._plain.start()
        else:
            self._session = TransactionSession(
                self._cluster,
                transactional_id,
                two_phase_commit=self._two_phase_commit,
                transaction_timeout_ms=self._transaction_timeout_ms,
                max_block_ms=self._max_block_ms,
                request_timeout_ms=self._rules.request_timeout_ms,
                on_error=self._on_error,
                on_progress=self._on_progress,
            )
            self._sender = Sender(self._cluster, self._rules, self._session, self._metrics)

    async def close(self, *, timeout_ms: float | None = None) -> None:
        """Closes the producer. If it has no transactional id, first sends all records that were passed to `send`.

        An open transaction is aborted, and its unsent records are discarded. A prepared transaction remains prepared.

        Gives up after `timeout_ms`. If `timeout_ms` is not given and no broker answers, sending the records takes up to
        `delivery_timeout_ms`, and an abort takes up to `request_timeout_ms` plus `max_block_ms`. Errors are not raised
        here: the futures of failed records report them, and the broker aborts a transaction that could not be aborted
        here when the transaction times out.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._sender is not None:
                # If the abort fails here, the transaction is aborted when it times out, or when the next producer
                # initialises this transactional id.
                with suppress(TimeoutError, ClientError):
                    async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                        await self._finish(self._sender)
        finally:
            for part in (self._plain, self._session, self._sender):
                if part is not None:
                    await part.close()
            await self._cluster.close()

    async def send(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> asyncio.Future[RecordMetadata]:
        """Adds a record to the open batch of its partition and returns a future for the record's metadata.

        partition      the partition to write to; chosen by the partitioner if left out
        timestamp_ms   the record's time in ms since 1970; the current time if left out
        headers        pairs of a name and a value, which may be None

        The future resolves when the broker has written the record, or fails with a ClientError. The call itself waits
        only while the buffer is full or, the first time a topic is used, for its metadata. If the call is cancelled,
        the record may still be sent.

        Raises RetriableError if the wait exceeds `max_block_ms`, for example because the topic does not exist. Raises
        ClientError if the record is larger than `max_request_size`, if the topic's name is invalid, or if the partition
        does not exist. If a transaction is open, the call raises AbortableError instead of either error, and the
        transaction must be aborted. Raises IllegalState if the producer has a transactional id and no transaction is
        open.
        """
        sender = self._enter_call(Call.SEND)
        size_bytes = RECORD_OVERHEAD_BYTES + len(value or b"") + len(key or b"")
        record_headers: Headers = ()
        if headers:
            record_headers = tuple(headers)
            size_bytes += sum(10 + 3 * len(name) + len(content or b"") for name, content in record_headers)
        outboxes = sender.outboxes(topic)
        if (
            outboxes is None
            or sender.backlog.buffered_bytes > self._buffer_memory
            or size_bytes > self._rules.max_request_size
        ):
            outboxes = await self._wait_to_send(sender, topic, size_bytes)
        if partition is None:
            partition = self._partition(topic, key, size_bytes, len(outboxes))
        elif not 0 <= partition < len(outboxes):
            raise self._no_such_partition(topic, partition, len(outboxes))
        now_ms = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
        future: SendFuture = (self._make_future or sender.loop.create_future)()
        is_batch_full = sender.add(outboxes[partition], key, value, record_headers, now_ms, future)
        if self._session is not None:
            self._session.note_sending()
        if is_batch_full:
            # A batch has just been sent. Let the event loop read responses, even if the application never pauses
            # between calls.
            await asyncio.sleep(0)
        return cast("asyncio.Future[RecordMetadata]", future)

    async def send_batch(
        self,
        topic: str,
        partition: int,
        keys: pa.Array | None,
        values: pa.Array,
        timestamps_ms: pa.Array | None = None,
        headers: pa.Array | None = None,
        *,
        batch_bytes: int = COLUMN_BATCH_BYTES,
    ) -> asyncio.Future[list[RecordMetadata]]:
        """Sends Arrow columns, one record per row, without creating an object per record. Needs `odradek[columns]`.

        keys, values    binary or string; nulls are allowed
        timestamps_ms   int64; the current time if left out
        headers         lists of struct(key: string, value: binary)
        batch_bytes     size limit of a record batch before compression, capped at `max_request_size`. The topic's
                        max.message.bytes must allow batches of this size.

        The rows are written in order, after all records that were sent before, in as many record batches as necessary.
        The future resolves to the metadata of the first record of each batch, or fails with a ClientError. The call
        waits in the same situations as `send`. If any row cannot be encoded or is too large, no rows are sent.

        Raises ValueError if the columns have different lengths or a row cannot be encoded. Raises RetriableError if the
        wait exceeds `max_block_ms`, and ClientError if a record is larger than `max_request_size` or the partition does
        not exist. If a transaction is open, the call raises AbortableError instead of RetriableError or ClientError,
        and the transaction must be aborted. Raises IllegalState if the producer has a transactional id and no
        transaction is open.
        """
        sender = self._enter_call(Call.SEND)
        outboxes = await self._wait_to_send(sender, topic, 0)
        if not 0 <= partition < len(outboxes):
            raise self._no_such_partition(topic, partition, len(outboxes))
        limit = self._rules.max_request_size
        batches = encoded(keys, values, timestamps_ms, headers, min(batch_bytes, limit), self._rules.compression)
        if any(len(batch.data) > limit for batch in batches):
            raise self._refusal(
                f"a record is larger than the {limit} bytes that max_request_size allows", ErrorCode.MESSAGE_TOO_LARGE
            )
        futures = []
        for batch in batches:
            if sender.backlog.buffered_bytes > self._buffer_memory:
                await self._wait_to_send(sender, topic, 0)
            futures.append(sender.loop.create_future())
            sender.add_batch(outboxes[partition], batch, futures[-1])
            if self._session is not None:
                self._session.note_sending()
            await asyncio.sleep(0)
        return all_of(futures)

    def make_futures_with(self, make: Callable[[], SendFuture]) -> None:
        """Sets the function that creates the futures that `send` returns. `odradek.client.sync.Producer` uses this
        method to get futures that other threads can wait for."""
        self._make_future = make

    async def flush(self) -> None:
        """Waits until every record that was passed to `send` has been written or has failed.

        A record's error is raised by its future, not by this call. Raises IllegalState before `start`, after `close`,
        and if the state of the transaction does not allow the call; AbortableError if the open transaction must be
        aborted; FatalError if the producer cannot continue.
        """
        with self._metrics.flush:
            await self._enter_call(Call.FLUSH).flush()

    # Transactions.

    async def init_transactions(self, keep_prepared: bool = False) -> PreparedTxnState | None:
        """Registers the transactional id, which fences earlier producers with the same id and aborts any transaction
        that they left open. Call it once, before the first transaction.

        keep_prepared   do not abort a prepared transaction, but return its state, or None if no transaction is
                        prepared. The transaction can then only be committed, aborted or completed.

        Raises RetriableError if the coordinator does not answer within `max_block_ms`; the call can be repeated. Raises
        IllegalState without a transactional id, or if the call has already succeeded. Raises AuthorizationFailed, or
        AbortableError, if the client has no permission to use the transactional id; after an AbortableError, call
        `abort_transaction` before you repeat the call. Raises FatalError if two-phase commit is requested and the
        cluster's transaction.version is below 2.
        """
        session = self._transaction_session()
        session.enter(Call.INIT)
        with self._metrics.init:
            await session.init(keep_prepared=keep_prepared)
        return session.prepared if session.prepared.has_transaction else None

    async def begin_transaction(self) -> None:
        """Begins a transaction.

        The call usually sends no request. The broker is contacted only if a transaction has just been recovered
        (`keep_prepared=True`), or if the cluster's transaction.version has changed. Raises RetriableError if the broker
        does not answer within `max_block_ms`; IllegalState before `init_transactions`, or if a transaction is open.
        """
        with self._metrics.begin:
            await self._transaction_session().begin()

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], group: str | ConsumerGroupMetadata
    ) -> None:
        """Commits a consumer group's offsets as part of the transaction.

        offsets   the offset of the next record to read in each partition
        group     the consumer's `group_metadata()`, or a group id. With the metadata, the broker refuses the offsets of
                  a consumer that was removed from its group; with only a group id, it cannot check this.

        Raises AbortableError if the broker refuses the offsets, for example because the consumer was removed from its
        group, or if it does not answer within `max_block_ms`. Raises IllegalState if no transaction is open.
        """
        session = self._transaction_session()
        session.enter(Call.SEND_OFFSETS)
        with self._metrics.send_offsets:
            await session.send_offsets(
                {
                    TopicPartition(*partition): OffsetAndMetadata(offset) if isinstance(offset, int) else offset
                    for partition, offset in offsets.items()
                },
                ConsumerGroupMetadata(group) if isinstance(group, str) else group,
            )

    async def send_share_acknowledgements_to_transaction(
        self, records: ToAcknowledge, group: ShareGroupMetadata
    ) -> None:
        """Acknowledges records from a share group as part of the transaction (KIP-1289).

        A commit makes the acknowledgements final, together with the transaction's records. An abort undoes them. Until
        the transaction ends, the consumer does not acknowledge these records itself.

        records   records to accept, or ranges of offsets, each with ACCEPT or REJECT
        group     the `share_group_metadata()` of the consumer that has acquired the records. If you build the metadata
                  yourself, make sure that no consumer with implicit acknowledgement holds these records.

        Raises AbortableError with the code INVALID_RECORD_STATE if a record no longer belongs to the consumer, if the
        application has already acknowledged it through the consumer, or if the type is RELEASE, RENEW or a gap. Raises
        AbortableError with UNSUPPORTED_VERSION, before anything is sent, if a broker does not support the request.
        After either error the transaction can only be aborted. Raises IllegalState if no transaction is open.
        """
        self._metrics.acknowledgements.record()
        try:
            await self._send_acknowledgements(records, group)
        except BaseException:
            self._metrics.acknowledgement_errors.record()
            raise

    async def _send_acknowledgements(self, records: ToAcknowledge, group: ShareGroupMetadata) -> None:
        session = self._transaction_session()
        session.enter(Call.SEND_ACKNOWLEDGEMENTS)
        try:
            given = acknowledgements(records)
            if group.claim is not None:
                session.on_end(group.claim(given))
        except AbortableError as error:
            session.on_failure(Verdict.ABORT, error)
            raise
        await session.send_acknowledgements(given, group)

    async def prepare_transaction(self) -> PreparedTxnState:
        """Flushes, then prepares the transaction, so that an external coordinator can decide it (KIP-939).

        Afterwards only commit, abort and complete are allowed, even after a crash. The returned state identifies the
        transaction. The state is empty if nothing was sent, because then there is no transaction. Raises AbortableError
        if a record or an offset could not be written; IllegalState without `two_phase_commit`, or if no transaction is
        open.
        """
        session = self._transaction_session()
        if not self._two_phase_commit:
            raise IllegalState(
                "only a producer with two_phase_commit can prepare a transaction", ErrorCode.INVALID_TXN_STATE
            )
        session.enter(Call.PREPARE)
        with self._metrics.prepare:
            await self._started_sender().flush()
            return await session.prepare()

    async def complete_transaction(self, state: PreparedTxnState) -> None:
        """Commits the prepared transaction if `state` identifies it and aborts it otherwise.

        Does nothing if `init_transactions(keep_prepared=True)` found no prepared transaction. Raises the errors of
        `commit_transaction` and `abort_transaction`, and IllegalState if no transaction is prepared.
        """
        session = self._transaction_session()
        session.raise_error()
        match completion(session.state, session.prepared, state):
            case Completion.COMMIT:
                await self.commit_transaction()
            case Completion.ABORT:
                await self.abort_transaction()
            case Completion.NOTHING:
                session.enter(Call.COMPLETE)

    async def commit_transaction(self) -> None:
        """Flushes, then commits the transaction.

        Raises AbortableError if a record or an offset could not be written. Raises RetriableError if the coordinator
        does not answer within `max_block_ms`: the transaction may already be committed, and it is safe to repeat the
        call. Raises IllegalState if no transaction is open; ProducerFenced if a newer producer has taken over.
        """
        session = self._transaction_session()
        session.enter(Call.COMMIT)
        sender = self._started_sender()
        with self._metrics.commit:
            await sender.flush()
            session.raise_error()
            await session.end(committed=True, needs_new_epoch=sender.needs_new_epoch)

    async def abort_transaction(self) -> None:
        """Discards unsent records and aborts the transaction.

        Raises RetriableError if the coordinator does not answer within `max_block_ms`; repeat the call. Raises
        IllegalState if no transaction is open; ProducerFenced if a newer producer has taken over.
        """
        session = self._transaction_session()
        session.enter(Call.ABORT)
        with self._metrics.abort:
            await self._abort(session, self._started_sender())

    # Internals.

    async def _abort(self, session: TransactionSession, sender: Sender) -> None:
        sender.discard_batches(AbortableError("the transaction was aborted"))
        await sender.flush()
        session.raise_error()
        await session.end(committed=False, needs_new_epoch=sender.needs_new_epoch)
        sender.accept_batches()

    async def _finish(self, sender: Sender) -> None:
        session = self._session
        if session is None:
            await sender.flush()
        elif session.state in ABORTED_BY_CLOSE and not session.prepared.has_transaction:
            session.enter(Call.ABORT)
            await self._abort(session, sender)

    def _enter_call(self, call: Call) -> Sender:
        sender = self._started_sender()
        if self._session is not None:
            self._session.enter(call)
        elif self._plain is not None and self._plain.error is not None:
            raise self._plain.error
        return sender

    def _started_sender(self) -> Sender:
        if self._sender is None:
            raise IllegalState("the producer was not started")
        if self._is_closed:
            raise IllegalState("the producer is closed")
        return self._sender

    def _transaction_session(self) -> TransactionSession:
        self._started_sender()
        if self._session is None:
            raise IllegalState("a producer without a transactional_id cannot use transactions")
        return self._session

    async def _wait_to_send(self, sender: Sender, topic: str, size_bytes: int) -> list[Outbox]:
        if size_bytes > self._rules.max_request_size:
            raise self._refusal(
                f"the record has {size_bytes} bytes, but max_request_size allows only {self._rules.max_request_size}",
                ErrorCode.MESSAGE_TOO_LARGE,
            )
        ends_at = time.monotonic() + self._max_block_ms / 1000
        try:
            outboxes = sender.outboxes(topic)
            if not outboxes:
                with self._metrics.metadata_wait:
                    outboxes = await sender.load_topic(topic, self._max_block_ms)
            if sender.backlog.buffered_bytes > self._buffer_memory:
                with self._metrics.buffer_wait:
                    await self._wait_for_room(sender, ends_at)
        except ClientError as error:
            if self._session is None:
                raise
            raise self._refusal(str(error), error.code) from error
        self._enter_call(Call.SEND)  # raises an error if the transaction has failed during the wait
        return outboxes

    async def _wait_for_room(self, sender: Sender, ends_at: float) -> None:
        """Waits until there is room in the buffer, but at most until `ends_at`. Raises RetriableError on timeout."""
        while sender.backlog.buffered_bytes > self._buffer_memory:
            try:
                await sender.backlog.wait_for_room(ends_at - time.monotonic())
            except RetriableError:
                self._metrics.buffer_exhausted.record()
                raise

    def _refusal(self, text: str, code: ErrorCode | None) -> ClientError:
        """Returns the error for a record that was not accepted. In a transaction, the error also forces an abort,
        because the transaction could otherwise be committed without the record, and the loss would go unnoticed."""
        if self._session is None:
            return ClientError(text, code)
        error = AbortableError(text, code)
        self._session.on_failure(Verdict.ABORT, error)
        return error

    def _no_such_partition(self, topic: str, partition: int, partition_count: int) -> ClientError:
        message = f"{topic} has no partition {partition}; it has {partition_count} partitions"
        return self._refusal(message, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _partition(self, topic: str, key: bytes | None, size_bytes: int, partition_count: int) -> int:
        if self._partitioner is not None:
            return self._partitioner(topic, key, partition_count)
        if key is not None:
            return partition_for_key(key, partition_count)
        if partition_count == 1:
            return 0
        choice = self._sticky.get(topic)
        if choice is None:
            choice = self._sticky[topic] = StickyChoice(self._rules.batch_size, self._rng)
        return choice.partition(size_bytes, partition_count)

    def _on_error(self, error: ClientError) -> None:
        """Fails all waiting records, because this transaction, or the entire producer, cannot send anything more."""
        if self._sender is not None:
            self._sender.discard_batches(error)

    def _on_progress(self) -> None:
        if self._sender is not None:
            self._sender.send_soon()
