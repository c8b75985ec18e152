"""Ways to end a transaction from outside. They differ in who knows of the transaction.

By its coordinator, as a new producer with the same transactional id would: everything ends, the old producer is fenced.
By force, the same for a transaction of a two-phase commit, which was promised to wait for its owner's decision.
By a marker in one partition, for a transaction that no coordinator knows.
"""

from __future__ import annotations

from odradek.client.administration.asking import Asking
from odradek.client.administration.transactions import (
    TransactionDescription,
    describe_transaction,
    ids_by_producer,
)
from odradek.client.common.errors import ClientError, check
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.protocol.messages.write_txn_markers_response import WriteTxnMarkersResponse
from odradek.tools.transactions.hanging import OpenTransaction, owner_of

ONGOING = "Ongoing"
FIRST_COORDINATOR_EPOCH = 0
WITHOUT_TRANSACTION_VERSION = 1  # of WriteTxnMarkers: a later one would ask for a newer epoch than that of the producer
INIT_PRODUCER_ID = 5  # the newest that does not know of two-phase commit
TIMEOUT_MS = 30_000  # of the id, after it was ended by force: that of an admin request, as Kafka's tool does it


async def abort_by_coordinator(asking: Asking, transactional_id: str) -> None:
    """Returns when the abort is complete. Raises ClientError, so also where nothing is open (the producer would be
    fenced for nothing), and where the transaction is of a two-phase commit."""
    found = await describe_transaction(asking, transactional_id)
    if found.state != ONGOING:
        raise ClientError(f"{transactional_id!r} has no open transaction: its state is {found.state}")
    if found.timeout_ms is None:
        raise ClientError(
            f"the transaction of {transactional_id!r} is part of a two-phase commit, whose coordinator may have decided"
            f" to commit it; if nobody can tell: force-terminate --transactional-id {transactional_id}"
        )
    await _take_over(asking, found, found.timeout_ms)


async def force_terminate(asking: Asking, transactional_id: str) -> TransactionDescription:
    """Aborts what is open, fences the owner, and makes the id an ordinary one from now on.

    Returns what there was before, when that is complete. Raises ClientError, so also where nothing is known of the id.
    """
    found = await describe_transaction(asking, transactional_id)
    await _take_over(asking, found, TIMEOUT_MS)
    return found


async def _take_over(asking: Asking, found: TransactionDescription, timeout_ms: int) -> None:
    request = InitProducerIdRequest(transactional_id=found.transactional_id, transaction_timeout_ms=timeout_ms)

    async def fence() -> None:
        # While the abort is under way the answer is CONCURRENT_TRANSACTIONS.
        answer = await asking.cluster.ask(
            request, InitProducerIdResponse, node_id=found.coordinator, max_version=INIT_PRODUCER_ID
        )
        check(answer.error_code, f"to end the transaction of {found.transactional_id!r}")

    await asking.patiently(fence)


async def abort_by_marker(asking: Asking, transaction: OpenTransaction) -> None:
    """Raises ClientError, so also where a coordinator knows the transaction: a marker behind its back would tear it."""
    owner = await owner_of(asking, transaction, await ids_by_producer(asking, [transaction.producer_id]))
    if owner is not None:
        raise ClientError(
            f"it belongs to the transactional id {owner.transactional_id!r} ({owner.state}), whose coordinator ends it"
            f" {owner.timeout_ms} ms after its start; to end it now: abort --transactional-id {owner.transactional_id}"
        )
    topic = WritableTxnMarkerTopic(name=transaction.topic, partition_indexes=[transaction.partition])
    marker = WritableTxnMarker(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_result=False,
        topics=[topic],
        coordinator_epoch=transaction.coordinator_epoch or FIRST_COORDINATOR_EPOCH,
    )
    answer = await asking.broker(
        transaction.leader_id,
        WriteTxnMarkersRequest(markers=[marker]),
        WriteTxnMarkersResponse,
        max_version=WITHOUT_TRANSACTION_VERSION,
    )
    for of_producer in answer.markers:
        for of_topic in of_producer.topics:
            for of_partition in of_topic.partitions:
                check(of_partition.error_code, f"the marker in {of_topic.name}-{of_partition.partition_index}")
