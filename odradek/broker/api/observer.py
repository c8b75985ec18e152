"""The observer of one connection's exchanges, as its client sees them."""

from __future__ import annotations

from odradek.protocol.file_slice import Chunk


class ExchangeObserver:
    """Sees the requests of one connection, and their answers in the same order.

    maker   who made it
    unseen  answers that are still to come to requests from before it began
    """

    __slots__ = ("maker", "unseen")

    def __init__(self, maker: object) -> None:
        self.maker = maker
        self.unseen = 0

    def received(self, frame: memoryview) -> None:
        """Before it is handled; read-only frames are overwritten later."""
        raise NotImplementedError

    def answered(self, chunks: list[Chunk]) -> None:
        """Before it is written: the answer to the oldest request without one. Empty where there is none; also called
        for what is told of a request that was too long to be received."""
        raise NotImplementedError

    def hung_up(self, is_newest: bool) -> None:
        """The connection closes in place of an answer. is_newest: to the last request, not to the oldest without one"""
        raise NotImplementedError
