"""Transactions of producers with Enable2Pc (KIP-939), either open or kept by a recovery."""

from odradek.broker.transactions.entry import NEVER_MS, Txn
from odradek.broker.transactions.turn import TransactionConfig
from tests.support.transaction_scene import Pair, S, Scene, given, txn

ALLOWED = TransactionConfig(transaction_two_phase_commit_enable=True)
PID = 42
OPEN: Pair = (PID, 10)
FIRST: Pair = (PID, 11)  # producer id and epoch that the first recovery gets


def opened(pair: Pair = OPEN, *, timeout_ms: int = NEVER_MS) -> Txn:
    return txn(S.ONGOING, pair, timeout_ms=timeout_ms)


def kept(pair: Pair = OPEN, *, by: Pair = FIRST, timeout_ms: int = NEVER_MS) -> Txn:
    return txn(S.ONGOING, pair, timeout_ms=timeout_ms, following=by[0], following_epoch=by[1])


def two_phase(*records: Txn) -> Scene:
    return given(*records, config=ALLOWED)
