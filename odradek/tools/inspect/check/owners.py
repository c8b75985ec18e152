"""Which transactional ids own the producer ids of open transactions, as the log of the coordinators has it last."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from odradek.protocol.batch_header import batches
from odradek.protocol.codec import decode_from
from odradek.protocol.decoded.internal_records import TXN_STATES
from odradek.protocol.messages.transaction_log_key import TransactionLogKey
from odradek.protocol.messages.transaction_log_value import TransactionLogValue
from odradek.protocol.records import Record, records_of
from odradek.protocol.topic_partition import TRANSACTION_STATE
from odradek.tools.offline.directories import partitions_at
from odradek.tools.offline.walk import stretches

_VERSION_BYTES = 2
_PRODUCER_ID = slice(_VERSION_BYTES, _VERSION_BYTES + 8)  # the first field of a value
_OPEN = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})
_TO_THE_END = 1 << 62


@dataclass(frozen=True, slots=True)
class Owner:
    transactional_id: str
    state: str
    producer_epoch: int
    partitions: frozenset[tuple[str, int]]

    @property
    def is_open(self) -> bool:
        return self.state in _OPEN


def owners_of(data: Path, producer_ids: set[int]) -> dict[int, Owner] | None:
    """By producer id. None where `data` holds no log of the coordinators, or only some of its partitions.

    Reads every record of `__transaction_state`, and decodes those of these producers.
    """
    logs = [log for log in partitions_at(data) if log.topic == TRANSACTION_STATE]
    if not logs or {log.partition for log in logs} != set(range(len(logs))):
        return None
    found: dict[int, Owner] = {}
    for log in logs:
        for stretch in stretches(log.directory, log.log_start_offset, _TO_THE_END, on_damage=lambda damage: None):
            for position, header in batches(stretch.data):
                if not header.is_control:
                    for record in records_of(stretch.data, position):
                        _replay(found, record, producer_ids)
    return found


def _replay(found: dict[int, Owner], record: Record, producer_ids: set[int]) -> None:
    if record.key is None:
        return
    if record.value is None:
        if found:
            gone = _transactional_id(record.key)
            for producer_id in [each for each, owner in found.items() if owner.transactional_id == gone]:
                del found[producer_id]
        return
    producer_id = int.from_bytes(record.value[_PRODUCER_ID], "big", signed=True)
    if producer_id not in producer_ids:
        return
    version = int.from_bytes(record.value[:_VERSION_BYTES], "big")
    value, _ = decode_from(TransactionLogValue, version, record.value, _VERSION_BYTES)
    found[producer_id] = Owner(
        _transactional_id(record.key),
        TXN_STATES.get(value.transaction_status, f"unknown ({value.transaction_status})"),
        value.producer_epoch,
        frozenset(
            (each.topic, partition) for each in value.transaction_partitions or () for partition in each.partition_ids
        ),
    )


def _transactional_id(key: bytes) -> str:
    return decode_from(TransactionLogKey, 0, key, _VERSION_BYTES)[0].transactional_id
