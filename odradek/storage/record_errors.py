"""Finds the invalid records of a batch that is otherwise valid, such as records without a key or with a timestamp out
of range.

The error texts are Kafka's, because clients show them to users, and Kafka's own tests compare them.
"""

from typing import Final, NamedTuple

from odradek.protocol.batch_header import BatchHeader
from odradek.protocol.errors import ErrorCode
from odradek.protocol.records import Record, records_of

_SHOWN: Final = 3


class RecordErrors(NamedTuple):
    code: ErrorCode
    message: str
    errors: tuple[tuple[int, str], ...]  # (index in the batch, text) of each invalid record


def record_errors(
    batch: memoryview,
    header: BatchHeader,
    *,
    now_ms: int,
    topic_partition: str,
    needs_key: bool,
    is_log_append_time: bool,
    before_max_ms: int,
    after_max_ms: int,
    reads_all: bool,
) -> RecordErrors | None:
    """Returns the errors of all invalid records of a batch, or None if all are valid.

    needs_key            whether the topic is compacted
    is_log_append_time   whether the topic's timestamp type is LogAppendTime; only the broker may then set it in a batch
    reads_all            whether Kafka reads these records completely, including keys and values, which affects its
                         error texts
    """
    errors: list[tuple[int, str]] = []
    code = ErrorCode.INVALID_RECORD
    earliest, latest = now_ms - before_max_ms, now_ms + after_max_ms
    for index, record in enumerate(records_of(batch)):
        if needs_key and record.key is None:
            text = f"Compacted topic cannot accept message without key in topic partition {topic_partition}"
        elif not is_log_append_time and record.timestamp != -1:
            if earliest <= record.timestamp <= latest:
                continue
            text = (
                f"Timestamp {record.timestamp} of message with offset {index} is out of range. "
                f"The timestamp should be within [{_int64(earliest)}, {_int64(latest)}]"
            )
            code = ErrorCode.INVALID_TIMESTAMP
        elif header.is_log_append_time:
            text = (
                f"Invalid timestamp type in message {_shown(record, reads_all)}. "
                "Producer should not set timestamp type to LogAppendTime."
            )
            code = ErrorCode.INVALID_TIMESTAMP
        else:
            continue
        errors.append((index, text))
    if not errors:
        return None
    if code is ErrorCode.INVALID_TIMESTAMP:
        message = "One or more records have been rejected due to invalid timestamp"
    else:
        shown = ", ".join(f"RecordError(batchIndex={index}, message='{text}')" for index, text in errors[:_SHOWN])
        message = (
            f"One or more records have been rejected due to {len(errors)} record errors in total, "
            f"and only showing the first three errors at most: [{shown}]"
        )
    return RecordErrors(code, message, tuple(errors))


def _shown(record: Record, is_whole: bool) -> str:
    def size(content: bytes | None) -> int:
        return len(content) if content is not None else 0 if is_whole else -1

    kind = "DefaultRecord" if is_whole else "PartialDefaultRecord"
    return (
        f"{kind}(offset={record.offset}, timestamp={record.timestamp}, "
        f"key={size(record.key)} bytes, value={size(record.value)} bytes)"
    )


def _int64(value: int) -> int:
    """Returns the value that a 64-bit addition in Java would have, which wraps on overflow."""
    return (value + 2**63) % 2**64 - 2**63
