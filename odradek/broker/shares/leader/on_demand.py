"""The share partitions of a broker, made by the first request that needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.shares.leader.group_settings import ShareGroupSettings
from odradek.broker.shares.leader.overdue import OverdueTransactions
from odradek.broker.shares.leader.persister import LocalPersister
from odradek.broker.shares.leader.shares import Shares
from odradek.protocol.internal_topics import SHARE_GROUP_STATE

if TYPE_CHECKING:
    from odradek.broker.shares.leader.broker_view import ShareBroker


def make_shares(broker: ShareBroker) -> Shares:
    image, config = broker.metadata.image, broker.config
    persister = LocalPersister(
        lambda: broker.share_coordinator,
        lambda: SHARE_GROUP_STATE in image.topics,
        broker.auto_creation.create_internal,
        broker.clock,
        broker.timers,
        write_timeout_ms=config.share_coordinator_write_timeout_ms,
    )
    return Shares(
        image,
        persister,
        ShareGroupSettings(image, config.current_text),
        broker.clock,
        broker.timers,
        broker.workers,
        broker.loop.call_soon,
        max_sessions=config.group_share_max_share_sessions,
        overdue=OverdueTransactions(
            lambda: broker.transactions, broker.clock, broker.timers, broker.two_phase.__contains__
        ),
    )
