"""What the metadata log tells of `share.version` 2 in a directory that an earlier Odradek may have written.

There it meant acknowledgements in transactions, which odradek.share.transactions stands for since; in Kafka it means
dead-letter queues. Who raised the level is seen from the broker that was registered at that time, since a registration
lists what its broker supports:

    an earlier Odradek  share.version up to 2, metadata.version up to 30, no odradek.share.transactions
    this one            odradek.share.transactions
    Kafka 4.3.1         share.version up to 1
    Kafka 4.4.0         metadata.version up to 33

Decision: ADR 35.
"""

from __future__ import annotations

from typing import Final

from odradek.broker.metadata.supported_features import (
    METADATA_VERSION,
    METADATA_VERSION_4_3,
    SHARE_TRANSACTIONS,
    SHARE_VERSION,
)
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.register_broker_record import RegisterBrokerRecord
from odradek.protocol.struct import Message

EARLIER_LEVEL: Final = 2  # of share.version


class EarlierShareVersion:
    """Follows the records of the metadata log, in their order.

    was_raised  an earlier Odradek raised share.version to 2, and nobody has lowered it since
    is_decided  an Odradek that knows the feature has been here since the last earlier one: what to make of the level
                was decided then
    """

    __slots__ = ("_is_earlier", "is_decided", "was_raised")

    def __init__(self) -> None:
        self._is_earlier = False  # the broker that is registered
        self.was_raised = False
        self.is_decided = False

    def take(self, record: Message) -> None:
        if isinstance(record, RegisterBrokerRecord):
            self._registered({each.name: each.max_supported_version for each in record.features})
        elif isinstance(record, FeatureLevelRecord) and record.name == SHARE_VERSION:
            self.was_raised = record.feature_level >= EARLIER_LEVEL and self._is_earlier

    def _registered(self, highest: dict[str, int]) -> None:
        if SHARE_TRANSACTIONS in highest:
            self._is_earlier, self.is_decided = False, True
            return
        self._is_earlier = (
            highest.get(SHARE_VERSION, 0) == EARLIER_LEVEL and highest.get(METADATA_VERSION, 0) <= METADATA_VERSION_4_3
        )
        if self._is_earlier:
            self.is_decided = False
