"""Helpers for testing dead-letter queues on a running broker: a shared topic with its queue, and a group member that
sends raw frames."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from odradek.broker.shares.core.records import decode_record
from odradek.broker.shares.core.state import SharePartitionKey, ShareSnapshot, ShareUpdate, StateBatch
from odradek.client import (
    AlterOperation,
    ConfigChange,
    ConfigResource,
    ConfigType,
    NewTopic,
    RetriableError,
    TopicPartition,
    UpgradeType,
)
from odradek.client.sync import Admin
from odradek.protocol.batch_header import BatchHeader, batches
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages import read_share_group_state_request as reading
from odradek.protocol.messages import write_share_group_state_request as writing
from odradek.protocol.messages.fetch_request import FetchPartition as PlainPartition
from odradek.protocol.messages.fetch_request import FetchRequest
from odradek.protocol.messages.fetch_request import FetchTopic as PlainTopic
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.share_acknowledge_request import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from odradek.protocol.messages.share_fetch_request import FetchPartition, FetchTopic, ShareFetchRequest
from odradek.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from odradek.protocol.records import NewRecord, Record, build_batch, records_of
from odradek.protocol.topic_partition import SHARE_GROUP_STATE
from tests.clients.speakers import wait_for
from tests.support.dead_letter_scene import LIMIT, LOCK_MS, MARK, Copy
from tests.support.requests import produce_request
from tests.support.wire import Wire

ACKNOWLEDGED, ARCHIVED = 2, 4
Acquired = list[tuple[int, int, int]]  # first offset, last offset, delivery count
History = list[tuple[int, int]]  # delivery states and counts of one offset, in the order they were stored
OVER = (ARCHIVED, 0)  # end of a history: the offset is archived, or the start offset has moved past it


class SharedTopic:
    """The topic `t-NAME`, shared by the group `g-NAME`, whose dead-letter queue is the topic `dlq.NAME`. The
    constructor creates and marks the queue unless `has_queue` is false."""

    def __init__(self, bootstrap: str, name: str, *, partitions: int = 1, has_queue: bool = True) -> None:
        self.bootstrap = bootstrap
        self.topic, self.group, self.queue = f"t-{name}", f"g-{name}", f"dlq.{name}"
        self.create(self.topic, partitions=partitions)
        self.configure(
            share_auto_offset_reset="earliest",
            share_delivery_count_limit=LIMIT,
            share_record_lock_duration_ms=LOCK_MS,
            errors_deadletterqueue_topic_name=self.queue,
        )
        if has_queue:
            self.create(self.queue, {MARK: "true"})
        with Admin(bootstrap_servers=bootstrap) as admin:
            self.topic_id = admin.describe_topics([self.topic])[self.topic].topic_id

    def create(self, topic: str, configs: Mapping[str, str] | None = None, *, partitions: int = 1) -> None:
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            admin.create_topics([NewTopic(topic, partitions, 1, configs or {})])
            wait_for(f"{topic} to be led", lambda: self._is_led(admin, topic, partitions))

    def configure(self, **settings: object) -> None:
        """Changes the group's settings. Setting names use `_` in place of `.`."""
        self.alter(ConfigType.GROUP, self.group, {name.replace("_", "."): str(each) for name, each in settings.items()})

    def alter(self, kind: ConfigType, name: str, settings: Mapping[str, str]) -> None:
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            alter(admin, ConfigResource(kind, name), settings)

    def produce(self, *values: bytes, partition: int = 0) -> None:
        """Writes one batch. Each of its records has the key `k` and a header."""
        now_ms = int(time.time() * 1000)
        batch = build_batch([NewRecord(b"k", value, now_ms, (("h", b"own"),)) for value in values])
        with Wire(self.bootstrap) as wire:
            answer: Any = wire.ask(produce_request(self.topic, bytes(batch), partition=partition), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0, answer

    def produce_many(self, count: int, partition: int = 0) -> None:
        self.produce(*[b"v"] * count, partition=partition)

    def delete_records_before(self, offset: int) -> None:
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            admin.delete_records({TopicPartition(self.topic, 0): offset})

    def topics(self) -> set[str]:
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            return set(admin.list_topics())

    def batches(self, topic: str, partition: int = 0) -> list[tuple[BatchHeader, list[Record]]]:
        """Returns all batches of a partition with their records, or an empty list if the partition does not exist."""
        found: list[tuple[BatchHeader, list[Record]]] = []
        offset = 0
        with Wire(self.bootstrap) as wire:
            while True:
                fetch_partition = PlainPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
                request = FetchRequest(topics=[PlainTopic(topic=topic, partitions=[fetch_partition])])
                answer: Any = wire.ask(request, 12)
                (fetched,) = answer.responses[0].partitions
                code = ErrorCode(fetched.error_code)
                if code is not ErrorCode.NONE:
                    assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, code
                    return found
                data = bytes(fetched.records or b"")
                read = [(header, list(records_of(data, position))) for position, header in batches(data)]
                if not read:
                    return found
                found += read
                offset = read[-1][0].last_offset + 1

    def copies(self, queue: str | None = None, partition: int = 0) -> list[Copy]:
        return [Copy.of(each) for _, records in self.batches(queue or self.queue, partition) for each in records]

    def copied(self, queue: str | None = None) -> list[int]:
        """Returns the copies' source offsets, in the order of the copies."""
        return [each.offset for each in self.copies(queue)]

    def batch_sizes(self) -> list[int]:
        return [len(records) for _, records in self.batches(self.queue)]

    def histories(self, partition: int = 0) -> dict[int, History]:
        """Returns the states stored for each offset, without consecutive duplicates.

        It does not matter how many offsets a write contains. Kafka writes the final state of each record separately
        (L14) and moves the start offset afterwards; this broker does both in one write.
        """
        found: dict[int, History] = {}
        key = SharePartitionKey(self.group, self.topic_id, partition)
        for record in (each for _, records in self.batches(SHARE_GROUP_STATE) for each in records):
            stored = decode_record(record.key, record.value)
            if isinstance(stored, (ShareSnapshot, ShareUpdate)) and stored.key == key:
                _add(found, stored.batches, stored.start_offset)
        return found

    def settled(self, *offsets: int, partition: int = 0) -> dict[int, History]:
        """Waits until these offsets are stored as archived and returns all histories. By then each record's copy has
        been written or has failed."""

        def are_archived() -> bool:
            histories = self.histories(partition)
            return all(histories.get(each, [])[-1:] == [OVER] for each in offsets)

        wait_for(f"{self.topic} {offsets} to be archived", are_archived)
        return self.histories(partition)

    def start_and_lag(self) -> tuple[int | None, int | None]:
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            (offset,) = admin.list_share_group_offsets(self.group).values()
        return offset.start_offset, offset.lag

    def store(self, start_offset: int, *stored: tuple[int, int, int, int]) -> None:
        """Writes share state with WriteShareGroupState, as the share partition's leader does."""
        partition = reading.PartitionData(partition=0, leader_epoch=0)
        topic = reading.ReadStateData(topic_id=self.topic_id, partitions=[partition])
        with Wire(self.bootstrap) as wire:
            known: Any = wire.ask(reading.ReadShareGroupStateRequest(group_id=self.group, topics=[topic]), 0)
            (state,) = known.results[0].partitions
            assert state.error_code == 0, state.error_message
            written = writing.PartitionData(
                partition=0,
                state_epoch=state.state_epoch,
                leader_epoch=0,
                start_offset=start_offset,
                delivery_complete_count=0,
                state_batches=[
                    writing.StateBatch(first_offset=first, last_offset=last, delivery_state=kind, delivery_count=count)
                    for first, last, kind, count in stored
                ],
            )
            data = writing.WriteStateData(topic_id=self.topic_id, partitions=[written])
            answer: Any = wire.ask(writing.WriteShareGroupStateRequest(group_id=self.group, topics=[data]), 1)
        (result,) = answer.results[0].partitions
        assert result.error_code == 0, result.error_message

    def set_share_version(self, level: int) -> None:
        kind = UpgradeType.UPGRADE if level == 2 else UpgradeType.SAFE_DOWNGRADE
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            admin.update_features({"share.version": level}, kind)

    @staticmethod
    def _is_led(admin: Admin, topic: str, partitions: int) -> bool:
        try:
            described = admin.describe_topics([topic])[topic].partitions
        except RetriableError:  # Kafka may not list a topic that it has just created.
            return False
        return len(described) == partitions and all(each.leader is not None for each in described)


def alter(admin: Admin, resource: ConfigResource, settings: Mapping[str, str]) -> None:
    changes = [ConfigChange(AlterOperation.SET, setting, value) for setting, value in settings.items()]
    admin.alter_configs({resource: changes})


def _add(found: dict[int, History], stored: Sequence[StateBatch], start_offset: int) -> None:
    states = {offset: each for each in stored for offset in range(each.first_offset, each.last_offset + 1)}
    for offset in sorted({*states, *found, *range(start_offset)}):
        history = found.setdefault(offset, [])
        if (batch := states.get(offset)) is not None:
            state = OVER if batch.delivery_state == ARCHIVED else (batch.delivery_state, batch.delivery_count)
            if history[-1:] != [state]:
                history.append(state)
        elif offset < start_offset and (not history or history[-1][0] not in (ACKNOWLEDGED, ARCHIVED)):
            history.append(OVER)


class RawMember:
    """A group member with its own connection. The constructor joins the group and waits until the member has its
    partitions."""

    def __init__(self, shared: SharedTopic, name: str = "A", *, partitions: int = 1) -> None:
        self._shared, self._name = shared, name
        self._wire = Wire(shared.bootstrap, "raw-member", timeout_s=60)
        self._session_epoch = 0
        wait_for("the group coordinator", self._coordinator_is_there)
        member_epoch = 0

        def has_partitions() -> bool:
            nonlocal member_epoch
            request = ShareGroupHeartbeatRequest(
                group_id=shared.group, member_id=name, member_epoch=member_epoch, subscribed_topic_names=[shared.topic]
            )
            answer: Any = self._wire.ask(request, 1)
            member_epoch = answer.member_epoch if answer.error_code == 0 else member_epoch
            given = answer.assignment.topic_partitions if answer.assignment else []
            return sum(len(each.partitions) for each in given) == partitions

        wait_for("the partitions of a member", has_partitions)

    def _coordinator_is_there(self) -> bool:
        """Returns whether the group coordinator is available. The first request makes the broker create
        __consumer_offsets."""
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self._shared.group])
        answer: Any = self._wire.ask(request, 6)
        return bool(answer.coordinators[0].error_code == 0)

    def close(self) -> None:
        """Closes the connection without leaving the group."""
        self._wire.close()

    def leave(self) -> None:
        request = ShareGroupHeartbeatRequest(group_id=self._shared.group, member_id=self._name, member_epoch=-1)
        self._wire.ask(request, 1)
        self.close()

    def fetch(self, *, max_records: int = 500, partition: int = 0, wait_ms: int = 500) -> Acquired:
        fetch_topic = FetchTopic(topic_id=self._shared.topic_id, partitions=[FetchPartition(partition_index=partition)])
        request = ShareFetchRequest(
            group_id=self._shared.group,
            member_id=self._name,
            share_session_epoch=self._session_epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_records=max_records,
            batch_size=max_records,
            topics=[fetch_topic],
        )
        answer: Any = self._wire.ask(request, 2)
        assert answer.error_code == 0, answer
        self._session_epoch += 1
        found: Acquired = []
        for fetched in (each for topic in answer.responses for each in topic.partitions):
            assert fetched.error_code == 0, fetched
            found += [(each.first_offset, each.last_offset, each.delivery_count) for each in fetched.acquired_records]
        return found

    def acquire(self, *, max_records: int = 500, partition: int = 0) -> Acquired:
        """Fetches until some records are acquired and returns their offset ranges."""
        found: Acquired = []

        def is_there() -> bool:
            found.extend(self.fetch(max_records=max_records, partition=partition))
            return bool(found)

        wait_for("records", is_there)
        return found

    def acknowledge(self, *batches: tuple[int, int, int | list[int]], partition: int = 0) -> ErrorCode:
        """Acknowledges ranges of offsets. A range has one acknowledgement type, or a list with a type for each
        offset."""
        ranges = [
            AcknowledgementBatch(
                first_offset=first, last_offset=last, acknowledge_types=[types] if isinstance(types, int) else types
            )
            for first, last, types in batches
        ]
        acknowledged = AcknowledgePartition(partition_index=partition, acknowledgement_batches=ranges)
        request = ShareAcknowledgeRequest(
            group_id=self._shared.group,
            member_id=self._name,
            share_session_epoch=self._session_epoch,
            topics=[AcknowledgeTopic(topic_id=self._shared.topic_id, partitions=[acknowledged])],
        )
        answer: Any = self._wire.ask(request, 2)
        assert answer.error_code == 0, answer
        self._session_epoch += 1
        (result,) = answer.responses[0].partitions
        return ErrorCode(result.error_code)
