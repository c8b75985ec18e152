"""How many TLS handshakes may be in flight, and whose is given up when there are too many. Pure counting.

A newcomer always gets a slot: an honest handshake is over within milliseconds, so that what fills the slots are those
that were begun and left. Of these the oldest goes, of the address that has most.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class HandshakeSlots(Generic[K]):
    """Keys stand for handshakes, each for one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._by_address: dict[str, dict[K, None]] = {}  # the oldest first

    def __len__(self) -> int:
        return self._count

    def begin(self, key: K, address: str) -> K | None:
        """Returns the handshake to give up for this one, which no longer counts."""
        given_up: K | None = None
        if self._count >= self._most:
            busiest = max(self._by_address, key=lambda one: len(self._by_address[one]))
            given_up = next(iter(self._by_address[busiest]))
            self.end(given_up, busiest)
        self._by_address.setdefault(address, {})[key] = None
        self._count += 1
        return given_up

    def end(self, key: K, address: str) -> None:
        """It has ended, well or badly; nothing happens if it was given up."""
        begun = self._by_address.get(address)
        if begun is None or key not in begun:
            return
        del begun[key]
        self._count -= 1
        if not begun:
            del self._by_address[address]
