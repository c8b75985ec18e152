"""Interprets `share.version` 2 in a metadata log that an earlier release of Odradek may have written.

In earlier releases of Odradek, this level enabled acknowledgements in transactions, which are now enabled by
odradek.share.transactions. In Kafka, the level enables dead-letter queues. The registration of the broker that raised
the level shows which program wrote the log, because it lists the broker's supported levels:

    an earlier release  share.version up to 2, metadata.version up to 30, no odradek.share.transactions
    this release        odradek.share.transactions
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

EARLIER_LEVEL: Final = 2  # the level of share.version whose meaning has changed


class EarlierShareVersion:
    """Interprets the metadata log's records, which it receives in order.

    was_raised  whether an earlier release raised share.version to 2, and the level has not been lowered since
    is_decided  whether a release with the new feature was registered after the last earlier release, and has therefore
                interpreted the level
    """

    __slots__ = ("_is_earlier", "is_decided", "was_raised")

    def __init__(self) -> None:
        self._is_earlier = False  # whether the registered broker is an earlier release
        self.was_raised = False
        self.is_decided = False

    def follow_record(self, record: Message) -> None:
        if isinstance(record, RegisterBrokerRecord):
            self._level_of({each.name: each.max_supported_version for each in record.features})
        elif isinstance(record, FeatureLevelRecord) and record.name == SHARE_VERSION:
            self.was_raised = record.feature_level >= EARLIER_LEVEL and self._is_earlier

    def _level_of(self, highest: dict[str, int]) -> None:
        if SHARE_TRANSACTIONS in highest:
            self._is_earlier, self.is_decided = False, True
            return
        self._is_earlier = (
            highest.get(SHARE_VERSION, 0) == EARLIER_LEVEL and highest.get(METADATA_VERSION, 0) <= METADATA_VERSION_4_3
        )
        if self._is_earlier:
            self.is_decided = False
