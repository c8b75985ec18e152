"""The name of a prepared transaction, to be stored where the decision about it is stored (KIP-939)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from odradek.protocol.batch_header import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

_TEXT = re.compile(r"(0|[1-9]\d{0,18}):(0|[1-9]\d{0,4})", re.ASCII)
_LARGEST_ID, _LARGEST_EPOCH = 2**63 - 1, 2**15 - 1


@dataclass(frozen=True, slots=True)
class PreparedTxnState:
    """Names one transaction for good: with transaction.version 2 no two have the same producer id and epoch.

    `str(state)` is "producerId:epoch", as Kafka's Java client writes it, at most 25 characters; without arguments the
    state is that of no transaction, and its text is empty.
    """

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.producer_epoch}" if self.has_transaction else ""

    @property
    def has_transaction(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID

    @classmethod
    def parse(cls, text: str) -> PreparedTxnState:
        """The state whose `str` this is. Raises ValueError."""
        if text == "":
            return cls()
        match = _TEXT.fullmatch(text)
        if match is not None:
            producer_id, producer_epoch = int(match[1]), int(match[2])
            if producer_id <= _LARGEST_ID and producer_epoch <= _LARGEST_EPOCH:
                return cls(producer_id, producer_epoch)
        raise ValueError(f"{text!r} is not the state of a prepared transaction: it takes producerId:epoch")
