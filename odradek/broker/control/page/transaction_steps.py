"""The steps of one transactional id, as its records in `__transaction_state` still have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from odradek.broker.control.page.scan import records_naming
from odradek.broker.transactions.entry import Txn
from odradek.broker.transactions.records import decode_record
from odradek.broker.transactions.tables import TxnState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from odradek.broker.control.page.json_value import JsonValue
    from odradek.storage.log import Log

HISTORY_RECORDS = 100_000  # of the partition of an id, which it shares with others


class Step(NamedTuple):
    """One record, and what was before it; `txn` is None where the id was forgotten."""

    at_ms: int
    offset: int
    before: Txn | None
    txn: Txn | None

    def shown(self) -> dict[str, JsonValue]:
        return {"at_ms": self.at_ms, "offset": self.offset, **in_words(self.before, self.txn)}


def steps_start(log: Log) -> int:
    """Where to begin to look for steps."""
    return max(log.log_start_offset, log.log_end_offset - HISTORY_RECORDS)


def steps_of(portions: Iterable[bytes], transactional_id: str) -> list[Step]:
    """Oldest first."""
    steps: list[Step] = []
    before: Txn | None = None
    for record in records_naming(transactional_id.encode(), portions):
        found = decode_record(record.key, record.value)
        if found is None or found.transactional_id != transactional_id:
            continue
        txn = found if isinstance(found, Txn) else None
        steps.append(Step(record.timestamp, record.offset, before, txn))
        before = txn
    return steps


def in_words(before: Txn | None, txn: Txn | None) -> dict[str, JsonValue]:
    """What a record changes; `kind` is for the colour."""
    if txn is None:
        return {"kind": "end", "what": "forgotten: the id was unused for too long"}
    pair = f"producer id {txn.producer_id}, epoch {txn.producer_epoch}"
    is_new_epoch = before is None or (before.producer_id, before.producer_epoch) != (
        txn.producer_id,
        txn.producer_epoch,
    )
    match txn.state:
        case TxnState.ONGOING if txn.is_kept and (before is None or not before.is_kept):
            return {"kind": "fence", "what": "kept for its new owner, who decides it; the one before is fenced"}
        case TxnState.ONGOING if before is not None and before.state is TxnState.ONGOING:
            added = sorted(txn.partitions - before.partitions)
            names = ", ".join(f"{topic}-{index}" for topic, index in added)
            return {"kind": "open", "what": f"partitions added: {names}" if names else "recorded again"}
        case TxnState.ONGOING:
            names = ", ".join(f"{topic}-{index}" for topic, index in sorted(txn.partitions))
            return {"kind": "open", "what": f"begun: {pair}; {names}"}
        case TxnState.PREPARE_COMMIT:
            return {"kind": "commit", "what": "commit decided; markers are written to each partition"}
        case TxnState.PREPARE_ABORT:
            why = ""
            if is_new_epoch and before is not None:
                # Past the timeout, a new producer has only the seconds until the coordinator looks.
                is_late = before.is_timed_out(txn.updated_ms)
                why = " by its timeout" if is_late else " because a new producer took over"
            return {"kind": "abort", "what": f"abort decided{why}; markers are written to each partition"}
        case TxnState.COMPLETE_COMMIT:
            return {"kind": "commit", "what": "committed: all markers are written"}
        case TxnState.COMPLETE_ABORT:
            return {"kind": "abort", "what": "aborted: all markers are written"}
        case _:
            return {"kind": "fence", "what": f"initialised: {pair}" if is_new_epoch else "recorded again"}
