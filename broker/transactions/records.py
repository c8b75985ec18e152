"""The records of `__transaction_state`, typed to bytes and back: docs/formats/transaction-log.md.

A key of version 0 holds a transactional id. A value of version 0 is what Kafka wrote before `transaction.version` 1;
from then on it is version 1, with the younger fields as tags. No value means: forget the id. Headers are ours.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from itertools import groupby

from broker.transactions.entry import LAST_USABLE_EPOCH, Forgotten, TopicPartition, Txn, TxnRecord
from broker.transactions.tables import STORED, TxnState
from protocol.codec import decode, encode
from protocol.errors import MalformedMessage
from protocol.messages.transaction_log_key import TransactionLogKey
from protocol.messages.transaction_log_value import PartitionsSchema, TransactionLogValue
from protocol.records import Headers

SHORT = struct.Struct(">h")
VERSION_BYTES = 2
KEY_VERSION = 0
VALUE_WITHOUT_TAGS = 0
VALUE_WITH_TAGS = 1
LAST_PRODUCER_EPOCH = "last-producer-epoch"  # a record header of ours
REMEMBERED = 1024  # keys and sets of partitions: a producer's records have the same ones for a while
NONE = -1  # what the fields say where there is no id, epoch or time


def value_version(txn: Txn, transaction_version: int) -> int:
    """The oldest that the cluster's level allows, save that a second pair of producer id and epoch must stay."""
    if transaction_version == 0 and txn.next_producer_epoch is None:
        return VALUE_WITHOUT_TAGS
    return VALUE_WITH_TAGS


def encode_record(record: TxnRecord, transaction_version: int) -> tuple[bytes, bytes | None]:
    key = _key(record.transactional_id)
    if isinstance(record, Forgotten):
        return key, None
    version = value_version(record, transaction_version)
    return key, SHORT.pack(version) + encode(_value(record, version), version)


@lru_cache(REMEMBERED)
def _key(transactional_id: str) -> bytes:
    return SHORT.pack(KEY_VERSION) + encode(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION)


def decode_record(key: bytes | None, value: bytes | None) -> TxnRecord | None:
    """None for a key of a later version: as Kafka, passed over.

    Raises MalformedMessage for anything else that is not as it should be. That includes a value of a later version,
    which Kafka passes over: what an older record says of the same id would then be taken for its state.
    """
    if key is None or len(key) < VERSION_BYTES:
        raise MalformedMessage("a record of __transaction_state without a version in its key")
    if SHORT.unpack_from(key)[0] != KEY_VERSION:
        return None
    transactional_id = decode(TransactionLogKey, KEY_VERSION, key, VERSION_BYTES).transactional_id
    if value is None:
        return Forgotten(transactional_id)
    if len(value) < VERSION_BYTES:
        raise MalformedMessage(f"the value of {transactional_id!r} in __transaction_state has no version")
    version = SHORT.unpack_from(value)[0]
    if version not in (VALUE_WITHOUT_TAGS, VALUE_WITH_TAGS):
        raise MalformedMessage(f"the value of {transactional_id!r} in __transaction_state is of version {version}")
    return _txn(transactional_id, decode(TransactionLogValue, version, value, VERSION_BYTES))


def record_headers(record: TxnRecord) -> Headers:
    """The last producer epoch, where it does not follow from the value: so that a producer that repeats its
    InitProducerId is known again after a restart. Kafka, which fences it, passes over headers."""
    if isinstance(record, Forgotten) or record.last_producer_epoch is None:
        return ()
    follows = record.client_version == 2 and record.state is not TxnState.EMPTY
    return () if follows else ((LAST_PRODUCER_EPOCH, SHORT.pack(record.last_producer_epoch)),)


def revive(record: TxnRecord, headers: Headers) -> TxnRecord:
    """Raises MalformedMessage."""
    if isinstance(record, Forgotten):
        return record
    for name, value in headers:
        if name == LAST_PRODUCER_EPOCH:
            if value is None or len(value) != SHORT.size:
                raise MalformedMessage(f"the header {name} of {record.transactional_id!r} holds no epoch")
            return record._replace(last_producer_epoch=SHORT.unpack(value)[0])
    return record


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


@lru_cache(REMEMBERED)
def _by_topic(partitions: frozenset[TopicPartition]) -> list[PartitionsSchema]:
    """In order, so that the same decisions make the same bytes. Not to be changed: it is remembered."""
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
        raise MalformedMessage(f"{transactional_id!r} in __transaction_state is in state {value.transaction_status}")
    return Txn(
        transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            (each.topic, partition) for each in value.transaction_partitions or () for partition in each.partition_ids
        ),
        started_ms=_unless_none(value.transaction_start_timestamp_ms),
        updated_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=_unless_none(value.previous_producer_id),
        next_producer_id=_unless_none(value.next_producer_id),
        next_producer_epoch=_unless_none(value.next_producer_epoch),
        last_producer_epoch=_last_producer_epoch(state, value),
        client_version=value.client_transaction_version,
    )


def _last_producer_epoch(state: TxnState, value: TransactionLogValue) -> int | None:
    """Not stored; but every end of a transaction under version 2 bumps the epoch, so there it is known."""
    if state in (TxnState.EMPTY, TxnState.ONGOING) or value.client_transaction_version != 2:
        return None
    if value.producer_epoch > 0:
        return value.producer_epoch - 1
    return LAST_USABLE_EPOCH if value.previous_producer_id != value.producer_id else None


def _or_none(number: int | None) -> int:
    return NONE if number is None else number


def _unless_none(number: int) -> int | None:
    return None if number == NONE else number
