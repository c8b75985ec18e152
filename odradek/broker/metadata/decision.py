"""The parts of a decision about the cluster's metadata."""

from typing import Generic, NamedTuple, TypeVar

from odradek.protocol.struct import Message

R = TypeVar("R")

MAX_RECORDS = 10_000  # of one decision, as in Kafka: they are committed as one batch, or not at all


class Decision(NamedTuple, Generic[R]):
    """Nothing in it has happened yet: `records` are to be committed and replayed, then `response` may be given."""

    response: R
    records: tuple[Message, ...] = ()
