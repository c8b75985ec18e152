"""The transactions that one pass of compaction meets, batch by batch, from the oldest segment to the newest.

One object serves a whole pass, because a transaction may begin in one segment and end in a later one. Source:
docs/spec/transactions.md#s7.
"""

from collections import deque
from collections.abc import Iterable

from odradek.protocol.batch_header import BatchHeader
from odradek.protocol.control_records import ControlType, control_type
from odradek.protocol.records import records_of
from odradek.storage.txn_index import AbortedTxn


class PassTransactions:
    """aborted   those of the transaction indexes of every segment that the pass covers, to the segment's very end"""

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._to_come = deque(sorted(aborted, key=lambda txn: txn.first_offset))
        self._aborting: dict[int, AbortedTxn] = {}  # by producer id: its records from here to its marker were aborted
        self._aborted_seen: set[int] = set()  # of these, the producers whose records were met
        self._committed_seen: set[int] = set()  # producers whose committed records were met, their marker not yet
        self.still_indexed: list[AbortedTxn] = []  # aborted transactions whose records were met, by their markers

    def is_aborted(self, header: BatchHeader) -> bool:
        """Takes note of a batch of records; whether its transaction was aborted."""
        self._reach(header.last_offset)
        if not header.is_transactional:
            return False
        producer_id = header.producer_id
        if producer_id in self._aborting:
            self._aborted_seen.add(producer_id)
            return True
        self._committed_seen.add(producer_id)
        return False

    def is_marker_of_nothing(self, header: BatchHeader, batch: memoryview) -> bool:
        """Takes note of a control batch; whether no record of its transaction was met, so that nobody needs it."""
        self._reach(header.last_offset)
        if header.record_count == 0:
            return True
        producer_id = header.producer_id
        match control_type(next(records_of(batch)).key):
            case ControlType.ABORT:
                txn = self._aborting.pop(producer_id, None)
                if txn is None or producer_id not in self._aborted_seen:
                    return True
                self._aborted_seen.discard(producer_id)
                self.still_indexed.append(txn)
                return False
            case ControlType.COMMIT:
                if producer_id not in self._committed_seen:
                    return True
                self._committed_seen.discard(producer_id)
                return False
            case _:
                return False

    def _reach(self, offset: int) -> None:
        while self._to_come and self._to_come[0].first_offset <= offset:
            txn = self._to_come.popleft()
            self._aborting.setdefault(txn.producer_id, txn)
