"""Checks the records of a Produce request. Decides which records the broker refuses and how it changes accepted
records.

The rules, their order and their error codes are those of Kafka 4.3.1, as observed by sending invalid batches to it.
docs/formats/record-batch.md lists the rules, including the few for which Odradek is stricter. This module does no I/O.
Its input is bytes, rules and a time, and its output is one batch or a refusal. The log itself checks the rules that
need its state (sequences, epochs, transactions).
"""

import struct
from dataclasses import dataclass, field, replace
from typing import Final

from odradek.protocol.batch_header import (
    COMPRESSION_MASK,
    CRC_START,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    crc_ok,
    pack_batch,
    read_batch_header,
    set_log_append_time,
    set_max_timestamp,
    unpack_batch_header,
)
from odradek.protocol.checksum import crc32c
from odradek.protocol.compression import (
    DECOMPRESSED_LIMIT_BYTES,
    NO_RECORD_LIMIT_BYTES,
    Bytes,
    Compression,
    DecompressedTooLarge,
    compress,
    decompress,
)
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedMessage, without_traceback
from odradek.protocol.record_walk import RecordSurvey, check_record_sizes, survey_records
from odradek.storage.log_config import LogConfig
from odradek.storage.record_errors import record_errors

FIRST_VERSION_WITH_ZSTD: Final = 7  # first version of Produce that allows zstd
# Reading records from bytes is faster than from a memoryview. If the records are small, and the batch is at most this
# large, this advantage outweighs the cost of copying the batch.
FASTER_AS_BYTES: Final = 64 * 1024
SMALL_RECORD_BYTES: Final = 512  # limit for the average size of the records
_MAGIC_POSITION: Final = 16
_SMALLEST_LENGTH: Final = 14  # minimum value of the length field for any magic, checked before anything else
_LENGTH: Final = struct.Struct(">i")
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_MAX_SIZE_VARINT_BYTES: Final = 5  # maximum size of the varint before a record

# Limits for checks on the loop. They allow reading records for about 5 ms and exclude compressed batches that could
# become very large.
CHEAP_RECORDS: Final = 10_000
# Uncompressed records up to this total size are always cheap, because each record has at least 7 bytes.
ALWAYS_CHEAP_BYTES: Final = 7 * CHEAP_RECORDS
CHEAP_COMPRESSED_BYTES: Final = 16 * 1024
CHEAP_OPENED_BYTES: Final = 1024 * 1024


class RefusedRecords(KafkaError):
    """All records of one partition are refused.

    message         text for the client; only with `record_errors`, as in Kafka, because otherwise the client receives
                    only the code
    reason          reason for the refusal, for the broker's own log; always present
    record_errors   (index in the batch, error text) of each invalid record
    found_by_log    False if Kafka finds the error before it uses the log, so that its response lacks the log start
                    offset
    """

    def __init__(
        self,
        code: ErrorCode,
        reason: str,
        *,
        found_by_log: bool = True,
        message: str | None = None,
        record_errors: tuple[tuple[int, str], ...] = (),
    ) -> None:
        super().__init__(code, message)
        self.reason = reason
        self.found_by_log = found_by_log
        self.record_errors = record_errors


@dataclass(frozen=True, slots=True)
class BatchRules:
    """The topic's settings for batches produced to one of its partitions."""

    topic_partition: str  # name in error messages, such as "orders-0"
    max_message_bytes: int
    segment_bytes: int
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    is_log_append_time: bool = False
    is_compacted: bool = False
    max_record_bytes: int = NO_RECORD_LIMIT_BYTES  # maximum decompressed size of one record of a compressed batch
    compression: Compression | None = None  # None keeps the producer's compression
    compression_level: int | None = None
    changes_plain: bool = field(init=False)  # whether even a valid uncompressed batch must be changed

    def __post_init__(self) -> None:
        compresses = self.compression is not None and self.compression is not Compression.NONE
        object.__setattr__(self, "changes_plain", self.is_log_append_time or compresses)

    @classmethod
    def of(cls, topic: str, partition: int, config: LogConfig) -> "BatchRules":
        compression, level = _target_compression(config)
        return cls(
            topic_partition=f"{topic}-{partition}",
            max_message_bytes=config.max_message_bytes,
            segment_bytes=config.segment_bytes,
            timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms,
            is_log_append_time=config.message_timestamp_type == "LogAppendTime",
            is_compacted=config.is_compacted,
            max_record_bytes=config.max_decompressed_message_bytes,
            compression=compression,
            compression_level=level,
        )


@dataclass(slots=True)
class AcceptedBatch:
    """One batch that is ready for the log: writable, and with offsets from 0. Its leader epoch is assigned later."""

    batch: bytearray | memoryview
    header: BatchHeader
    log_append_time_ms: int | None


class DecompressesToMore(Exception):
    """The decompressed records would be larger than this call of `check_produced` allows."""


def is_cheap(records: Bytes, rules: BatchRules | None = None) -> bool:
    """Returns whether `check_produced` may run on the loop, with CHEAP_OPENED_BYTES as its limit. Otherwise it must run
    in a thread.

    Relies only on the size, the compression type and the record count, because nothing has been checked yet.
    """
    size = len(records)
    if size < HEADER_BYTES:
        return True
    codec = records[22] & COMPRESSION_MASK
    target = rules.compression if rules is not None else None
    if codec or (target is not None and target is not Compression.NONE):
        return size <= CHEAP_COMPRESSED_BYTES
    count: int = _LENGTH.unpack_from(records, 57)[0]
    return count <= CHEAP_RECORDS or size <= ALWAYS_CHEAP_BYTES


def is_compressed(records: Bytes) -> bool:
    return len(records) >= HEADER_BYTES and records[22] & COMPRESSION_MASK != 0


def is_first_batch_transactional(records: Bytes | None) -> bool:
    """Returns whether the first batch is transactional. Called for every partition before a Produce request is
    processed.

    Raises KafkaError, which is the response to the entire request, if the bytes cannot be the beginning of a batch.
    Raises MalformedMessage if `records` is None. An incomplete batch is not an error at this point.
    """
    if records is None:
        raise MalformedMessage("the Produce request has no records")
    size = _batch_size_at(records, 0)
    return size is not None and size > 22 and records[_MAGIC_POSITION] == MAGIC and records[22] & TRANSACTIONAL != 0


def check_produced(
    records: Bytes, rules: BatchRules, now_ms: int, version: int, *, opens_bytes: int = DECOMPRESSED_LIMIT_BYTES
) -> AcceptedBatch:
    """Checks that `records` is exactly one valid batch and changes it as the topic requires.

    records      records of one partition; modified in place if possible, so the caller must not use the buffer
                 afterwards
    now_ms       append time for LogAppendTime topics, and the current time for checking timestamps
    version      version of the Produce request
    opens_bytes  maximum size of the decompressed records
    raises       RefusedRecords; KafkaError if the entire request is invalid; DecompressesToMore. None of these
                 exceptions keeps the decompressed records alive.
    """
    try:
        return _check_decompressed(records, rules, now_ms, version, opens_bytes)
    except (KafkaError, DecompressesToMore) as error:
        refusal = without_traceback(error)
    try:
        raise refusal
    finally:
        del refusal  # without this, the exception and this stack frame would keep each other alive


def _check_decompressed(
    records: Bytes, rules: BatchRules, now_ms: int, version: int, opens_bytes: int
) -> AcceptedBatch:
    batch = memoryview(records)
    usual = None if batch.readonly else accept_ordinary(batch, rules, now_ms)
    if usual is not None:
        return AcceptedBatch(batch, usual, None)
    header = only_batch(batch, version)
    size_bytes = header.size_bytes
    batch = batch[:size_bytes]
    _check_header(batch, header, rules)
    source = header.compression
    target = source if rules.compression is None else rules.compression
    opened = _decompressed_records(batch, header, rules, opens_bytes)
    try:
        survey = survey_records(opened, header.record_count)
        if source is not Compression.NONE:
            check_record_sizes(opened, header.record_count, rules.max_record_bytes)
    except MalformedMessage as error:
        raise RefusedRecords(ErrorCode.INVALID_RECORD, str(error)) from None
    _check_records(batch, header, survey, rules, now_ms, reads_all=source is Compression.NONE or source is not target)
    if rules.is_log_append_time:
        max_timestamp = now_ms
    elif header.is_log_append_time:  # the largest timestamp then applies to every record
        max_timestamp = header.max_timestamp
    else:
        max_timestamp = max(NO_TIMESTAMP, header.base_timestamp + survey.max_timestamp_delta)
    accepted = (
        _in_place(batch, header, rules, max_timestamp)
        if source is target
        else _recompress(opened, header, rules, target, max_timestamp)
    )
    if len(accepted) > rules.segment_bytes:
        raise RefusedRecords(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the batch has {len(accepted)} bytes, but a segment can hold only {rules.segment_bytes}",
        )
    return AcceptedBatch(accepted, read_batch_header(accepted), now_ms if rules.is_log_append_time else None)


def accept_ordinary(records: memoryview, rules: BatchRules, now_ms: int) -> BatchHeader | None:
    """Returns the header of an ordinary batch, which is a single, uncompressed, valid batch that needs no change.

    Returns None for every other batch. `check_produced` then does the full checks and determines the error. This
    function is only cheap if `is_cheap` returns True, which is always the case up to ALWAYS_CHEAP_BYTES.
    """
    size = len(records)
    if size < HEADER_BYTES or rules.changes_plain:
        return None
    header = unpack_batch_header(records)
    attributes, count, base_timestamp = header.attributes, header.record_count, header.base_timestamp
    if (
        header.magic != MAGIC
        or header.batch_length != size - LOG_OVERHEAD
        or header.base_offset
        or attributes & ~TRANSACTIONAL
        or count <= 0
        or header.last_offset_delta != count - 1
        or (header.base_sequence < 0 if header.producer_id >= 0 else attributes)
        or size > rules.max_message_bytes
        or size > rules.segment_bytes
    ):
        return None
    if crc32c(records[CRC_START:]) != header.crc:
        return None
    try:
        is_copied = size <= FASTER_AS_BYTES and size <= count * SMALL_RECORD_BYTES
        survey = survey_records(bytes(records) if is_copied else records, count, HEADER_BYTES)
    except MalformedMessage:
        return None
    highest = base_timestamp + survey.max_timestamp_delta
    if (
        highest != header.max_timestamp
        or highest < NO_TIMESTAMP
        or highest - now_ms > rules.timestamp_after_max_ms
        or now_ms - base_timestamp - survey.min_timestamp_delta > rules.timestamp_before_max_ms
        or (rules.is_compacted and survey.has_null_key)
    ):
        return None
    return header


# --- the request -----------------------------------------------------------------------------------------------------


def _batch_size_at(records: Bytes, position: int) -> int | None:
    """Returns the size of the batch that begins at `position`, or None if the batch is incomplete. Raises KafkaError if
    these bytes cannot be a batch of any magic."""
    left = len(records) - position
    if left < LOG_OVERHEAD:
        return None
    length: int = _LENGTH.unpack_from(records, position + 8)[0]
    if length < _SMALLEST_LENGTH:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record size {length} is less than the minimum record overhead ({_SMALLEST_LENGTH})",
        )
    if left <= _MAGIC_POSITION:
        return None
    magic = records[position + _MAGIC_POSITION]
    if magic > MAGIC:
        shown = magic if magic < 0x80 else magic - 0x100
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {shown}")
    size = length + LOG_OVERHEAD
    return size if size <= left else None


def only_batch(records: Bytes, version: int) -> BatchHeader:
    """Returns the header of the only batch in `records`, which must have magic 2. As in Kafka, an incomplete batch
    after it is ignored.

    raises   RefusedRecords, KafkaError. Only the header is checked.
    """

    def refused(code: ErrorCode, reason: str) -> RefusedRecords:
        return RefusedRecords(code, reason, found_by_log=False)

    size = _batch_size_at(records, 0)
    if size is None:
        raise refused(ErrorCode.INVALID_RECORD, "the data does not contain a complete record batch")
    if records[_MAGIC_POSITION] != MAGIC:
        raise refused(
            ErrorCode.INVALID_RECORD, f"the record batch has the unsupported magic {records[_MAGIC_POSITION]}"
        )
    if size < HEADER_BYTES:
        raise refused(
            ErrorCode.CORRUPT_MESSAGE, f"the record batch has only {size} bytes, which is less than its header"
        )
    header = read_batch_header(records)
    codec = header.attributes & COMPRESSION_MASK
    if version < FIRST_VERSION_WITH_ZSTD and codec == Compression.ZSTD.value:
        raise refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Produce v{version} does not support zstd")
    if (
        version < FIRST_VERSION_WITH_ZSTD and codec > Compression.ZSTD.value
    ):  # Kafka fails on an unknown codec while it checks for zstd
        raise refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"unknown compression type {codec}")
    try:
        has_another = _batch_size_at(records, size) is not None
    except KafkaError as error:
        raise refused(error.code, f"after the record batch: {error.message}") from None
    if has_another:
        raise refused(ErrorCode.INVALID_RECORD, "the data contains more than one record batch")
    return header


# --- the batch -------------------------------------------------------------------------------------------------------


def _check_header(batch: memoryview, header: BatchHeader, rules: BatchRules) -> None:
    """Checks everything that does not need decompressed records, in Kafka's order."""
    invalid = ErrorCode.INVALID_RECORD
    if header.base_offset != 0:
        raise RefusedRecords(invalid, f"the base offset is {header.base_offset}, but must be 0")
    if len(batch) > rules.max_message_bytes:
        raise RefusedRecords(
            ErrorCode.MESSAGE_TOO_LARGE, f"the batch has {len(batch)} bytes; the limit is {rules.max_message_bytes}"
        )
    if not crc_ok(batch, 0, len(batch)):
        raise RefusedRecords(ErrorCode.CORRUPT_MESSAGE, "the CRC does not match")
    if header.attributes & COMPRESSION_MASK > Compression.ZSTD.value:
        raise RefusedRecords(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"unknown compression type {header.attributes & COMPRESSION_MASK}"
        )
    count = header.record_count
    if count <= 0 or header.last_offset_delta != count - 1:
        raise RefusedRecords(
            invalid, f"the batch has {count} records, but its last offset delta is {header.last_offset_delta}"
        )
    if header.is_control:
        raise RefusedRecords(invalid, "a client may not write control records")
    if header.has_producer_id and header.base_sequence < 0:
        raise RefusedRecords(
            invalid, f"the sequence of producer id {header.producer_id} is negative: {header.base_sequence}"
        )
    if header.is_transactional and not header.has_producer_id:
        # Kafka accepts such a batch, even though no marker can ever end its transaction.
        raise RefusedRecords(invalid, "transactional records must have a producer id")


def _decompressed_records(
    batch: memoryview, header: BatchHeader, rules: BatchRules, opens_bytes: int
) -> bytes | memoryview:
    """Returns the decompressed records.

    Stops once there are more bytes than `record_count` records of the maximum size can contain. In that case, at least
    one record is too large, or there are bytes after the last record. The error is INVALID_RECORD in both cases
    (docs/spec/kafka-4.4.md#s4-3).
    """
    source = header.compression
    allowed_bytes = header.record_count * (rules.max_record_bytes + _MAX_SIZE_VARINT_BYTES)
    limit_bytes = opens_bytes if source is Compression.NONE else min(opens_bytes, allowed_bytes)
    try:
        return decompress(source, batch[HEADER_BYTES:], limit_bytes)
    except DecompressedTooLarge as error:
        if limit_bytes < opens_bytes:
            raise RefusedRecords(
                ErrorCode.INVALID_RECORD, f"{error}; the limit for one record is {rules.max_record_bytes}"
            ) from None
        if opens_bytes < DECOMPRESSED_LIMIT_BYTES:
            raise DecompressesToMore from None
        raise RefusedRecords(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from None
    except MalformedMessage as malformed:
        raise RefusedRecords(ErrorCode.UNKNOWN_SERVER_ERROR, str(malformed)) from None


# --- the records -----------------------------------------------------------------------------------------------------


def _check_records(
    batch: memoryview, header: BatchHeader, survey: RecordSurvey, rules: BatchRules, now_ms: int, *, reads_all: bool
) -> None:
    """Checks the records. Reads each record only if the survey shows that some record may be invalid."""
    if header.is_log_append_time:
        lowest = highest = header.max_timestamp
        claims_append_time = rules.is_log_append_time or lowest == NO_TIMESTAMP
    else:
        lowest = header.base_timestamp + survey.min_timestamp_delta
        highest = header.base_timestamp + survey.max_timestamp_delta
        claims_append_time = False
    is_in_time = rules.is_log_append_time or (
        now_ms - lowest <= rules.timestamp_before_max_ms and highest - now_ms <= rules.timestamp_after_max_ms
    )
    if not is_in_time or claims_append_time or (rules.is_compacted and survey.has_null_key):
        found = record_errors(
            batch,
            header,
            now_ms=now_ms,
            topic_partition=rules.topic_partition,
            needs_key=rules.is_compacted,
            is_log_append_time=rules.is_log_append_time,
            before_max_ms=rules.timestamp_before_max_ms,
            after_max_ms=rules.timestamp_after_max_ms,
            reads_all=reads_all,
        )
        if found is not None:
            raise RefusedRecords(found.code, found.message, message=found.message, record_errors=found.errors)
    if not rules.is_log_append_time and not (lowest >= _INT64_MIN and highest <= _INT64_MAX):
        raise RefusedRecords(ErrorCode.INVALID_TIMESTAMP, "a timestamp does not fit into 64 bits")


# --- changes that the topic requires ---------------------------------------------------------------------------------


def _in_place(batch: memoryview, header: BatchHeader, rules: BatchRules, max_timestamp: int) -> memoryview:
    if batch.readonly:
        batch = memoryview(bytearray(batch))
    if rules.is_log_append_time:
        set_log_append_time(batch, max_timestamp)
    elif max_timestamp != header.max_timestamp or header.is_log_append_time:
        set_max_timestamp(batch, max_timestamp)
    return batch


def _recompress(
    opened: Bytes, header: BatchHeader, rules: BatchRules, target: Compression, max_timestamp: int
) -> bytearray:
    """Returns a batch with the same records, recompressed as the topic requires. Drops attribute bits that have no
    meaning."""
    attributes = target.value | header.attributes & TRANSACTIONAL | (LOG_APPEND_TIME if rules.is_log_append_time else 0)
    rewritten = pack_batch(
        replace(header, attributes=attributes, max_timestamp=max_timestamp),
        compress(target, opened, rules.compression_level),
    )
    if len(rewritten) > rules.max_message_bytes:
        raise RefusedRecords(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {len(rewritten)} bytes with compression {target.name}; the limit is"
            f" {rules.max_message_bytes}",
        )
    return rewritten


_TARGETS: Final[dict[str, Compression | None]] = {
    "producer": None,
    "uncompressed": Compression.NONE,
} | {kind.name.lower(): kind for kind in Compression if kind is not Compression.NONE}


def _target_compression(config: LogConfig) -> tuple[Compression | None, int | None]:
    name = config.compression_type
    if name not in _TARGETS:
        raise ValueError(f"compression.type {name}")
    target = _TARGETS[name]
    levels = {
        Compression.GZIP: config.compression_gzip_level,
        Compression.LZ4: config.compression_lz4_level,
        Compression.ZSTD: config.compression_zstd_level,
    }
    return target, None if target is None else levels.get(target)
