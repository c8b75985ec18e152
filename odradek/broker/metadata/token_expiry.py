"""Removes expired delegation tokens periodically (`delegation.token.expiry.check.interval.ms`)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from odradek.broker.metadata.records import MAX_RECORDS, Decision
from odradek.broker.runtime.clock import Scan, earliest
from odradek.broker.runtime.waiting import start_unattended
from odradek.broker.security.tokens.decisions import removals_of_expired

if TYPE_CHECKING:
    from odradek.broker.metadata.cluster_metadata import ClusterMetadata
    from odradek.broker.metadata.image import MetadataImage
    from odradek.broker.runtime.clock import Clock, TimerHandle, Timers

log = logging.getLogger("odradek.metadata")


class TokenExpiry:
    def __init__(self, metadata: ClusterMetadata, clock: Clock, timers: Timers, interval_ms: int) -> None:
        self._metadata = metadata
        self._clock = clock
        self._timers = timers
        self._interval_ms = interval_ms
        self._timer: TimerHandle = self._check_later()

    def stop(self) -> None:
        self._timer.cancel()

    def _check_later(self) -> TimerHandle:
        return self._timers.after(self._interval_ms, Scan(self._check, self._interval_ms, self._due_ms))

    def _due_ms(self) -> int | None:
        return earliest(token.ends_ms for token in self._metadata.image.delegation_tokens.by_id.values())

    def _check(self) -> None:
        start_unattended(self._remove_expired())

    async def _remove_expired(self) -> None:
        def turn(image: MetadataImage) -> Decision[None]:
            removals = removals_of_expired(image.delegation_tokens, self._clock.now_ms())
            return Decision(None, tuple(removals[:MAX_RECORDS]))

        try:
            await self._metadata.submit(turn)
        except Exception as error:
            log.warning("expired delegation tokens could not be removed; trying again: %s", error)
        self._timer = self._check_later()
