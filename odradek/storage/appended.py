"""One batch on its way into a segment, and what its append comes to."""

from dataclasses import dataclass

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.disk import Buffer


class LogWriteFailed(KafkaError):
    """The disk refused; nothing of what was staged stays."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


@dataclass(slots=True)
class Appended:
    """`log_append_time_ms`: for the answer's field; None where records keep their own timestamps."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int | None = None
    is_duplicate: bool = False  # the offsets are those of the original, nothing was staged


def refusal(offline_reason: str | None, size_bytes: int, segment_bytes: int) -> KafkaError:
    """Why a batch of this size cannot be appended to a log that is offline, or whose segments are smaller."""
    if offline_reason is not None:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, offline_reason)
    return KafkaError(
        ErrorCode.RECORD_LIST_TOO_LARGE, f"a batch of {size_bytes} bytes, and segments hold {segment_bytes}"
    )


@dataclass(slots=True)
class StagedBatch:
    batch: Buffer
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp: int
