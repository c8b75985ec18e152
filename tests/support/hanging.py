"""Creates a hanging transaction: one that never ends, because it is open in a partition but unknown to its coordinator.

Such a transaction can arise only in a broker with `transaction.partition.verification.enable=false`.
"""

import time

from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.produce_response import ProduceResponse
from tests.support.batches import batch_by
from tests.support.requests import produce_request
from tests.support.wire import Wire

BEFORE_IMPLICIT_ADDS = 11  # last version of Produce that requires AddPartitionsToTxn
FIND_COORDINATOR, INIT_PRODUCER_ID = 3, 4
TRANSACTION = 1
PATIENCE_S = 60


def leave_hanging(bootstrap: str, transactional_id: str, topic: str, *, age_ms: int = 5_000) -> int:
    """Produces a transactional record to partition 0 without AddPartitionsToTxn. Returns the producer id.

    age_ms  age of the record's timestamp
    """
    with Wire(bootstrap) as wire:
        wire.ask(FindCoordinatorRequest(key=transactional_id, key_type=TRANSACTION), FIND_COORDINATOR)
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        deadline = time.monotonic() + PATIENCE_S
        while (known := wire.ask(request, INIT_PRODUCER_ID, InitProducerIdResponse)).error_code:
            assert time.monotonic() < deadline, known
        batch = batch_by(
            (known.producer_id, known.producer_epoch),
            0,
            b"hanging",
            key=None,
            at_ms=time.time_ns() // 1_000_000 - age_ms,
        )
        produce = produce_request(topic, batch, transactional_id=transactional_id)
        answer = wire.ask(produce, BEFORE_IMPLICIT_ADDS, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == 0
        return known.producer_id
