"""The types that describe one append: the batch while it is staged, its resulting position, and its errors."""

from dataclasses import dataclass

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.disk import Buffer


class LogFailed(KafkaError):
    """A disk operation on a log failed, or the log is offline. The consequence depends on the method that raises it:

    `write_staged`                   none of the staged batches is in the log, unless undoing the write failed too
    `finish_sync`, `start_close`,    the written batches are in the log, but it is unknown whether they are on the disk;
    `finish_close`                   the log is offline
    `roll`, `retention`              the log continues in its old segment, or keeps its old segments
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


@dataclass(slots=True)
class AppendResult:
    """An appended batch's position. `log_append_time_ms` is returned to the producer; it is None if the records keep
    their own timestamps."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int | None = None
    is_duplicate: bool = False  # the offsets are those of the original batch; nothing was staged


def refusal(offline_reason: str | None, size_bytes: int, segment_bytes: int) -> KafkaError:
    """Returns the error for a batch that cannot be appended, because the log is offline or the batch is larger than a
    segment."""
    if offline_reason is not None:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, offline_reason)
    return KafkaError(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"the batch has {size_bytes} bytes, but a segment can hold only {segment_bytes}",
    )


@dataclass(slots=True)
class StagedBatch:
    batch: Buffer
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp: int
