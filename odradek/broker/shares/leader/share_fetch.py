"""Processes a ShareFetch request: acknowledges records, then acquires records or waits until some are available.

    session → start acknowledgements → look at each partition in turn → acquired, or an error? → respond
                                           ↑                              └ no: wait
                                           └ woken by appends, by released records, by the timer ┘

The response also waits until the acknowledgements are stored. Source: docs/spec/share-groups.md#s1-11, #s1-12.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from odradek.broker.fetch.request import node_endpoints
from odradek.broker.fetch.wait import FetchWait
from odradek.broker.runtime.waiting import Deferred, NowOrLater
from odradek.broker.shares.core.acquisition import AcquireMode, Acquisition
from odradek.broker.shares.core.sessions import ShareSession
from odradek.broker.shares.core.state import SharePartitionKey
from odradek.broker.shares.leader.acknowledging import AcknowledgeResult
from odradek.broker.shares.leader.live_partition import LiveSharePartition, SharePartitionPhase
from odradek.broker.shares.leader.log_batches import LogBatches
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.share_fetch_response import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)
from odradek.protocol.topic_partition import TopicIdPartition
from odradek.storage.disk import WouldBlock

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.metadata.image import PartitionImage
    from odradek.broker.partitions.partition import Partition
    from odradek.broker.runtime.workers import JobResult
    from odradek.broker.shares.leader.shares import ShareBroker
    from odradek.protocol.messages.share_fetch_request import ShareFetchRequest
    from odradek.storage.log import Log, ReadResult

NO_RECORDS: Final = b""
# A read requests the expected size of the wanted records, times this factor. The expected size is based on the log's
# average record size.
READ_AHEAD_FACTOR: Final = 1.25
MIN_READ_BYTES: Final = 32 * 1024


class LiveShareFetch:
    """Processes one ShareFetch request in a session: looks at the partitions until the request can be answered."""

    def __init__(
        self,
        request: ShareFetchRequest,
        context: RequestContext,
        broker: ShareBroker,
        session: ShareSession,
        acknowledged: Mapping[TopicIdPartition, NowOrLater[AcknowledgeResult]],
        *,
        is_final: bool,
    ) -> None:
        """Prepares a fetch. `acknowledged` contains the results of the request's acknowledgements, some of which may
        not be stored yet."""
        self._context = context
        self._broker = broker
        self._session = session
        self._acknowledged = dict(acknowledged)
        self._max_bytes = request.max_bytes
        meter = context.meter
        if meter is not None and meter.max_fetched_bytes is not None:
            self._max_bytes = min(self._max_bytes, meter.max_fetched_bytes)
        self._min_bytes = request.min_bytes
        self._max_wait_ms = request.max_wait_ms
        self._max_records = request.max_records
        self._batch_size = request.batch_size
        self._mode = AcquireMode(request.share_acquire_mode)
        # A throttled fetch acquires nothing. In Kafka, it acquires records but its response does not contain them, so
        # they stay locked even though no member has received them.
        is_throttled = meter is not None and meter.is_throttled_for_fetches
        fetches = not (
            is_final or is_throttled or request.max_records <= 0 or request.max_bytes <= 0 or request.is_renew_ack
        )
        requested = () if is_final else session.in_turn()
        self._partitions: Sequence[TopicIdPartition] = [
            each for each in requested if fetches or not self._is_there(each)
        ]
        self._must_answer = request.max_wait_ms <= 0
        self._look_again = False  # set if the state has changed since the fetch last started looking at the partitions
        self._woken: Deferred[None] | None = None  # set while the fetch waits
        self._wait: FetchWait | None = None  # set once the fetch has had to wait
        self._live: dict[TopicIdPartition, LiveSharePartition] = {}  # share partitions that this request has found
        self._answers: dict[TopicIdPartition, PartitionData] = {}
        self._leaders: dict[int, None] = {}
        self._left_records = 0  # number of records that can still be acquired in this round

    async def answer(self) -> ShareFetchResponse:
        """Acquires records, waiting for them no longer than the request's maximum wait time. Then waits until the
        acknowledgements are stored.

        If the client disconnects while this coroutine is waiting, the coroutine is closed and removes all its
        registrations.
        """
        try:
            while not await self._look_at_partitions():
                if not self._look_again:
                    self._woken = Deferred()
                    self._park()
                    await self._woken
        finally:
            self._end_waiting()
        for partition, result in self._acknowledged.items():
            if isinstance(result, Deferred):
                self._acknowledged[partition] = await result
        return self._response()

    # Waiting.

    def _park(self) -> None:
        """Starts waiting for appends to the partitions. An append can be a marker that makes earlier records
        readable."""
        if self._wait is None:
            self._wait = FetchWait(
                [place for live in self._live.values() for place in (live, live.partition)],
                missing_bytes=1,
                max_wait_ms=self._max_wait_ms,
                timers=self._broker.timers,
                look=self._wake,
                time_is_over=self._time_is_over,
            )
        else:
            self._wait.still_missing(1)

    def _wake(self) -> None:
        woken, self._woken = self._woken, None
        if woken is None:  # The fetch is not waiting: it is looking at partitions while a thread reads for it.
            self._look_again = True
        else:
            woken.resolve(None)

    def _time_is_over(self) -> None:
        self._must_answer = True
        self._wake()

    def _end_waiting(self) -> None:
        wait, self._wait = self._wait, None
        if wait is not None:
            wait.end()
            for live in self._live.values():
                live.unpark(wait)

    # Looking at the partitions.

    async def _look_at_partitions(self) -> bool:
        """Looks at each partition in turn and acquires records. Returns whether the fetch can be answered."""
        self._look_again = False
        self._answers = {}
        self._left_records = self._max_records
        requested = self._partitions
        if not self._broker.shares.sessions.is_open(self._session):
            requested = ()
            self._must_answer = True
        must_have_bytes = self._min_bytes > 1 and not self._must_answer and not self._has_min_bytes()
        for partition in requested:
            try:
                if self._left_records <= 0:
                    self._partition(partition)  # reports errors even if no more records can be acquired
                    continue
                live = self._find(partition)
                if live is None or must_have_bytes:
                    continue
                read = _LogRead.of(live, self._read_bytes(), self._left_records)
                if read is None:
                    continue
                if read.starts_anew:
                    self._answers[partition] = data_of(partition)
                    continue
                try:
                    result = read.read_from_memory()
                except WouldBlock:
                    result = await self._read_cold(live, read)
                    if live.phase is not SharePartitionPhase.ACTIVE:
                        continue
                    if not self._broker.shares.sessions.is_open(self._session):
                        continue
                self._acquire(partition, live, read, result)
            except KafkaError as error:
                self._answers[partition] = self._failed(partition, error)
        return bool(self._answers) or self._must_answer or not self._partitions

    async def _read_cold(self, live: LiveSharePartition, read: _LogRead) -> ReadResult:
        """Reads records that are not in memory, in a worker thread. Until the read finishes, other fetches skip the
        share partition."""
        live.is_reading = True
        try:
            while True:
                done: Deferred[JobResult[ReadResult]] = Deferred()
                self._broker.workers.run(read.read_from_disk, done.resolve)
                outcome = await done
                if not read.is_overtaken:
                    return outcome.result()
        finally:
            live.is_reading = False
            live.wake()

    # One partition.

    def _find(self, requested: TopicIdPartition) -> LiveSharePartition | None:
        """Returns the share partition if records can be acquired from it now, otherwise None. Starts loading it if
        necessary. Raises KafkaError."""
        live = self._live.get(requested)
        if live is None or (live.phase is SharePartitionPhase.GONE and live.failure is None):
            partition = self._partition(requested)
            key = SharePartitionKey(self._session.key.group_id, *requested)
            live = self._live[requested] = self._broker.shares.find_or_load(key, partition)
            if self._wait is not None:
                live.park(self._wait)
        if live.failure is not None:
            raise live.failure
        if live.phase is not SharePartitionPhase.ACTIVE or live.is_reading:
            return None
        return live if live.core.may_acquire(live.limits) else None

    def _partition(self, requested: TopicIdPartition) -> Partition:
        topic = self._broker.metadata.image.topics_by_id.get(requested.topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        self._context.require(Operation.READ, ResourceType.TOPIC, topic.name)
        return self._broker.partitions.get_by_id(*requested)

    def _is_there(self, requested: TopicIdPartition) -> bool:
        """Returns whether this broker leads the partition and the client may read it. If not, the partition's error is
        reported even if the client wants no records."""
        try:
            self._partition(requested)
        except KafkaError:
            return False
        return True

    def _has_min_bytes(self) -> bool:
        """Returns whether the fetch can probably acquire its minimum number of bytes, as estimated from the number of
        bytes that it can read."""
        missing_bytes = self._min_bytes
        for requested in self._partitions:
            try:
                live = self._find(requested)
                read = None if live is None else _LogRead.of(live, missing_bytes, self._max_records)
                if read is not None and not read.starts_anew:
                    missing_bytes -= read.read_from_memory().size_bytes
            except (KafkaError, WouldBlock):
                return True  # Errors are reported immediately. Records on disk are assumed to be enough.
            if missing_bytes <= 0:
                return True
        return False

    def _read_bytes(self) -> int:
        return max(1, self._max_bytes // len(self._partitions))

    def _acquire(
        self, partition: TopicIdPartition, live: LiveSharePartition, read: _LogRead, result: ReadResult
    ) -> None:
        core, limits = live.core, live.limits
        batches = LogBatches(result.chunks, read.fetch_offset, read.until_offset)
        aborted: Sequence[tuple[int, int]] = ()
        if live.is_read_committed and result.size_bytes:
            transactions = live.partition.log.reader.aborted_transactions(read.fetch_offset, result.end_offset)
            aborted = batches.aborted(transactions)
        requested = Acquisition(
            self._session.key.member_id, read.fetch_offset, self._left_records, self._batch_size, self._mode
        )
        acquired = core.acquire(requested, batches.offsets(), limits, live.lock_clock.now_ms(), aborted)
        if not acquired:
            return
        live.arm()
        self._left_records -= sum(each.record_count for each in acquired)
        chunks = batches.bytes_of(acquired[0].first_offset, acquired[-1].last_offset)
        live.partition.bytes_out += sum(map(len, chunks))
        data = self._answers[partition] = data_of(partition)
        data.records = chunks
        data.acquired_records = [
            AcquiredRecords(
                first_offset=each.first_offset, last_offset=each.last_offset, delivery_count=each.delivery_count
            )
            for each in acquired
        ]

    def _failed(self, partition: TopicIdPartition, error: KafkaError) -> PartitionData:
        data = data_of(partition)
        data.error_code = error.code.value
        if error.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            topic = self._broker.metadata.image.topics_by_id[partition.topic_id]
            self._name_leader(data, topic.partitions[partition.partition])
        return data

    def _name_leader(self, data: PartitionData, placed: PartitionImage) -> None:
        leader_id = -1 if placed.leader is None else placed.leader
        data.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=placed.leader_epoch)
        self._leaders[leader_id] = None

    # The response.

    def _response(self) -> ShareFetchResponse:
        listed: dict[TopicIdPartition, PartitionData] = {}
        for partition in dict.fromkeys((*self._partitions, *self._acknowledged)):
            data = self._answers.get(partition)
            result = self._acknowledged.get(partition)
            has_error = data is not None and data.error_code != ErrorCode.NONE.value
            has_news = data is not None or result is not None
            if not self._session.takes_notice(partition, has_news=has_news, has_error=has_error):
                continue
            data = listed[partition] = data or data_of(partition)
            if isinstance(result, AcknowledgeResult):
                data.acknowledge_error_code = result.code.value
                data.acknowledge_error_message = result.message
                if result.leader is not None and data.error_code == ErrorCode.NONE.value:
                    self._name_leader(data, result.leader)
        responses: dict[bytes, ShareFetchableTopicResponse] = {}
        for partition, data in listed.items():
            topic = responses.get(partition.topic_id)
            if topic is None:
                topic = responses[partition.topic_id] = ShareFetchableTopicResponse(topic_id=partition.topic_id)
            topic.partitions.append(data)
        shares = self._broker.shares
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=shares.settings.lock_duration_ms(self._session.key.group_id),
            responses=list(responses.values()),
            node_endpoints=(
                node_endpoints(NodeEndpoint, shares.image, self._leaders, self._context.connection)
                if self._leaders
                else []
            ),
        )


class _LogRead:
    """A log read for one share partition.

    until_offset  records beyond the batch that contains this offset cannot be acquired
    starts_anew   whether the log now begins beyond the fetch offset, so that nothing can be read there
    """

    def __init__(self, log: Log, fetch_offset: int, until_offset: int, end_offset: int, max_bytes: int) -> None:
        self._log = log
        self._end_offset = end_offset
        self._max_bytes = max_bytes
        self._segments = log.segments
        self.fetch_offset = fetch_offset
        self.until_offset = until_offset
        self.starts_anew = False

    @classmethod
    def of(cls, live: LiveSharePartition, max_bytes: int, max_records: int) -> _LogRead | None:
        """Prepares a read for a share partition. Returns None if there is nothing to read."""
        core, log = live.core, live.partition.log
        fetch_offset = core.flight.next_fetch_offset
        end_offset = log.last_stable_offset if live.is_read_committed else log.high_watermark
        until_offset = core.flight.next_offset + max_records - 1
        read = cls(log, fetch_offset, until_offset, end_offset, max_bytes)
        if fetch_offset < log.log_start_offset:
            core.log_start_moved(log.log_start_offset)
            read.starts_anew = True
            return read
        if fetch_offset >= end_offset:
            return None
        records = log.high_watermark - log.log_start_offset
        average_bytes = log.size_bytes / records if records else 0
        enough_bytes = int(average_bytes * READ_AHEAD_FACTOR * (until_offset - fetch_offset + 1)) + MIN_READ_BYTES
        read._max_bytes = min(max_bytes, enough_bytes)
        return read

    def read_from_memory(self) -> ReadResult:
        """Reads records from memory. Raises WouldBlock if they are not in memory; `read_from_disk` must then be called
        in a worker thread."""
        return self._log.reader.read(self.fetch_offset, max_bytes=self._max_bytes, end_offset=self._end_offset)

    @property
    def is_overtaken(self) -> bool:
        """Whether segments have changed during `read_from_disk`. If they have, the read must be repeated.

        Compaction removes the records of aborted transactions together with the list of these transactions. If a
        compaction runs during the read, the bytes may still contain the records even though the list no longer contains
        their transactions.
        """
        return self._segments is not self._log.segments

    def read_from_disk(self) -> ReadResult:
        """Reads records from disk. Must be called in a worker thread."""
        self._segments = self._log.segments
        return self._log.reader.read_cold(self.fetch_offset, max_bytes=self._max_bytes, end_offset=self._end_offset)


def data_of(partition: TopicIdPartition) -> PartitionData:
    """Returns a partition's data with no records and no error.

    The current leader is -1. Kafka sends leader 0 at epoch 0 instead, which some clients interpret as a leader hint.
    """
    return PartitionData(
        partition_index=partition.partition,
        current_leader=LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1),
        records=NO_RECORDS,
    )
