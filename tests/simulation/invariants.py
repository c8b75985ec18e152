"""Invariants of partitions, their readers and group offsets, which must hold after every event of every seed.

The checks read logs like a read_committed consumer. Each check continues where the previous one ended. The first check
after a restart begins at the log start offset.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odradek.broker.partitions.partition import Partition
from odradek.protocol.batch_header import batches
from odradek.protocol.codec import decode
from odradek.protocol.control_records import read_marker
from odradek.protocol.errors import KafkaError
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages.offset_fetch_request import OffsetFetchRequest
from odradek.protocol.messages.offset_fetch_response import OffsetFetchResponse
from odradek.protocol.records import records_of
from odradek.protocol.struct import Buffer
from odradek.protocol.topic_partition import GROUP_OFFSETS
from tests.checker.history import TopicPartition
from tests.simulation.producers import Book
from tests.support.transaction_listing import all_listed

if TYPE_CHECKING:
    from tests.simulation.simulated_broker import SimulatedBroker

MarkerSeen = Callable[[int, int, bool], None]  # called with producer id, producer epoch, and whether the marker commits
Records = Iterator[tuple[int, bytes]]
OPEN_STATES = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})
OFFSET_FETCH_VERSION = 5


@dataclass(slots=True)
class ObservedPartition:
    """The state of one partition as the last check observed it."""

    last_stable_offset: int = 0
    log_end_offset: int = 0
    read_to: int = 0
    visible: dict[bytes, int] = field(default_factory=dict)  # offset of each visible value
    markers: dict[tuple[int, int], int] = field(default_factory=dict)  # number of markers, by producer id and epoch


class Invariants:
    def __init__(self, book: Book, partitions: list[TopicPartition], groups: list[str]) -> None:
        self._book = book
        self._partitions = partitions
        self._groups = groups
        self._seen: dict[TopicPartition, ObservedPartition] = {each: ObservedPartition() for each in partitions}
        # by producer id and epoch: whether the transaction was committed
        self._outcomes: dict[tuple[int, int], bool] = {}
        self._offsets: dict[str, int] = {}
        self._disk_calls = -1
        self.markers_repeated = 0
        self.bumping: set[int] = set()  # ids of producers whose epoch increases with each transaction

    def check(self, broker: "SimulatedBroker") -> None:
        if broker.disk.calls == self._disk_calls:
            return  # Nothing has changed on the disk.
        self._disk_calls = broker.disk.calls
        for topic_partition, seen in self._seen.items():
            partition = broker.partition(*topic_partition)
            log = partition.log
            stable = log.last_stable_offset
            assert stable >= seen.last_stable_offset, f"the last stable offset of {partition} went back to {stable}"
            if (stable, log.log_end_offset) == (seen.last_stable_offset, seen.log_end_offset):
                continue
            assert stable <= log.high_watermark <= log.log_end_offset
            seen.last_stable_offset, seen.log_end_offset = stable, log.log_end_offset
            self._read_on(partition, seen)
            if topic_partition[0] == GROUP_OFFSETS:
                self._check_offsets(broker)
        self._check_nothing_is_stuck(broker)

    def restarted(self, *, was_power_lost: bool) -> None:
        """Prepares for the checks after a restart.

        was_power_lost  whether unacknowledged data may be lost, even if readers have seen it
        """
        self._disk_calls = -1
        for topic_partition, before in self._seen.items():
            after = ObservedPartition()
            if not was_power_lost:
                after.last_stable_offset = before.last_stable_offset
                after.visible = before.visible
            self._seen[topic_partition] = after
        if was_power_lost:
            self._outcomes.clear()
            self._offsets.clear()

    # --- Readers.

    def _read_on(self, partition: Partition, seen: ObservedPartition) -> None:
        log, end = partition.log, partition.log.last_stable_offset
        if end <= seen.read_to:
            return
        for portion in log.reader.scan(seen.read_to, end):
            headers = [header for _, header in batches(portion)]
            aborted = log.reader.aborted_transactions(headers[0].base_offset, headers[-1].last_offset + 1)
            for offset, value in committed_records(portion, aborted, self._marker_of(partition, seen)):
                if partition.topic != GROUP_OFFSETS:
                    self._see(partition, seen, offset, value)
        seen.read_to = end

    def _see(self, partition: Partition, seen: ObservedPartition, offset: int, value: bytes) -> None:
        attempt = self._book.by_value.get(value)
        assert attempt is not None, f"nobody sent {value!r} of {partition}"
        assert attempt.may_be_committed, f"{value!r} of {partition} can be read, and was never to be committed"
        before = seen.visible.setdefault(value, offset)
        assert before == offset, f"{value!r} of {partition} is at the offsets {before} and {offset}"

    def _marker_of(self, partition: Partition, seen: ObservedPartition) -> MarkerSeen:
        def marker(producer_id: int, producer_epoch: int, is_commit: bool) -> None:
            if producer_id not in self.bumping:
                return
            key = (producer_id, producer_epoch)
            known = self._outcomes.setdefault(key, is_commit)
            assert known == is_commit, f"one transaction of producer {key} is committed and aborted: {partition}"
            seen.markers[key] = seen.markers.get(key, 0) + 1
            self.markers_repeated += seen.markers[key] > 1

        return marker

    def missing_after_restart(self) -> None:
        """Checks that readers find every record that they could read before the restart. The world calls this method
        when it is stable again."""
        for topic_partition, seen in self._seen.items():
            gone = [value for value, offset in seen.visible.items() if offset >= seen.read_to]
            assert not gone, f"{gone} of {topic_partition} could be read, and cannot any more"

    # --- Groups.

    def _check_offsets(self, broker: "SimulatedBroker") -> None:
        for group in self._groups:
            offsets: list[int] = []
            ask_for_offset(broker, group, offsets.append)
            if not offsets:
                continue
            (offset,) = offsets
            before = self._offsets.get(group, -1)
            assert offset >= before, f"the offset of {group} went back from {before} to {offset}"
            if offset not in (before, -1):
                attempt = self._book.by_offset[group, offset]
                assert attempt.may_be_committed, f"offset {offset} of {group} counts, and was never to be committed"
            self._offsets[group] = offset

    # --- Readers that would wait forever.

    def _check_nothing_is_stuck(self, broker: "SimulatedBroker") -> None:
        """Checks that each open transaction has a coordinator that will end it, or a marker in transit."""
        taking_part: set[tuple[int, str, int]] | None = None
        for topic, index in self._partitions:
            log = broker.partition(topic, index).log
            if log.last_stable_offset == log.high_watermark or log.offline_reason is not None:
                continue
            taking_part = taking_part or participants_of(broker)
            if taking_part is None:
                return
            for producer in log.producers():
                if producer.current_txn_first_offset is not None:
                    assert (producer.producer_id, topic, index) in taking_part, (
                        f"producer {producer.producer_id} has records in {topic}-{index} that nobody will ever commit"
                        " or abort"
                    )

    @property
    def visible(self) -> dict[TopicPartition, dict[bytes, int]]:
        return {each: seen.visible for each, seen in self._seen.items()}


def participants_of(broker: "SimulatedBroker") -> set[tuple[int, str, int]] | None:
    """Returns (producer id, topic, partition) for every open transaction and every missing marker, or None while a
    coordinator is loading."""
    try:
        listed = all_listed(broker.transactions)
        found = [broker.transactions.describe(each.transactional_id) for each in listed]
    except KafkaError:
        return None
    return {
        (each.producer_id, topic.topic, index)
        for each in found
        if each.transaction_state in OPEN_STATES
        for topic in each.topics
        for index in topic.partitions
    }


def committed_records(data: Buffer, aborted: list[tuple[int, int]], marker_seen: MarkerSeen | None = None) -> Records:
    """Yields the offset and value of each record that a read_committed consumer delivers.

    data         fetched batches
    aborted      producer id and first offset of each aborted transaction
    marker_seen  is called for each marker
    """
    waiting = sorted(aborted, key=lambda each: each[1])
    dropped: set[int] = set()
    for position, header in batches(data):
        while waiting and waiting[0][1] <= header.last_offset:
            dropped.add(waiting.pop(0)[0])
        if header.is_control:
            marker = read_marker(data, position, header)
            if marker is None:
                continue  # Compaction has left this batch empty.
            if not marker.is_commit:
                dropped.discard(header.producer_id)
            if marker_seen is not None:
                marker_seen(marker.producer_id, marker.producer_epoch, marker.is_commit)
        elif not header.is_transactional or header.producer_id not in dropped:
            for record in records_of(data, position):
                assert record.value is not None or record.key is not None
                yield record.offset, bytes(record.value or b"")


def ask_for_offset(broker: "SimulatedBroker", group: str, answered: Callable[[int], None]) -> None:
    """Requests the committed offset of a group and passes the offset to `answered`, or -1 if there is none. Does not
    call `answered` while the coordinator is loading."""

    def came(data: bytes) -> None:
        answer = decode(OffsetFetchResponse, OFFSET_FETCH_VERSION, data, 8)
        if not answer.error_code:
            answered(max((each.committed_offset for topic in answer.topics for each in topic.partitions), default=-1))

    request = OffsetFetchRequest(group_id=group, topics=None)
    broker.receive(request_bytes(request, OFFSET_FETCH_VERSION, 1, "watcher"), came)
