"""Tests that `odradek inspect` shows the acknowledgements staged in transactions
(docs/formats/share-group-state.md)."""

from odradek.broker.shares.core.records import decode_record, encode_record
from odradek.broker.shares.core.state import PendingRange, Resolution, ResolvedRange, SharePartitionKey, ShareUpdate
from odradek.protocol.decoded.internal_records import share_fields
from odradek.protocol.records import NewRecord, build_batch, records_of

STAGED = PendingRange(0, 9, 7, 5, 1, 2, "A", 3, 99, "pay")
RESOLVED = ResolvedRange(10, 11, 7, 4, Resolution.COMMITTED, 3)
UPDATE = ShareUpdate(SharePartitionKey("g", bytes(16), 0), 0, 0, 0, 0, pending=(STAGED,), resolved=(RESOLVED,))


def test_staged_and_resolved_ranges_are_shown_by_name() -> None:
    (record,) = records_of(build_batch([NewRecord(*encode_record(UPDATE), 0)]), 0)
    shown = share_fields(record)["value"]["data"]
    assert shown["txnStaged"][0]["transactionalId"] == "pay"
    assert shown["txnResolved"][0]["outcome"] == Resolution.COMMITTED.value


def test_staged_ranges_are_read_as_they_were_written() -> None:
    assert decode_record(*encode_record(UPDATE)) == UPDATE
