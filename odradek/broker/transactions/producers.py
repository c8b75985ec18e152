"""The sealed transactions, which accept no writes, and the two-phase producers, whose writes must be synced. Partitions
check both collections before a transactional producer writes.

InitProducerId with KeepPreparedTxn leaves a transaction open for a new owner, who may only end it. Once this request is
recorded, and until the transaction is complete, the transaction is *sealed*: it accepts no record, offset or
acknowledgement from any producer. In Kafka, a partition does not check with the coordinator if a transaction is already
open in the partition. The old producer could therefore write into a transaction whose outcome an external coordinator
has already decided. To prevent such writes, every append for a producer checks the seals first. An external coordinator
also relies on acknowledged writes, so the writes of two-phase producers are synced.

`TransactionCore` updates both `Seals` and `TwoPhaseProducers` as it replays its records, so a restart restores them.
This module has few imports, because every broker needs it to open its partitions. Source:
docs/spec/transactions.md#s3-7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.transactions.entry import Txn


class SealedTransaction(KafkaError):
    """Raised if a request would change a sealed transaction. Its error code is the one that the coordinator returns for
    such a request."""

    def __init__(self, code: ErrorCode, producer_id: int, producer_epoch: int) -> None:
        super().__init__(
            code,
            f"producer {producer_id}, epoch {producer_epoch}: another producer has taken over the transaction with"
            " KeepPreparedTxn, and only EndTxn of this new owner can end it",
        )


class Seals:
    """The sealed transactions that this process coordinates. Each transaction is stored under every producer id that
    could write into it.

    by_producer  usually empty, which callers check first because the check is very cheap
    """

    __slots__ = ("by_producer",)

    def __init__(self) -> None:
        self.by_producer: dict[int, Txn] = {}

    def add(self, txn: Txn) -> None:
        """Seals a transaction against its producer id, and against the producer id of its new owner if that id is
        different."""
        self.by_producer[txn.producer_id] = txn
        self.by_producer[txn.client_pair[0]] = txn

    def remove(self, txn: Txn) -> None:
        """Removes a transaction's seal once the transaction is complete or has a newer record."""
        self.by_producer.pop(txn.producer_id, None)
        self.by_producer.pop(txn.client_pair[0], None)

    def check(self, producer_id: int, producer_epoch: int) -> None:
        """Raises SealedTransaction if this producer must not write, because its transaction is sealed."""
        txn = self.by_producer.get(producer_id)
        if txn is None:
            return
        # Imported here because it is rarely needed, and never during startup.
        from odradek.broker.transactions.requests import sealed_code

        raise SealedTransaction(sealed_code(txn, producer_id, producer_epoch), producer_id, producer_epoch)


class TwoPhaseProducers:
    """The producer ids that use Enable2Pc. Their acknowledged writes must survive a power failure.

    The cores of the transaction coordinator add the ids when they replay their records. Partitions look up the producer
    id of every transactional batch, because a leader does not look up an open transaction's transactional id. While
    some transactional ids are not loaded, every producer is treated as a two-phase producer.
    """

    __slots__ = ("are_all_known", "ids")

    def __init__(self, *, are_all_known: bool) -> None:
        self.are_all_known = are_all_known
        self.ids: set[int] = set()

    def __contains__(self, producer_id: object) -> bool:
        return producer_id in self.ids or not self.are_all_known
