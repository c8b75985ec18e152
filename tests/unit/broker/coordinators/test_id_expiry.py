"""Tests that transactional ids that expire at the same time are removed in slices, and that other work runs between the
slices."""

from __future__ import annotations

from odradek.broker.coordinators.transaction_coordinator import EXPIRED_IDS_PER_SLICE
from odradek.broker.transactions.turn import TransactionConfig
from odradek.protocol.batch_header import batches
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.records import records_of
from odradek.protocol.topic_partition import TRANSACTION_STATE
from tests.support.fake_disk import Fault
from tests.support.transaction_broker import TransactionBroker

EXPIRATION_MS, SCAN_MS = 60_000, 3_600_000
IDS = 2 * EXPIRED_IDS_PER_SLICE + 1


class Scene(TransactionBroker):
    """A broker with one partition of `__transaction_state`, which contains more ids than one slice removes."""

    def __init__(self) -> None:
        super().__init__(decisions=TransactionConfig(transactional_id_expiration_ms=EXPIRATION_MS))
        self.topic(TRANSACTION_STATE, 1)
        for number in range(IDS):
            request = InitProducerIdRequest(transactional_id=f"task-{number}", transaction_timeout_ms=1_000)
            assert not self.answer(request, 4, InitProducerIdResponse).error_code

    @property
    def tombstones(self) -> list[int]:
        """The number of tombstones in each batch that contains tombstones."""
        log = self.partition(TRANSACTION_STATE, 0).log
        counts = []
        for data in log.reader.scan(0, log.log_end_offset):
            for position, _ in batches(data):
                counts.append(sum(record.value is None for record in records_of(data, position)))
        return [count for count in counts if count]


def test_ids_that_expire_together_are_forgotten_in_slices() -> None:
    scene = Scene()
    scene.timers.advance(SCAN_MS)
    assert scene.tombstones == [EXPIRED_IDS_PER_SLICE, EXPIRED_IDS_PER_SLICE, 1]


def test_a_disk_that_refuses_ends_the_run_and_the_next_one_goes_on() -> None:
    scene = Scene()
    scene.disk.fail(1, Fault.ENOSPC)
    scene.timers.advance(SCAN_MS)
    assert scene.tombstones == []
    scene.timers.advance(SCAN_MS)
    assert sum(scene.tombstones) == IDS
