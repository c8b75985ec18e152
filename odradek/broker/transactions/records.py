"""Encodes and decodes the records of `__transaction_state`. See docs/formats/transaction-log.md.

A key of version 0 holds a transactional id. At level 0 of `transaction.version`, Kafka writes values of version 0. At
level 1 and above it writes version 1, which stores newer fields in tagged fields. A record without a value removes the
id. Only Odradek writes record headers.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from itertools import groupby
from typing import Final

from odradek.broker.transactions.entry import LAST_USABLE_EPOCH, TransactionTombstone, Txn, TxnRecord
from odradek.broker.transactions.tables import STORED, TxnState
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.transaction_log_key import TransactionLogKey
from odradek.protocol.messages.transaction_log_value import PartitionsSchema, TransactionLogValue
from odradek.protocol.records import Headers
from odradek.protocol.topic_partition import TopicPartition

SHORT: Final = struct.Struct(">h")
VERSION_BYTES: Final = 2
KEY_VERSION: Final = 0
VALUE_WITHOUT_TAGS: Final = 0
VALUE_WITH_TAGS: Final = 1
INT: Final = struct.Struct(">i")
# Odradek's record headers.
LAST_PRODUCER_EPOCH: Final = "last-producer-epoch"
NEXT_TIMEOUT_MS: Final = "next-timeout-ms"
# Size of the caches for keys and sets of partitions, which a producer's consecutive records usually share.
REMEMBERED: Final = 1024
NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()  # a shared instance, because an empty set takes 216 bytes
NONE: Final = -1  # represents a missing id, epoch or time
# The usual layout of version 1 values, before and after the partitions. This layout has its own code because every
# transaction writes three values, and the generic codec takes three times as long. A value begins with the version,
# producer id and epoch, timeout and state. It ends with the times and two tagged fields: the previous producer id (tag
# 0, 8 bytes) and the client's version (tag 2, 2 bytes).
USUAL_START: Final = struct.Struct(">hqhib")
USUAL_END: Final = struct.Struct(">qq3sq2sh")
PREVIOUS_ID_TAG: Final = bytes((2, 0, 8))  # the number of tagged fields, then the tag and the size of the first field
CLIENT_VERSION_TAG: Final = bytes((2, 2))
STATUS: Final = {state: state.value for state in STORED}
STATES: Final = {state.value: state for state in STORED}
USUAL_BYTES: Final = USUAL_START.size + 1 + USUAL_END.size  # size without partitions, as in ended transactions
NULL_OR_EMPTY: Final = (0, 1)
BYTES_BEFORE_PARTITIONS, BYTES_BEHIND_PARTITIONS = USUAL_START.size - VERSION_BYTES, 8 + 8 + 1


def value_version(txn: Txn, transaction_version: int) -> int:
    """Returns the version to use for encoding a value: the oldest version that the cluster's level of
    `transaction.version` allows, or version 1 if a second producer id and epoch must be stored."""
    if transaction_version == 0 and txn.next_producer_epoch is None:
        return VALUE_WITHOUT_TAGS
    return VALUE_WITH_TAGS


def encode_record(record: TxnRecord, transaction_version: int) -> tuple[bytes, bytes | None]:
    key = _key(record.transactional_id)
    if isinstance(record, TransactionTombstone):
        return key, None
    version = value_version(record, transaction_version)
    if version == VALUE_WITH_TAGS and has_usual_tags(record):
        return key, usual_value(record)
    return key, SHORT.pack(version) + encode(_value(record, version), version)


@lru_cache(REMEMBERED)
def _key(transactional_id: str) -> bytes:
    return SHORT.pack(KEY_VERSION) + encode(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION)


def decode_record(key: bytes | None, value: bytes | None) -> TxnRecord | None:
    """Decodes a record. Returns None for a key with a later version, because Kafka also ignores such records.

    Raises MalformedMessage for other unexpected contents, including a value of a later version. Kafka ignores a value
    with a later version and would then use an older record for the same id as the current state.
    """
    if key is None or len(key) < VERSION_BYTES:
        raise MalformedMessage("the key of a record in __transaction_state has no version")
    if SHORT.unpack_from(key)[0] != KEY_VERSION:
        return None
    transactional_id = decode(TransactionLogKey, KEY_VERSION, key, VERSION_BYTES).transactional_id
    if value is None:
        return TransactionTombstone(transactional_id)
    return usual_txn(transactional_id, value) or coded_txn(transactional_id, value)


def coded_txn(transactional_id: str, value: bytes) -> Txn:
    """Decodes a value of any layout with the generic codec. Raises MalformedMessage if the value is invalid."""
    if len(value) < VERSION_BYTES:
        raise MalformedMessage(f"the value of {transactional_id!r} in __transaction_state has no version")
    version = SHORT.unpack_from(value)[0]
    if version not in (VALUE_WITHOUT_TAGS, VALUE_WITH_TAGS):
        raise MalformedMessage(
            f"the value of {transactional_id!r} in __transaction_state has the unsupported version {version}"
        )
    return _txn(transactional_id, decode(TransactionLogValue, version, value, VERSION_BYTES))


def record_headers(record: TxnRecord) -> Headers:
    """Returns headers for the data that a restart needs but that has no field in the value. Kafka ignores headers.

    last-producer-epoch  the epoch that identifies a producer retrying its InitProducerId; Kafka would fence this
                         producer. Omitted if the epoch can be derived from the value
    next-timeout-ms      see `Txn.next_timeout_ms`; in Kafka, later transactions keep the timeout of the kept
                         transaction
    """
    if isinstance(record, TransactionTombstone):
        return ()
    headers: tuple[tuple[str, bytes | None], ...] = ()
    last_producer_epoch = record.last_producer_epoch
    if last_producer_epoch is not None:
        assert record.producer_epoch is not None
        follows = _last_producer_epoch(
            record.state, record.client_version, record.producer_id, record.producer_epoch, record.previous_producer_id
        )
        if last_producer_epoch != follows:
            headers = ((LAST_PRODUCER_EPOCH, SHORT.pack(last_producer_epoch)),)
    if record.next_timeout_ms is not None:
        headers += ((NEXT_TIMEOUT_MS, INT.pack(record.next_timeout_ms)),)
    return headers


def restore_headers(record: TxnRecord, headers: Headers) -> TxnRecord:
    """Returns the decoded record with the data from its headers added. Raises MalformedMessage if a header has the
    wrong size."""
    if isinstance(record, TransactionTombstone) or not headers:
        return record
    revived = record.copy()
    for name, value in headers:
        if name == LAST_PRODUCER_EPOCH:
            revived.last_producer_epoch = _number(SHORT, value, name, record)
        elif name == NEXT_TIMEOUT_MS:
            revived.next_timeout_ms = _number(INT, value, name, record)
    return revived


def _number(form: struct.Struct, value: bytes | None, name: str, record: Txn) -> int:
    if value is None or len(value) != form.size:
        raise MalformedMessage(f"the header {name} of {record.transactional_id!r} does not hold {form.size} bytes")
    number: int = form.unpack(value)[0]
    return number


def _value(txn: Txn, version: int) -> TransactionLogValue:
    assert txn.state in STORED
    assert txn.producer_epoch is not None
    value = TransactionLogValue(
        producer_id=txn.producer_id,
        producer_epoch=txn.producer_epoch,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_status=txn.state.value,
        transaction_partitions=None if txn.state is TxnState.EMPTY else _by_topic(txn.partitions),
        transaction_last_update_timestamp_ms=txn.updated_ms,
        transaction_start_timestamp_ms=_or_none(txn.started_ms),
    )
    if version >= VALUE_WITH_TAGS:
        value.previous_producer_id = _or_none(txn.previous_producer_id)
        value.next_producer_id = _or_none(txn.next_producer_id)
        value.next_producer_epoch = _or_none(txn.next_producer_epoch)
        value.client_transaction_version = txn.client_version
    return value


def has_usual_tags(txn: Txn) -> bool:
    return (
        txn.client_version != 0
        and txn.previous_producer_id is not None
        and txn.next_producer_id is None
        and txn.next_producer_epoch is None
    )


def usual_value(txn: Txn) -> bytes:
    """Encodes a value that has the usual layout, without using the generic codec. Returns the same bytes as that
    codec."""
    state, started_ms = txn.state, txn.started_ms
    start = USUAL_START.pack(VALUE_WITH_TAGS, txn.producer_id, txn.producer_epoch, txn.timeout_ms, STATUS[state])
    end = USUAL_END.pack(
        txn.updated_ms,
        NONE if started_ms is None else started_ms,
        PREVIOUS_ID_TAG,
        txn.previous_producer_id,
        CLIENT_VERSION_TAG,
        txn.client_version,
    )
    return start + _partitions(None if state is TxnState.EMPTY else txn.partitions) + end


@lru_cache(REMEMBERED)
def _partitions(partitions: frozenset[TopicPartition] | None) -> bytes:
    """Encodes a version 1 value's partitions; None is encoded as null."""
    value = TransactionLogValue(transaction_partitions=None if partitions is None else _by_topic(partitions))
    return encode(value, VALUE_WITH_TAGS)[BYTES_BEFORE_PARTITIONS:-BYTES_BEHIND_PARTITIONS]


@lru_cache(REMEMBERED)
def _by_topic(partitions: frozenset[TopicPartition]) -> list[PartitionsSchema]:
    """Groups the partitions by topic, in sorted order, so that equal decisions have equal bytes. Results are cached, so
    the caller must not modify them."""
    return [
        PartitionsSchema(topic=topic, partition_ids=[partition for _, partition in members])
        for topic, members in groupby(sorted(partitions), key=lambda each: each[0])
    ]


def _txn(transactional_id: str, value: TransactionLogValue) -> Txn:
    try:
        state = TxnState(value.transaction_status)
    except ValueError:
        state = None
    if state not in STORED:
        raise MalformedMessage(
            f"{transactional_id!r} in __transaction_state has the invalid state {value.transaction_status}"
        )
    previous_producer_id = _unless_none(value.previous_producer_id)
    next_producer_id, next_producer_epoch = (
        _unless_none(value.next_producer_id),
        _unless_none(value.next_producer_epoch),
    )
    if state is TxnState.ONGOING and (next_producer_id is None or next_producer_epoch is None):
        next_producer_id = next_producer_epoch = None  # a transaction is kept only if the record contains both fields
    return Txn(
        transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=_partitions_in(value.transaction_partitions) if value.transaction_partitions else NO_PARTITIONS,
        started_ms=_unless_none(value.transaction_start_timestamp_ms),
        updated_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=previous_producer_id,
        next_producer_id=next_producer_id,
        next_producer_epoch=next_producer_epoch,
        last_producer_epoch=_last_producer_epoch(
            state, value.client_transaction_version, value.producer_id, value.producer_epoch, previous_producer_id
        ),
        client_version=value.client_transaction_version,
    )


def usual_txn(transactional_id: str, value: bytes) -> Txn | None:
    """Decodes a value that has no partitions and the usual tagged fields, three times as fast as `coded_txn`. Returns
    None for other values."""
    if len(value) != USUAL_BYTES:
        return None
    version, producer_id, producer_epoch, timeout_ms, status = USUAL_START.unpack_from(value)
    updated_ms, started_ms, previous_tag, previous_producer_id, version_tag, client_version = USUAL_END.unpack_from(
        value, USUAL_START.size + 1
    )
    state = STATES.get(status)
    if (
        version != VALUE_WITH_TAGS
        or state is None
        or value[USUAL_START.size] not in NULL_OR_EMPTY
        or previous_tag != PREVIOUS_ID_TAG
        or version_tag != CLIENT_VERSION_TAG
    ):
        return None
    if previous_producer_id == producer_id:
        previous_producer_id = producer_id  # shares one object to save memory, because there can be a million entries
    previous = None if previous_producer_id == NONE else previous_producer_id
    return Txn(
        transactional_id,
        producer_id,
        producer_epoch,
        timeout_ms,
        state,
        NO_PARTITIONS,
        None if started_ms == NONE else started_ms,
        updated_ms,
        previous,
        last_producer_epoch=_last_producer_epoch(state, client_version, producer_id, producer_epoch, previous),
        client_version=client_version,
    )


def _partitions_in(topics: list[PartitionsSchema]) -> frozenset[TopicPartition]:
    return frozenset((each.topic, partition) for each in topics for partition in each.partition_ids)


def _last_producer_epoch(
    state: TxnState, version: int, producer_id: int, producer_epoch: int, previous_producer_id: int | None
) -> int | None:
    """Derives the last producer epoch from the other fields of the record. Returns None if they do not determine it.
    Ending a transaction under version 2 bumps the epoch, or replaces the producer id if the epochs are used up. For a
    transaction that was kept, the result can be wrong, and `record_headers` stores the actual epoch."""
    if state in (TxnState.EMPTY, TxnState.ONGOING) or version != 2:
        return None
    if producer_epoch > 0:
        return producer_epoch - 1
    return LAST_USABLE_EPOCH if previous_producer_id != producer_id else None


def _or_none(number: int | None) -> int:
    return NONE if number is None else number


def _unless_none(number: int) -> int | None:
    return None if number == NONE else number
