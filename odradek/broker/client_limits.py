"""Puts client quotas into force: at the start, and whenever they change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.security.quotas.entities import IP

if TYPE_CHECKING:
    from odradek.broker.api.dispatch import Dispatcher
    from odradek.broker.broker import Broker
    from odradek.broker.security.quotas.metering import Metering


class ClientLimits:
    """metering: of what clients use; None until a quota of clients is configured for the first time."""

    def __init__(self, broker: Broker, dispatcher: Dispatcher[Broker]) -> None:
        self.metering: Metering | None = None
        self._broker = broker
        self._dispatcher = dispatcher
        broker.limits_changed = self.apply

    def apply(self) -> None:
        limits = self._broker.metadata.image.client_quotas.limits
        if all(entity[0][0] == IP for entity in limits):
            self._dispatcher.throttling = None
            return
        from odradek.broker.api.metered import Throttling  # here: most brokers limit nobody

        if self.metering is None:
            self.metering = self._new_metering()
        self.metering.set_limits(limits)
        self._dispatcher.throttling = Throttling(self.metering)

    def _new_metering(self) -> Metering:
        from odradek.broker.security.quotas.metering import Metering
        from odradek.broker.security.quotas.windows import Windows

        config = self._broker.config
        return Metering(
            Windows(config.quota_window_num, config.quota_window_size_seconds * 1000),
            Windows(config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000),
        )
