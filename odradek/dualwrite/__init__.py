"""Dual writes that cannot diverge: database rows and Kafka messages are committed together (KIP-939).

Begin with `DualWrite`:

    from odradek.dualwrite import DualWrite
"""

from odradek.dualwrite.dual_write import DualWrite, Observer, Recovery
from odradek.dualwrite.errors import DualWriteError, Fenced, IllegalUse, InDoubt, NotCommitted, NotRecovered
from odradek.dualwrite.recipe import Fate, Phase, Result, Step
from odradek.dualwrite.transaction import Transaction

__all__ = [
    "DualWrite",
    "DualWriteError",
    "Fate",
    "Fenced",
    "IllegalUse",
    "InDoubt",
    "NotCommitted",
    "NotRecovered",
    "Observer",
    "Phase",
    "Recovery",
    "Result",
    "Step",
    "Transaction",
]
