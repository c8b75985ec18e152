"""The share consumer (KIP-932). Several consumers share a topic's records and acknowledge each record separately."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from enum import Enum
from typing import Unpack

from odradek.client.common.errors import AbortableError, ClientError, IllegalState, RetriableError
from odradek.client.common.values import (
    TXN_ACKNOWLEDGE_FEATURE,
    TXN_ACKNOWLEDGE_NEEDS,
    Acknowledgements,
    AcknowledgeType,
    ShareGroupMetadata,
    ShareRecord,
    TopicPartition,
    TransactionEnded,
)
from odradek.client.metrics.consumer_metrics import ShareConsumerMetrics
from odradek.client.network.cluster import (
    DEFAULT_METADATA_MAX_AGE_MS,
    DEFAULT_REQUEST_TIMEOUT_MS,
    DEFAULT_RETRY_BACKOFF_MAX_MS,
    DEFAULT_RETRY_BACKOFF_MS,
    Cluster,
)
from odradek.client.network.connected import ConnectedClient, is_set_by
from odradek.client.security.settings import Security, SecuritySettings
from odradek.client.sharing.share_fetcher import Records, ShareFetcher
from odradek.client.sharing.share_leader import AcknowledgementOutcome
from odradek.client.sharing.share_member import ShareMember
from odradek.client.sharing.share_session import AcquireMode, ShareSettings
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.txn_share_acknowledge_request import TxnShareAcknowledgeRequest

CLOSE_TIMEOUT_MS = 5_000

Results = dict[TopicPartition, ClientError | None]
OnAcknowledged = Callable[[TopicPartition, list[tuple[int, int]], ClientError | None], None]


class AcknowledgementMode(Enum):
    """Determines who acknowledges the records that `getmany` has returned."""

    IMPLICIT = "implicit"  # the next `getmany` or `commit` accepts the records
    EXPLICIT = "explicit"  # the application acknowledges each record
    TRANSACTIONAL = "transactional"  # a producer acknowledges the records within its transaction (KIP-1289)


class ShareConsumer(ConnectedClient):
    """Receives the records of topics as a member of a share group.

        async with ShareConsumer("jobs", bootstrap_servers="localhost:9092", group_id="workers") as consumer:
            while True:
                for records in (await consumer.getmany()).values():
                    ...

    Each record goes to one member at a time. If the member does not acknowledge the record before the acquisition lock
    expires, the record is delivered again.

    A consumer must be started before use and closed afterwards, preferably with `async with`. Only one task at a time
    may use it, except for `share_group_metadata`.
    """

    def __init__(
        self,
        *topics: str,
        bootstrap_servers: str | Sequence[str],
        group_id: str,
        client_id: str = "odradek",
        client_rack: str | None = None,
        share_acknowledgement_mode: str = "implicit",
        share_acquire_mode: str = "batch_optimized",
        max_poll_records: int = 500,
        fetch_min_bytes: int = 1,
        fetch_max_bytes: int = 50 * 1024 * 1024,
        fetch_max_wait_ms: int = 500,
        check_crcs: bool = True,
        max_poll_interval_ms: int = 300_000,
        default_api_timeout_ms: float = 60_000,
        request_timeout_ms: float = DEFAULT_REQUEST_TIMEOUT_MS,
        retry_backoff_ms: float = DEFAULT_RETRY_BACKOFF_MS,
        retry_backoff_max_ms: float = DEFAULT_RETRY_BACKOFF_MAX_MS,
        metadata_max_age_ms: float = DEFAULT_METADATA_MAX_AGE_MS,
        bootstrap_timeout_ms: float = 0,
        on_acknowledged: OnAcknowledged | None = None,
        **security: Unpack[SecuritySettings],
    ) -> None:
        """Creates a share consumer. `start` connects it. Raises ValueError for invalid settings.

        Settings have Kafka's names and defaults. The start offset of a group, the duration of its acquisition locks and
        its delivery limit are group settings, which the broker stores.

        share_acknowledgement_mode  implicit: the next `getmany` or `commit` accepts the records that were returned. A
                                    consumer in this mode cannot take part in a transaction, because an abort would not
                                    undo these acknowledgements.
                                    explicit: each record must be acknowledged before the next `getmany`, either by
                                    `acknowledge` or in a producer's transaction
                                    (`send_share_acknowledgements_to_transaction`).
                                    transactional: like explicit, but `getmany` does not require acknowledgements.
                                    Records that were not acknowledged are delivered again when their locks
                                    expire.
        share_acquire_mode          batch_optimized: acquires entire log batches, which may exceed `max_poll_records`;
                                    record_limit: never acquires more than `max_poll_records`
        on_acknowledged             called with a partition, the ranges of offsets (first and last) that were
                                    acknowledged, and either None or the error. The calls happen within `getmany`,
                                    `commit` and `close`.
        """
        if not group_id:
            raise ValueError("a share consumer needs a group_id")
        if max_poll_records < 1:
            raise ValueError(f"max_poll_records={max_poll_records}")
        modes = {mode.name.lower(): mode for mode in AcquireMode}
        if share_acquire_mode not in modes:
            raise ValueError(f"share_acquire_mode must be {' or '.join(modes)}, not {share_acquire_mode!r}")
        self._mode = AcknowledgementMode(share_acknowledgement_mode)
        self._max_wait_ms = fetch_max_wait_ms
        self._timeout_ms = default_api_timeout_ms
        self._on_acknowledged = on_acknowledged
        metrics = ShareConsumerMetrics(client_id)
        self._metrics: ShareConsumerMetrics = metrics
        self._cluster = Cluster(
            bootstrap_servers,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            metadata_max_age_ms=metadata_max_age_ms,
            bootstrap_timeout_ms=bootstrap_timeout_ms,
            security=Security.of(security),
            metrics=metrics,
        )
        self._change = asyncio.Event()
        self._polls = 0
        self._is_polling = self._is_started = self._is_closed = False
        self._member = ShareMember(
            self._cluster,
            group_id,
            rack_id=client_rack,
            max_poll_interval_ms=max_poll_interval_ms,
            progress=self._progress,
            on_change=self._change.set,
            on_rebalance=metrics.rebalances.record_rebalance,
        )
        self._settings = ShareSettings(
            group_id=group_id,
            member_id=self._member.metadata.member_id,
            acquire_mode=modes[share_acquire_mode],
            max_records=max_poll_records,
            min_bytes=fetch_min_bytes,
            max_bytes=fetch_max_bytes,
            check_crcs=check_crcs,
        )
        self._fetcher = ShareFetcher(self._cluster, self._settings, on_change=self._change.set, metrics=metrics)
        if topics:
            self.subscribe(topics)

    async def start(self) -> None:
        """Connects to the cluster. Raises RetriableError if no broker answers; the call can then be repeated. Raises
        AuthenticationFailed if a broker refuses the login."""
        await self._connect()
        self._is_started = True

    async def close(self) -> None:
        """Sends outstanding acknowledgements, releases all other acquired records, and leaves the group.

        With implicit acknowledgement, the records of the last `getmany` are released too, unless `commit` was called.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._is_started:
                await self._leave()
        finally:
            await self._cluster.close()

    # Topics.

    def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribes to these topics, replacing any earlier subscription. The next `getmany` joins the group. Raises
        TypeError if `topics` is a single string."""
        if isinstance(topics, str):
            raise TypeError("subscribe needs a list of topics, not a string")
        self._member.subscribe(frozenset(topics))

    async def unsubscribe(self) -> None:
        """Sends acknowledgements and releases records, as `close` does, and leaves the group."""
        await self._leave()
        self._fetcher = ShareFetcher(self._cluster, self._settings, on_change=self._change.set, metrics=self._metrics)

    def subscription(self) -> frozenset[str]:
        """Returns the topics passed to `subscribe`."""
        return self._member.topics

    def assignment(self) -> set[TopicPartition]:
        """Returns the partitions that this member may fetch from. Other members may have the same partitions."""
        return set(self._member.assigned.values())

    # Records.

    async def getmany(self, *, timeout_ms: float = 1_000) -> Records:
        """Returns the records that a broker has acquired for this member, by partition, as soon as any are available,
        or an empty dict after `timeout_ms`.

        With implicit acknowledgement, the call first accepts the records that the previous call returned. Damaged
        records are not returned: the consumer rejects the records of a batch with a wrong CRC and releases other
        damaged records.

        Raises IllegalState before `start` or `subscribe`, after `close`, if another task is waiting in this method,
        and, with explicit acknowledgement, if a returned record has not been acknowledged. Raises AuthorizationFailed
        if the client has no permission to read a topic or to join the group; ClientError if records are damaged or the
        group does not accept this member.
        """
        self._begin_to_poll()
        ends_at = asyncio.get_running_loop().time() + timeout_ms / 1000
        self._is_polling = True
        self._metrics.polls.begin_poll()
        try:
            while True:
                self._change.clear()
                self._member.poll_coordinator()
                self._report_outcomes(self._fetcher.take_outcomes())
                if found := self._fetcher.take():
                    return found
                left_ms = max(0.0, (ends_at - asyncio.get_running_loop().time()) * 1000)
                self._fetcher.wake(self._member.assigned, int(min(self._max_wait_ms, left_ms)))
                if not await is_set_by(self._change, ends_at):
                    return {}
        finally:
            self._is_polling = False
            self._polls += 1
            self._metrics.polls.end_poll()

    def acknowledge(self, record: ShareRecord, kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Acknowledges a record. The next `getmany` or `commit` sends the acknowledgement; until then, another call can
        change it.

        With RENEW, the consumer keeps the record. It can be acknowledged again once the renewal has been sent.

        Raises IllegalState if acknowledgement is implicit, if the record does not belong to this member or has already
        been acknowledged, or if a transaction that is still open has acknowledged it.
        """
        if self._mode is AcknowledgementMode.IMPLICIT:
            raise IllegalState('with share_acknowledgement_mode="implicit", the next getmany acknowledges the records')
        partition = TopicPartition(record.topic, record.partition)
        for leader in self._fetcher.leaders:
            if leader.acquired.acknowledge(partition, record.offset, kind.value):
                return
            if leader.acquired.is_pending(partition, record.offset):
                raise IllegalState(
                    f"a transaction contains the acknowledgement of the record at {record.offset} of"
                    f" {record.topic}-{record.partition}: commit or abort it first"
                )
        raise IllegalState(
            f"the record at {record.offset} of {record.topic}-{record.partition} cannot be acknowledged: "
            "this member has not acquired it, or has already acknowledged it"
        )

    async def commit(self, *, timeout_ms: float | None = None) -> Results:
        """Sends all acknowledgements and waits for the responses. Returns None or an error for each partition.

        Waits for at most `timeout_ms` (by default, `default_api_timeout_ms`). With implicit acknowledgement, the call
        first accepts all records that were returned.

        The errors are returned, not raised. A RetriableError means that it is unknown whether the broker stored the
        acknowledgements. Any other error means that the broker did not store them. The most common error is
        INVALID_RECORD_STATE: the lock had expired, so the record is delivered again, possibly to another member.
        """
        if self._mode is AcknowledgementMode.IMPLICIT:
            self._accept_all()
        timeout_s = (self._timeout_ms if timeout_ms is None else timeout_ms) / 1000
        ends_at = asyncio.get_running_loop().time() + timeout_s
        self._report_outcomes(self._fetcher.take_outcomes())  # results of acknowledgements sent earlier
        results: Results = {}
        failures = 0
        while True:
            await self._fetcher.acknowledge()
            outcomes = self._fetcher.take_outcomes()
            for each in outcomes:
                results[each.partition] = results.get(each.partition) or each.error
            self._report_outcomes(outcomes)
            undecided = [each for leader in self._fetcher.leaders for each in leader.acquired.unsent_partitions]
            if not undecided:
                return results
            if asyncio.get_running_loop().time() >= ends_at:
                error = RetriableError(
                    "the broker could not store the acknowledgement in time; the next request repeats it"
                )
                return results | dict.fromkeys(undecided, error)
            failures += 1
            await self._cluster.pause(failures)

    async def share_group_metadata(self, *, timeout_ms: float | None = None) -> ShareGroupMetadata:
        """Returns metadata that identifies this member, for `Producer.send_share_acknowledgements_to_transaction`.
        Waits until the member has joined its group.

        Call this method again for each transaction, because the member's epoch changes. The call is allowed while
        another task is waiting in `getmany`.

        timeout_ms   how long to wait until the group accepts the member, and for brokers that cannot be reached;
                     `default_api_timeout_ms` if left out

        Raises IllegalState before `start` or `subscribe`, and with implicit acknowledgement, which accepts records
        outside the transaction. Raises RetriableError if the member has not joined in time (REQUEST_TIMED_OUT) or a
        broker cannot be reached in time. Raises ClientError with the code UNSUPPORTED_VERSION if a broker does not
        support KIP-1289, or with another code if the group does not accept this member.
        """
        self._metrics.metadata_fetches.record()
        group_id = self._settings.group_id
        if self._mode is AcknowledgementMode.IMPLICIT:
            raise IllegalState(
                f'the consumer of the share group {group_id!r} has share_acknowledgement_mode="implicit": its next '
                "getmany accepts records outside the transaction, and an abort would lose them. "
                'Set share_acknowledgement_mode="explicit" or "transactional"'
            )
        self._check_started()
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        ends_at = asyncio.get_running_loop().time() + timeout_ms / 1000
        joined = await self._member.wait_until_joined(ends_at)
        if joined is None:
            outcomes = f"the consumer did not join the share group {group_id!r} within {timeout_ms:g} ms"
            raise RetriableError(outcomes, ErrorCode.REQUEST_TIMED_OUT)
        await self._cluster.retry(  # retries, because a broker may be restarting
            lambda: self._cluster.check_all_serve(
                TxnShareAcknowledgeRequest, TXN_ACKNOWLEDGE_FEATURE, TXN_ACKNOWLEDGE_NEEDS
            ),
            ends_at - asyncio.get_running_loop().time(),
        )
        return replace(joined, claim=self._claim)

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """The duration of acquisition locks in ms, as last reported by the brokers, or None before the first response.
        If brokers report different durations, the value is the shortest of them."""
        found = [leader.lock_timeout_ms for leader in self._fetcher.leaders if leader.lock_timeout_ms is not None]
        return min(found, default=None)

    # Internals.

    def _check_started(self) -> None:
        if not self._is_started or self._is_closed:
            raise IllegalState(f"the consumer {'is closed' if self._is_closed else 'was not started'}")
        if not self._member.topics:
            raise IllegalState("subscribe first")

    def _claim(self, given: Acknowledgements) -> TransactionEnded:
        """Reserves these records for a transaction until the transaction ends. See `ShareGroupMetadata.claim`."""
        leaders = self._fetcher.leaders
        for leader in leaders:
            if (found := leader.acquired.find_acknowledged(given)) is not None:
                (topic, index), offset = found
                raise AbortableError(
                    f"the record at offset {offset} of {topic}-{index} was acknowledged through the consumer, which"
                    " sends the acknowledgement outside the transaction: acknowledge each record only in one of"
                    " the two ways",
                    ErrorCode.INVALID_RECORD_STATE,
                )
        pending = [(leader.acquired, leader.acquired.make_pending(given)) for leader in leaders]

        def end_pending(committed: bool) -> None:
            for acquired, runs in pending:
                acquired.end_pending(runs, committed=committed)

        return end_pending

    def _begin_to_poll(self) -> None:
        self._check_started()
        if self._is_polling:
            raise IllegalState("another task is already waiting for records of this consumer")
        match self._mode:
            case AcknowledgementMode.IMPLICIT:
                self._accept_all()
            case AcknowledgementMode.EXPLICIT:
                if any(leader.acquired.has_open for leader in self._fetcher.leaders):
                    raise IllegalState("acknowledge every record first, with share_acknowledgement_mode='explicit'")
                for leader in self._fetcher.leaders:
                    leader.acquired.leave_returned()
            case AcknowledgementMode.TRANSACTIONAL:
                for leader in self._fetcher.leaders:
                    leader.acquired.leave_all_delivered()
                    leader.acquired.leave_returned()

    def _accept_all(self) -> None:
        for leader in self._fetcher.leaders:
            leader.acquired.accept_all()

    def _report_outcomes(self, outcomes: Iterable[AcknowledgementOutcome]) -> None:
        if self._on_acknowledged is not None:
            for each in outcomes:
                self._on_acknowledged(each.partition, each.ranges, each.error)

    async def _leave(self) -> None:
        await self._fetcher.close_sessions(self._max_wait_ms + CLOSE_TIMEOUT_MS)
        await self._member.leave()
        self._report_outcomes(self._fetcher.take_outcomes())

    def _progress(self) -> object:
        return object() if self._is_polling else self._polls
