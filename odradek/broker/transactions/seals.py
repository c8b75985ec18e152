"""Seals: transactions that nobody but their owner may change any more, so that partitions and groups refuse to as well.

InitProducerId with KeepPreparedTxn leaves a transaction open for a new owner, who may only end it. From the record that
says so until the transaction is complete, the transaction is *sealed*: no record, no offset and no acknowledgement
enters it, from any producer. In Kafka a partition does not ask the coordinator about a transaction that is already open
in it. The old producer could then write into a transaction whose outcome has been decided outside already. Therefore
everything that appends for a producer looks here first.

`TransactionCore` adds and removes seals as it replays its records, so that a restart finds the same ones. This module
imports little, because every broker needs it to open its partitions. Source: docs/spec/transactions.md#s3-7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.transactions.entry import Txn


class SealedTransaction(KafkaError):
    """A request would have changed a sealed transaction. Its code is the one that the coordinator would answer."""

    def __init__(self, code: ErrorCode, producer_id: int, producer_epoch: int) -> None:
        super().__init__(
            code,
            f"producer {producer_id}, epoch {producer_epoch}: somebody else has taken the transaction over with "
            "KeepPreparedTxn, and only EndTxn of its new owner changes it",
        )


class Seals:
    """The sealed transactions that this process coordinates, by every producer id that could write into them.

    by_producer  Usually empty. Whoever appends asks for that first, since it costs next to nothing.
    """

    __slots__ = ("by_producer",)

    def __init__(self) -> None:
        self.by_producer: dict[int, Txn] = {}

    def add(self, txn: Txn) -> None:
        """Seals a transaction against its own producer id, and against its new owner's if that is another one."""
        self.by_producer[txn.producer_id] = txn
        self.by_producer[txn.client_pair[0]] = txn

    def remove(self, txn: Txn) -> None:
        """Removes the seal of a transaction that is complete, or of which there is a newer record."""
        self.by_producer.pop(txn.producer_id, None)
        self.by_producer.pop(txn.client_pair[0], None)

    def check(self, producer_id: int, producer_epoch: int) -> None:
        """Raises SealedTransaction if this producer must not write, because its transaction is sealed."""
        txn = self.by_producer.get(producer_id)
        if txn is None:
            return
        from odradek.broker.transactions.requests import sealed_code  # here: hardly ever needed, and not at the start

        raise SealedTransaction(sealed_code(txn, producer_id, producer_epoch), producer_id, producer_epoch)
