"""Sends batches from the outboxes to the leaders of their partitions and passes the responses back to the outboxes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from odradek.client.common.errors import (
    STALE_METADATA,
    AbortableError,
    AuthenticationFailed,
    ClientError,
    RetriableError,
    code_of,
)
from odradek.client.common.values import Headers, TopicPartition
from odradek.client.metrics.producer_metrics import ProducerMetrics
from odradek.client.network.cluster import Cluster
from odradek.client.network.connection import Connection
from odradek.client.producing.outbox import SEQUENCE_LOST, Backlog, Gap, Outbox
from odradek.client.producing.producer_batch import EncodedRecords, ProducerBatch, ProducerIdentity, SendFuture
from odradek.client.producing.routes import (
    LeaderRoutes,
    answers_by_partition,
    base_offset,
    explanation,
    log_append_time_ms,
    produce_request,
    version_bounds,
)
from odradek.client.producing.verdicts import Verdict, as_exception, verdict
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.compression import Compression
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.produce_request import ProduceRequest
from odradek.protocol.messages.produce_response import ProduceResponse

ALL = -1  # acks value that waits for all in-sync replicas
ACKS: Mapping[str | int, int] = {"all": ALL, -1: ALL, 0: 0, 1: 1}
COMPRESSIONS: Mapping[str, Compression] = {kind.name.lower(): kind for kind in Compression}


@dataclass(frozen=True, slots=True)
class SendingRules:
    acks: int
    compression: Compression
    batch_size: int  # size limit of a batch before compression, in bytes
    linger_s: float
    max_in_flight: int  # maximum number of requests in flight on one connection
    max_request_size: int  # size limit of a request, in bytes
    delivery_timeout_s: float
    request_timeout_ms: float
    metadata_max_age_s: float
    is_idempotent: bool
    transactional_id: str | None


class SendingPermission(Protocol):
    """The identity under which batches are sent, and the permission to send them."""

    @property
    def identity(self) -> ProducerIdentity | None:
        """The producer id and epoch, or None while they are being acquired."""

    @property
    def is_transaction_v2(self) -> bool: ...

    def may_send_to(self, partition: TopicPartition) -> bool:
        """Returns whether batches may be sent to this partition now. If not, the sender is woken as soon as sending is
        allowed."""

    def on_failure(self, verdict: Verdict, error: ClientError) -> None:
        """Called when a batch has failed with the verdict ABORT or FATAL."""

    def on_lost_sequence(self, partition: TopicPartition, identity: ProducerIdentity) -> ProducerIdentity | None:
        """Called when records of this identity were given up without a known outcome. Returns the identity for the
        partition's next batches, or None if there is no identity or it is still being acquired."""


class Sender:
    """Sends batches to the leaders and processes their responses. All code runs on the event loop, most of it in
    `_send_ready_batches`, which sends all batches that may be sent now."""

    def __init__(
        self, cluster: Cluster, rules: SendingRules, permission: SendingPermission, metrics: ProducerMetrics
    ) -> None:
        self._metrics = metrics
        self._cluster = cluster
        self._rules = rules
        self._permission = permission
        self.loop = asyncio.get_running_loop()
        self._topics: dict[str, list[Outbox]] = {}
        self._busy: dict[Outbox, None] = {}  # outboxes with batches waiting to be sent
        self._requests: dict[Connection, int] = {}  # number of requests in flight on each connection
        self._routes = LeaderRoutes(
            cluster,
            self._topics.keys(),
            max_age_s=rules.metadata_max_age_s,
            on_change=self._on_route_change,
            on_refused=self._on_refused_login,
        )
        self._wake: asyncio.TimerHandle | None = None
        self._wakes_at = 0.0
        self._will_send_soon = False
        self._rejects: ClientError | None = None
        self.backlog = Backlog()

    # Methods called by the producer.

    def outboxes(self, topic: str) -> list[Outbox] | None:
        """Returns the outboxes of a topic by partition index. Returns None if the topic must first be looked up with
        `load_topic`."""
        return self._topics.get(topic)

    async def load_topic(self, topic: str, timeout_ms: float) -> list[Outbox]:
        """Looks up a topic and returns its outboxes. Raises RetriableError on timeout, and ClientError for an invalid
        name."""
        await self._cluster.topic(topic, timeout_ms=timeout_ms)
        return self._add_outboxes(topic)

    def add(
        self,
        outbox: Outbox,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        future: SendFuture,
    ) -> bool:
        """Adds a record to the open batch of this outbox. Returns whether the record has filled a batch."""
        waiting, limit = outbox.waiting, self._rules.batch_size
        if waiting:
            batch = waiting[-1]
            if not batch.is_closed:
                before = batch.size_bytes
                if batch.append(key, value, headers, timestamp_ms, limit, future):
                    self.backlog.buffered_bytes += batch.size_bytes - before
                    return False
        batch = outbox.open_batch(self.loop.time(), timestamp_ms)
        try:
            batch.append(key, value, headers, timestamp_ms, limit, future)
        except BaseException:  # the key or value is not bytes
            waiting.pop()
            raise
        self._busy[outbox] = None
        self.backlog.add(outbox, batch)
        if len(waiting) > 1:
            self._send_ready_batches()
            return True
        if self._rules.linger_s <= 0:
            self.send_soon()
        else:
            self._wake_at(batch.created_at + self._rules.linger_s)
        return False

    def add_batch(self, outbox: Outbox, encoded: EncodedRecords, future: SendFuture) -> None:
        """Sends an encoded batch unchanged, after everything that was added before it."""
        batch = outbox.open_batch(self.loop.time(), encoded.base_timestamp)
        batch.fill(encoded, future)
        self._busy[outbox] = None
        self.backlog.add(outbox, batch)
        self._send_ready_batches()

    async def flush(self) -> None:
        """Waits until all current batches are settled, whether they were written or have failed."""
        unsettled = self.backlog.unsettled_batches(
            batch for outbox in self._all_outboxes() for batch in outbox.in_flight
        )
        if unsettled:
            finished = self.backlog.flush(unsettled)
            self._send_ready_batches()
            await finished

    def discard_batches(self, error: ClientError) -> None:
        """Fails all batches that are not in flight. Until `accept_batches` is called, a batch in flight that would have
        to be sent again fails too."""
        self._rejects = error
        for outbox in self._all_outboxes():
            for batch in outbox.discard_waiting():
                self._fail(batch, error)  # no topic: the metrics do not record a discarded batch as a send error
                self.backlog.mark_settled(batch)
        self._busy.clear()

    def accept_batches(self) -> None:
        self._rejects = None

    def needs_new_epoch(self, identity: ProducerIdentity) -> bool:
        """Returns whether any partition has sequences with this identity that cannot continue."""
        return any(outbox.needs_new_epoch(identity) for outbox in self._all_outboxes())

    async def close(self) -> None:
        """Stops sending. Fails all batches that are not done."""
        self.discard_batches(RetriableError("the producer was closed"))
        if self._wake is not None:
            self._wake.cancel()
        await self._routes.close()

    def send_soon(self) -> None:
        if not self._will_send_soon:
            self._will_send_soon = True
            self.loop.call_soon(self._send_ready_batches)

    # Sending.

    def _send_ready_batches(self) -> None:
        self._will_send_soon = False
        now = self.loop.time()
        self._expire_batches(now)
        identity = self._permission.identity
        if identity is None:
            return
        by_leader: dict[int, list[Outbox]] = {}
        oldest = self.backlog.oldest_batch()
        wake_at = None if oldest is None else oldest[1].created_at + self._rules.delivery_timeout_s
        for outbox in list(self._busy):
            if not outbox.waiting:
                del self._busy[outbox]
                continue
            if outbox.needs_new_epoch(identity):
                anew = self._permission.on_lost_sequence(outbox.partition, outbox.identity)
                if anew is None:
                    return
                identity = anew
                self._begin_epoch(outbox, identity)
                if not outbox.waiting:
                    continue
            due_at = self._due_at(outbox)
            if due_at > now:
                wake_at = due_at if wake_at is None else min(wake_at, due_at)
                continue
            leader = self._routes.leader(outbox.partition)
            if leader is not None and self._permission.may_send_to(outbox.partition):
                by_leader.setdefault(leader, []).append(outbox)
        if wake_at is not None:
            self._wake_at(wake_at)
        for node_id, outboxes in by_leader.items():
            connection = self._routes.connection(node_id)
            if connection is not None:
                self._send_all(connection, outboxes, identity, now)

    def _due_at(self, outbox: Outbox) -> float:
        """Returns the time, in seconds on the loop's clock, when the outbox's oldest waiting batch may be sent."""
        head = outbox.waiting[0]
        if head.attempts:
            return outbox.retry_at
        if head.is_closed or self.backlog.is_flushing:
            return outbox.retry_at
        return max(outbox.retry_at, head.created_at + self._rules.linger_s)

    def _send_all(self, connection: Connection, outboxes: list[Outbox], identity: ProducerIdentity, now: float) -> None:
        while outboxes and self._requests.get(connection, 0) < self._rules.max_in_flight:
            chosen: list[tuple[Outbox, ProducerBatch]] = []
            size_bytes = 0
            for outbox in outboxes:
                batch = outbox.next_to_send(identity)
                if batch is None or (chosen and size_bytes + batch.size_bytes > self._rules.max_request_size):
                    continue
                outbox.mark_sent(batch, identity)
                size_bytes += batch.size_bytes
                chosen.append((outbox, batch))
            if not chosen:
                return
            self._send(connection, chosen)
            outboxes = [outbox for outbox in outboxes if outbox.waiting and self._due_at(outbox) <= now]

    def _send(self, connection: Connection, batches: list[tuple[Outbox, ProducerBatch]]) -> None:
        rules = self._rules
        is_transactional = rules.transactional_id is not None
        sealed = [
            (outbox.partition, batch.seal(rules.compression, is_transactional=is_transactional))
            for outbox, batch in batches
        ]
        request = produce_request(
            sealed,
            transactional_id=rules.transactional_id,
            acks=rules.acks,
            timeout_ms=int(rules.request_timeout_ms),
        )
        oldest, newest = version_bounds(
            is_transactional=is_transactional, is_transaction_v2=self._permission.is_transaction_v2
        )
        try:
            version = connection.version(ProduceRequest, newest, oldest)
            if rules.acks == 0:
                connection.send_unanswered(request, version)
                self._measure(batches, sealed)
                for outbox, batch in batches:
                    self._complete_batch(outbox, batch, None, None)
                return
            reply = connection.send(request, version, ProduceResponse)
        except ClientError as error:
            for outbox, batch in batches:
                self._handle_error(outbox, batch, error.code or ErrorCode.NETWORK_EXCEPTION, str(error))
            return
        self._measure(batches, sealed)
        self._requests[connection] = self._requests.get(connection, 0) + 1
        reply.add_done_callback(partial(self._handle_response, connection, batches))

    def _measure(
        self, batches: list[tuple[Outbox, ProducerBatch]], sealed: list[tuple[TopicPartition, bytearray]]
    ) -> None:
        metrics, now, records = self._metrics, self.loop.time(), 0
        for (_, batch), ((topic, _), data) in zip(batches, sealed, strict=True):
            records += batch.record_count
            queued_s = now - batch.created_at if batch.attempts == 1 else None
            metrics.record_batch(topic, batch.record_count, len(data), len(data) / batch.size_bytes, queued_s)
        metrics.record_request(records)

    # Responses.

    def _handle_response(
        self,
        connection: Connection,
        batches: list[tuple[Outbox, ProducerBatch]],
        reply: asyncio.Future[ProduceResponse],
    ) -> None:
        under_way = self._requests[connection] - 1
        if under_way:
            self._requests[connection] = under_way
        else:
            del self._requests[connection]
        lost = reply.exception()
        answers = {} if lost is not None else answers_by_partition(reply.result())
        for outbox, batch in batches:
            answer = answers.get(outbox.partition)
            if lost is not None:
                self._handle_error(outbox, batch, ErrorCode.NETWORK_EXCEPTION, str(lost), was_lost=True)
            elif answer is None:
                self._handle_error(
                    outbox, batch, ErrorCode.NETWORK_EXCEPTION, "the broker's answer does not contain this partition"
                )
            elif answer.error_code == 0:
                self._complete_batch(outbox, batch, base_offset(answer), log_append_time_ms(answer))
            elif answer.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER.value:
                self._complete_batch(outbox, batch, None, None)
            else:
                self._handle_error(outbox, batch, code_of(answer.error_code), explanation(answer))
                self._routes.adopt_leader(outbox.partition, answer)
        self._send_ready_batches()

    def _complete_batch(
        self, outbox: Outbox, batch: ProducerBatch, first_offset: int | None, time_ms: int | None
    ) -> None:
        outbox.remove_written(batch)
        if not batch.is_done:
            batch.succeed(*outbox.partition, first_offset, time_ms)
            self.backlog.mark_done(batch)
        self.backlog.mark_settled(batch)

    def _handle_error(
        self, outbox: Outbox, batch: ProducerBatch, code: ErrorCode, text: str, *, was_lost: bool = False
    ) -> None:
        """Handles a batch's failure. If the connection was lost, the batch may nevertheless have been written."""
        topic, index = outbox.partition
        batch.last_error = text
        if code in STALE_METADATA:
            self._routes.refresh() if was_lost else self._routes.forget_leader(outbox.partition)
        is_transactional = self._rules.transactional_id is not None
        decided = verdict(ApiKey.PRODUCE, code, is_transactional=is_transactional)
        if code in SEQUENCE_LOST and self._rules.is_idempotent:
            match outbox.classify_gap(batch):
                case Gap.WRITTEN_BEFORE:
                    self._complete_batch(outbox, batch, None, None)
                    return
                case Gap.SENT_TOO_EARLY:
                    decided = Verdict.RETRY
                case Gap.REAL if not is_transactional:
                    self._metrics.record_retries(topic, batch.record_count)
                    outbox.requeue_from(batch, self.loop.time())
                    self._on_requeue(outbox, batch)
                    return
        if code is ErrorCode.MESSAGE_TOO_LARGE and batch.can_split and not batch.is_done and self._rejects is None:
            self._metrics.splits.record()
            self.backlog.split(outbox, batch, outbox.split(batch))
            self._busy[outbox] = None
            return
        if decided is Verdict.RETRY:
            self._metrics.record_retries(topic, batch.record_count)
            retry_at = self.loop.time() + self._cluster.backoff.delay_s(batch.attempts)
            outbox.requeue(batch, retry_at, was_lost=was_lost)
            self._on_requeue(outbox, batch)
            return
        outbox.remove_refused(batch)
        error = as_exception(decided, code, f"a batch of {batch.record_count} records for {topic}-{index}: {text}")
        self._fail(batch, error, topic)
        self.backlog.mark_settled(batch)
        if decided is not Verdict.REFUSED:
            self._permission.on_failure(decided, error)

    def _on_requeue(self, outbox: Outbox, batch: ProducerBatch) -> None:
        if batch.is_done:  # the batch was given up while in flight
            self.backlog.mark_settled(batch)
        elif self._rejects is not None:
            outbox.give_up(batch)
            self._fail(batch, self._rejects)
            self.backlog.mark_settled(batch)
        else:
            self._busy[outbox] = None

    def _begin_epoch(self, outbox: Outbox, identity: ProducerIdentity) -> None:
        topic, index = outbox.partition
        error = RetriableError(
            f"the producer gave up on records for {topic}-{index}, and the records that follow them may be lost as well"
        )
        for batch in outbox.begin_epoch(identity):
            self._fail(batch, error, topic)
            self.backlog.mark_settled(batch)

    def _expire_batches(self, now: float) -> None:
        """Fails all batches that are older than the delivery timeout, including batches in flight."""
        while (oldest := self.backlog.oldest_batch()) is not None:
            outbox, batch = oldest
            if batch.created_at + self._rules.delivery_timeout_s > now:
                return
            topic, index = outbox.partition
            text = f"no answer to {batch.record_count} records for {topic}-{index}"
            text += f" in {self._rules.delivery_timeout_s:g} s{f': {batch.last_error}' if batch.last_error else ''}"
            self._fail_and_remove(outbox, batch, RetriableError(text, ErrorCode.REQUEST_TIMED_OUT))
            if self._rules.transactional_id is not None:
                self._permission.on_failure(Verdict.ABORT, AbortableError(text, ErrorCode.REQUEST_TIMED_OUT))

    def _on_refused_login(self, error: AuthenticationFailed) -> None:
        """Fails all batches immediately, without waiting for the delivery timeout, because the login would be refused
        again."""
        while (oldest := self.backlog.oldest_batch()) is not None:
            self._fail_and_remove(*oldest, error)
        if self._rules.transactional_id is not None:
            self._permission.on_failure(Verdict.FATAL, error)

    def _fail_and_remove(self, outbox: Outbox, batch: ProducerBatch, error: ClientError) -> None:
        outbox.give_up(batch)
        self._fail(batch, error, outbox.partition.topic)
        if batch not in outbox.in_flight:
            self.backlog.mark_settled(batch)

    def _fail(self, batch: ProducerBatch, error: ClientError, topic: str | None = None) -> None:
        """Fails a batch.

        topic   the topic whose metrics count the records as failed; None if the application has aborted the transaction
        """
        if not batch.is_done:
            if topic is not None:
                self._metrics.record_failures(topic, batch.record_count)
            batch.fail(error)
            self.backlog.mark_done(batch)

    # Topics and wake-ups.

    def _on_route_change(self) -> None:
        for topic in self._topics:
            self._add_outboxes(topic)
        self.send_soon()

    def _add_outboxes(self, topic: str) -> list[Outbox]:
        """Creates an outbox for every partition that the topic has according to the current metadata."""
        outboxes = self._topics.setdefault(topic, [])
        metadata = self._cluster.known_topic(topic)
        permission = self._permission
        for index in range(len(outboxes), 0 if metadata is None else len(metadata.leaders)):
            partition = TopicPartition(topic, index)
            outboxes.append(
                Outbox(
                    partition,
                    is_idempotent=self._rules.is_idempotent,
                    first_alone=lambda: not permission.is_transaction_v2,
                )
            )
        return outboxes

    def _all_outboxes(self) -> Iterable[Outbox]:
        for outboxes in self._topics.values():
            yield from outboxes

    def _wake_at(self, when: float) -> None:
        if self._wake is not None:
            if not self._wake.cancelled() and self.loop.time() < self._wakes_at <= when:
                return
            self._wake.cancel()
        self._wake = self.loop.call_at(when, self._on_wake)
        self._wakes_at = when  # stored here because uvloop does not report the time of a handle whose time has passed

    def _on_wake(self) -> None:
        self._wake = None  # uvloop may wake early; `_send_ready_batches` then schedules the same time again
        self._send_ready_batches()
