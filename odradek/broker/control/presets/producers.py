"""Presets in which producer epochs, producer ids or sequence numbers are nearly used up."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.broker.control.presets.parameters import Facts, Parameters
from odradek.broker.control.presets.preset_client import PresetClient
from odradek.broker.control.presets.transactions import prepared_transaction
from odradek.broker.control.problems import Problem
from odradek.broker.coordinators.producer_ids import BLOCK_SIZE
from odradek.broker.transactions.entry import LAST_USABLE_EPOCH, NEVER_MS, Txn
from odradek.broker.transactions.requests import TransactionFilter
from odradek.broker.transactions.tables import TxnState
from odradek.broker.transactions.turn import Outcome
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.storage.producer_state import INT32_MAX

if TYPE_CHECKING:
    from odradek.broker.transactions.core import TransactionCore


async def epoch_nearly_exhausted(client: PresetClient, parameters: Parameters) -> Facts:
    """The transactional id has only `epochs_left` epochs left, as if its producer had been restarted many times."""
    name = parameters.text("transactional_id")
    producer = await client.producer(name)
    epoch = LAST_USABLE_EPOCH - parameters.number("epochs_left")

    def raised(txn: Txn) -> None:
        if txn.state is TxnState.ONGOING:
            raise Problem(409, f"transaction {name} is open: end it first", field="transactional_id")
        txn.producer_epoch = producer.producer_epoch = max(epoch, txn.producer_epoch or 0)

    record(client, name, raised)
    return producer.facts()


async def kept_epoch_nearly_exhausted(client: PresetClient, parameters: Parameters) -> Facts:
    """A prepared transaction has a new owner, which has kept the transaction. The owner's own producer id has only
    `epochs_left` epochs left. Each additional owner that keeps the transaction uses up one epoch."""
    name = parameters.text("transactional_id")
    prepared = await prepared_transaction(client, parameters)
    request = InitProducerIdRequest(
        transactional_id=name, transaction_timeout_ms=NEVER_MS, enable2_pc=True, keep_prepared_txn=True
    )
    owner = await client.ask(request, InitProducerIdResponse)
    epoch = max(LAST_USABLE_EPOCH - parameters.number("epochs_left"), owner.producer_epoch)

    def raised(txn: Txn) -> None:
        txn.next_producer_epoch = epoch

    record(client, name, raised)
    kept = {"kept_producer_id": prepared["producer_id"], "kept_producer_epoch": prepared["producer_epoch"]}
    return {**prepared, **kept, "producer_id": owner.producer_id, "producer_epoch": epoch}


def record(client: PresetClient, transactional_id: str, change: Callable[[Txn], None]) -> None:
    """Changes the coordinator's entry for a transactional id and writes the entry to the coordinator's log. Raises
    Problem."""

    def changed(core: TransactionCore, now_ms: int) -> Outcome[None]:
        after = next(
            each for each in core.candidates(TransactionFilter()) if each.transactional_id == transactional_id
        ).copy()
        change(after)
        after.updated_ms = now_ms
        return Outcome(records=(after,))

    if not client.broker.transactions.shard_for(transactional_id).submit_maintenance(changed):
        raise Problem(409, f"the coordinator of {transactional_id} cannot store the new state now: try again")


async def producer_ids_nearly_used(client: PresetClient, parameters: Parameters) -> Facts:
    """The broker's block of producer ids has only `ids_left` ids left; later ids come from the next block."""
    left = parameters.number("ids_left", 0, BLOCK_SIZE - 1)
    producer = await client.producer(None)
    while BLOCK_SIZE - 1 - producer.producer_id % BLOCK_SIZE != left:
        producer = await client.producer(None)
    return {"last_producer_id": producer.producer_id, "first_of_next_block": producer.producer_id + left + 1}


async def sequence_wrap(client: PresetClient, parameters: Parameters) -> Facts:
    """An idempotent producer has written a batch with sequence numbers just below 2^31. It can write `sequences_left`
    more records before the sequence numbers start again at 0, possibly in the middle of a batch.
    """
    topic, partition, records = (
        parameters.text("topic"),
        parameters.number("partition"),
        parameters.number("records", 1),
    )
    await client.topic(topic, partition + 1)
    producer = await client.producer(None)
    first = INT32_MAX - parameters.number("sequences_left") - records + 1
    producer.next_sequences[topic, partition] = first
    await client.produce(topic, partition, [b"before the end"] * records, producer)
    facts = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    return {**facts, "last_sequence": first + records - 1, **client.offsets(topic, partition)}
