"""Reads one partition for a fetch. Makes the same checks as Kafka in the same order, and then reads records up to the
last offset that the reader may see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.broker.fetch.sessions import FetchPartition
from odradek.broker.partitions.partition import IsolationLevel, Partition, check_leader_epoch
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.fetch_response import AbortedTransaction, EpochEndOffset, LeaderIdAndEpoch, PartitionData

if TYPE_CHECKING:
    from odradek.protocol.file_slice import FileSlice
    from odradek.protocol.struct import Buffer
    from odradek.storage.log import ReadResult

NO_RECORDS: Final = b""  # a partition without records has an empty field rather than null
UNKNOWN_OFFSET: Final = -1


class PartitionAnswer:
    """One partition's part of a Fetch response.

    size_bytes    size of the records
    partition     the partition that the records come from; None if there are no records
    ends_waiting  the response must be sent immediately, however small it is
    """

    __slots__ = ("data", "ends_waiting", "partition", "size_bytes")

    def __init__(
        self, data: PartitionData, size_bytes: int, partition: Partition | None = None, *, ends_waiting: bool = False
    ) -> None:
        self.data = data
        self.partition = partition
        self.size_bytes = size_bytes
        self.ends_waiting = ends_waiting

    @property
    def error_code(self) -> int:
        return self.data.error_code

    @property
    def high_watermark(self) -> int:
        return self.data.high_watermark

    @property
    def log_start_offset(self) -> int:
        return self.data.log_start_offset

    @property
    def has_diverging_epoch(self) -> bool:
        return self.data.diverging_epoch is not None


def unknown_partition(index: int, code: ErrorCode) -> PartitionAnswer:
    """Returns the answer for a partition that does not exist, or that the reader has no permission to read."""
    data = PartitionData(
        partition_index=index, error_code=code.value, high_watermark=UNKNOWN_OFFSET, records=NO_RECORDS
    )
    return PartitionAnswer(data, 0)


def failed_read(index: int, code: ErrorCode, current_leader: LeaderIdAndEpoch | None) -> PartitionAnswer:
    """Returns the answer for a partition whose read was refused or failed. `current_leader` is set if the client must
    be informed of another leader or leader epoch (v16+)."""
    data = PartitionData(
        partition_index=index,
        error_code=code.value,
        high_watermark=UNKNOWN_OFFSET,
        current_leader=current_leader,
        aborted_transactions=None,
        records=NO_RECORDS,
    )
    return PartitionAnswer(data, 0, ends_waiting=True)


def has_nothing_new(partition: Partition, requested: FetchPartition) -> bool:
    """Returns whether the reader is at the end of the log and has received the current offsets. This is the usual case
    for a waiting consumer.

    Called for every partition of a session before any other check.
    """
    log = partition.log
    return (
        requested.fetch_offset == log.high_watermark == requested.sent_high_watermark
        and requested.sent_log_start_offset == log.log_start_offset
        and requested.last_fetched_epoch is None
        and (requested.current_leader_epoch is None or requested.current_leader_epoch == log.leader_epoch)
    )


class PartitionRead:
    """One read of a partition. Call `check` first. If it returns None, call `read`. If `read` raises WouldBlock, call
    `read_cold` in a thread, and then `answer` on the loop."""

    __slots__ = (
        "_end_offset",
        "_is_sent",
        "_isolation",
        "_max_bytes",
        "_min_one_batch",
        "_partition",
        "_requested",
        "_segments",
    )

    def __init__(
        self,
        partition: Partition,
        requested: FetchPartition,
        *,
        isolation: IsolationLevel,
        max_bytes: int,
        min_one_batch: bool,
        is_sent: bool = False,
    ) -> None:
        """Prepares a read.

        min_one_batch  whether to return the complete first batch even if it is larger than `max_bytes`
        is_sent        whether the connection can send records straight from files, which the read then does if it is
                       faster
        """
        self._partition = partition
        self._requested = requested
        self._isolation = isolation
        self._max_bytes = max_bytes
        self._min_one_batch = min_one_batch
        self._is_sent = is_sent
        log = partition.log
        committed = isolation is IsolationLevel.READ_COMMITTED
        self._end_offset = log.last_stable_offset if committed else log.high_watermark

    def check(self) -> PartitionAnswer | None:
        """Returns the answer if nothing has to be read, or None if `read` must be called. Raises KafkaError.

        This method raises OFFSET_OUT_OF_RANGE in two cases: the offset is outside the log, or the last epoch that the
        reader has read is newer than every epoch of this log (`_divergence`). In either case, a consumer looks for a
        new position. Two other methods raise the same error: `FollowerRead.check` for a lagging follower, and
        `LogReader` if the offset has been removed from the log since this check.

        Source: docs/spec/client-rules.md#fet-13; KIP-320, KIP-595
        """
        partition, requested, log = self._partition, self._requested, self._partition.log
        check_leader_epoch(partition, requested.current_leader_epoch)
        if requested.last_fetched_epoch is not None:
            diverging_epoch = self._divergence(requested.last_fetched_epoch)
            if diverging_epoch is not None:
                answer = self._answer(NO_RECORDS, 0, requested.fetch_offset)
                answer.data.diverging_epoch = diverging_epoch
                answer.data.aborted_transactions = None  # null at every isolation level because nothing was read
                answer.ends_waiting = True
                return answer
        if not log.log_start_offset <= requested.fetch_offset <= log.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if requested.fetch_offset >= self._end_offset:
            return self._answer(NO_RECORDS, 0, requested.fetch_offset)
        if self._max_bytes < 0:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)  # Kafka's response to a negative limit
        if self._max_bytes == 0 and not self._min_one_batch:
            return self._answer(NO_RECORDS, 0, requested.fetch_offset)
        return None

    def read(self) -> PartitionAnswer:
        """Reads from memory. Raises WouldBlock if the records are not in memory. The caller must then call `read_cold`
        in a thread, and `answer` on the loop."""
        result = self._partition.log.reader.read(
            self._requested.fetch_offset,
            max_bytes=self._max_bytes,
            end_offset=self._end_offset,
            min_one_batch=self._min_one_batch,
            is_sent=self._is_sent,
        )
        return self.answer(result)

    def read_cold(self) -> ReadResult:
        """Reads from disk. Must be called in a thread."""
        self._segments = self._partition.log.segments
        return self._partition.log.reader.read_cold(
            self._requested.fetch_offset,
            max_bytes=self._max_bytes,
            end_offset=self._end_offset,
            min_one_batch=self._min_one_batch,
        )

    @property
    def is_overtaken(self) -> bool:
        """Returns whether the result of `read_cold` must be discarded because the segments have changed in the
        meantime. Compaction removes the records of aborted transactions together with the list of these transactions,
        so the result may contain records of an aborted transaction that is no longer in the list."""
        return self._isolation is IsolationLevel.READ_COMMITTED and self._segments is not self._partition.log.segments

    def answer(self, result: ReadResult) -> PartitionAnswer:
        chunks: list[Buffer] | list[FileSlice] = result.chunks if result.in_file is None else [result.in_file]
        return self._answer(chunks, result.size_bytes, result.end_offset)

    def _divergence(self, last_fetched_epoch: int) -> EpochEndOffset | None:
        """Returns the point where the reader's log diverges from this log (KIP-320, KIP-595), or None if it does not
        diverge.

        Raises OFFSET_OUT_OF_RANGE if the reader's last epoch is newer than every epoch of this log.
        """
        end = self._partition.log.end_offset_for_epoch(last_fetched_epoch)
        if end is None:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        leader_epoch, end_offset = end
        if leader_epoch < last_fetched_epoch or end_offset < self._requested.fetch_offset:
            return EpochEndOffset(epoch=leader_epoch, end_offset=end_offset)
        return None

    def _answer(self, chunks: object, size_bytes: int, end_offset: int) -> PartitionAnswer:
        log = self._partition.log
        aborted: list[AbortedTransaction] | None = None
        if self._isolation is IsolationLevel.READ_COMMITTED:
            aborted = []
            if size_bytes:
                found = log.reader.aborted_transactions(self._requested.fetch_offset, end_offset)
                aborted = [
                    AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
                    for producer_id, first_offset in found
                ]
        data = PartitionData(
            partition_index=self._requested.index,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=aborted,
            records=chunks,  # type: ignore[arg-type]
        )
        return PartitionAnswer(data, size_bytes, self._partition)
