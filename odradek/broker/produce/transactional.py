"""Handles Produce requests with transactional batches. All batches are verified before any batch of the request is
written.

The steps are in Kafka's order: check the header of each batch, check that all batches have the same producer, wait for
the coordinator's answer, then let the log check the batch and its records. Source: docs/spec/transactions.md#s2-8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.broker.api.error_translations import Receiver, translate
from odradek.broker.coordinators.verification import (
    FIRST_PRODUCE_VERSION_THAT_ADDS,
    TransactionalProducer,
    UnverifiedBatch,
    VerificationResults,
    Verifier,
)
from odradek.broker.partitions.partition import Partition
from odradek.broker.produce.request import PendingProduce, VerificationError
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.produce_response import PartitionProduceResponse
from odradek.storage.validation import RefusedRecords, only_batch

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.protocol.batch_header import BatchHeader
    from odradek.protocol.messages.produce_request import ProduceRequest
    from odradek.protocol.struct import Buffer

E = ErrorCode


@dataclass(slots=True)
class HeldBatch:
    """A batch waiting for its request to be verified. `header` is None if the batch is not transactional."""

    partition: Partition
    records: Buffer | None
    answer: PartitionProduceResponse
    header: BatchHeader | None


class TransactionalProduce:
    def __init__(self, pending: PendingProduce, context: RequestContext, verifier: Verifier) -> None:
        self._pending = pending
        self._version = context.api_version
        self._verifier = verifier
        self._held: list[HeldBatch] = []

    def start_verification(self, request: ProduceRequest) -> None:
        """Begins the verification. Raises KafkaError if the request is refused before the coordinator has been
        contacted and before any batch has been written."""
        pending = self._pending
        for topic in request.topic_data:
            pending.take_topic(topic, self._hold_batch)
        assert request.transactional_id is not None
        producers = {
            TransactionalProducer(request.transactional_id, each.header.producer_id, each.header.producer_epoch)
            for each in self._held
            if each.header is not None
        }
        if len(producers) > 1:
            raise KafkaError(E.INVALID_PRODUCER_ID_MAPPING)
        batches = [
            UnverifiedBatch(each.partition, each.header.base_sequence) for each in self._held if each.header is not None
        ]
        if not batches:
            self._verified({})
            return
        is_done = False

        def verified(results: VerificationResults) -> None:
            nonlocal is_done
            is_done = True
            self._verified(results)

        self._verifier.verify(
            producers.pop(),
            batches,
            self._version >= FIRST_PRODUCE_VERSION_THAT_ADDS,
            verified,
            waits_for_the_last=True,
        )
        if not is_done:
            pending.reply.overlaps = False  # the producer's next request must not overtake this one

    def _hold_batch(self, partition: Partition, records: Buffer | None, answer: PartitionProduceResponse) -> None:
        if records is None:
            self._held.append(HeldBatch(partition, records, answer, None))
            return
        header = only_batch(records, self._version)
        if not header.is_transactional:
            self._held.append(HeldBatch(partition, records, answer, None))
            return
        refusal = self._pending.refusal_by_request(partition)
        if partition.is_internal:
            # Kafka adds the partition to the transaction first, and then refuses the batch.
            raise refusal or KafkaError(E.INVALID_TOPIC_EXCEPTION)
        if not header.has_producer_id:
            # Kafka writes the batch without contacting a coordinator, but no marker could ever end its transaction.
            raise refusal or RefusedRecords(E.INVALID_RECORD, "transactional records must have a producer id")
        self._held.append(HeldBatch(partition, records, answer, header))

    def _verified(self, results: VerificationResults) -> None:
        pending = self._pending
        for each in self._held:
            result = results.get((each.partition.topic, each.partition.index))
            if isinstance(result, KafkaError):
                pending.refuse(each.answer, self._coordinator_error(result), None)
            else:
                pending.stage_verified(each.partition, each.records, each.answer, result)
        pending.partition_done()

    def _coordinator_error(self, refusal: KafkaError) -> KafkaError:
        code = translate(Receiver.PRODUCE, refusal.code, self._version)
        # The messages are identical to Kafka's, because clients show them to users.
        if code is E.INVALID_TXN_STATE:
            return VerificationError(code, "Partition was not added to the transaction")
        if code is E.NOT_ENOUGH_REPLICAS and refusal.code is not code:
            text = "Unable to verify the partition has been added to the transaction. Underlying error: "
            return VerificationError(code, text + refusal.code.name)
        return refusal if refusal.code is code else KafkaError(code)
