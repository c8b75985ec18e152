"""Writes the markers of a WriteTxnMarkers request on behalf of one of several nodes that share the logs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.coordinators.transaction_markers import OnWritten, TopicMarkerWriter, TxnMarker
    from odradek.protocol.topic_partition import PartitionCodes, TopicPartition


class LedMarkers:
    """A marker writer that refuses partitions that another node leads, and passes all other partitions on to the
    broker-wide writer. Implements `TopicMarkerWriter`."""

    def __init__(self, whole: TopicMarkerWriter, is_led_elsewhere: Callable[[TopicPartition], bool]) -> None:
        self._whole = whole
        self._is_led_elsewhere = is_led_elsewhere

    def write(self, markers: Sequence[TxnMarker], then: OnWritten) -> None:
        refused = [frozenset(filter(self._is_led_elsewhere, marker.partitions)) for marker in markers]
        if not any(refused):
            self._whole.write(markers, then)
            return
        then([dict.fromkeys(partitions, ErrorCode.NOT_LEADER_OR_FOLLOWER) for partitions in refused])
        led: list[TxnMarker] = []
        numbers: list[int] = []  # index in `markers` of each element of `led`
        for number, (marker, others) in enumerate(zip(markers, refused, strict=True)):
            partitions = [each for each in marker.partitions if each not in others]
            # A marker that names no partitions is passed on. A marker whose partitions were all refused is not.
            if partitions or not others:
                led.append(replace(marker, partitions=partitions))
                numbers.append(number)

        def report(results: Sequence[PartitionCodes]) -> None:
            reported: list[PartitionCodes] = [{} for _ in markers]
            for number, codes in zip(numbers, results, strict=True):
                reported[number] = codes
            then(reported)

        if led:
            self._whole.write(led, report)

    def topic_deleted(self, topic: str) -> None:
        self._whole.topic_deleted(topic)
