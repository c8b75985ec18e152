"""Fetches records ahead of the application and looks up positions. A fetcher's tasks finish when there is nothing left
to fetch or look up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

from odradek.client.common.errors import RETRIABLE, STALE_METADATA, ClientError, RetriableError, check, code_of, refusal
from odradek.client.common.values import OffsetAndMetadata, TopicPartition
from odradek.client.consuming.fetched import FetchedRecords
from odradek.client.consuming.offset_lookup import NO_EPOCH, ask_epoch_ends, ask_offsets
from odradek.client.consuming.positions import AssignedPartition, Positions, Stage
from odradek.client.metrics.consumer_metrics import ConsumerMetrics
from odradek.client.network.cluster import DEFAULT_METADATA_MAX_AGE_MS, Cluster, Leader
from odradek.protocol.errors import ErrorCode, MalformedMessage
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.fetch_response import FetchResponse, PartitionData
from odradek.protocol.struct import ZERO_UUID

# Two channels, so that a partition whose buffer has just been emptied does not have to wait for a Fetch for other
# partitions.
CHANNELS = ("fetch", "fetch too")
NO_REPLICA = -1
LAST_VERSION_WITH_NAMES = 12  # last version of Fetch that names topics; later versions use topic ids
FULL_FETCHES = 2  # a partition is fetched ahead until the equivalent of this many full responses is buffered

Committed = Mapping[TopicPartition, OffsetAndMetadata | None]


class IsolationLevel(Enum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """The settings of Fetch requests. Sizes are in bytes, and times in ms."""

    isolation_level: IsolationLevel
    min_bytes: int
    max_bytes: int
    max_wait_ms: int
    max_partition_bytes: int
    check_crcs: bool
    client_rack: str | None = None
    # How long to use a preferred read replica before fetching from the leader again.
    replica_max_age_ms: float = DEFAULT_METADATA_MAX_AGE_MS


class Fetcher:
    """Fetches records and looks up positions. `wake` starts all necessary work. Calls `on_change` when the application
    may have something to do."""

    def __init__(
        self,
        cluster: Cluster,
        positions: Positions,
        settings: FetchSettings,
        *,
        committed: Callable[[list[TopicPartition]], Awaitable[Committed]] | None,
        on_change: Callable[[], None],
        metrics: ConsumerMetrics,
    ) -> None:
        """Creates a fetcher. `committed` requests the committed offsets of the group; it is None if there is no
        group."""
        self._metrics = metrics
        self._cluster = cluster
        self._positions = positions
        self._settings = settings
        self._committed = committed
        self._on_change = on_change
        self._fetches: dict[tuple[int, str], asyncio.Task[None]] = {}  # keyed by node and channel
        self._lookup: asyncio.Task[None] | None = None
        self._watched: frozenset[str] = frozenset()
        self._error: BaseException | None = None  # error of a topic, or bug in a task, to raise in the application
        self._is_closed = False

    def wake(self) -> None:
        """Starts the necessary fetches and look-ups. Called when positions, paused partitions or buffered records have
        changed."""
        if self._is_closed:
            return
        for node_id in self._fetchable_by_node():
            for channel in CHANNELS:
                if (node_id, channel) not in self._fetches:
                    self._fetches[node_id, channel] = self._spawn(self._fetch(node_id, channel))
                    break
        if self._lookup is None and self._needs_lookup():
            self._lookup = self._spawn(self._look_up())

    def watch(self, topics: frozenset[str]) -> None:
        """Watches for topics that do not exist yet and calls `on_change` when they appear."""
        self._watched = topics
        self.wake()

    def error(self) -> BaseException | None:
        """Returns an error that does not concern a single partition. Each error is returned once; afterwards the
        operation is retried."""
        error, self._error = self._error, None
        return error

    async def close(self) -> None:
        self._is_closed = True
        tasks = [*self._fetches.values(), *([self._lookup] if self._lookup is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._on_task_end)
        return task

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._error = error
            self._on_change()

    # Fetching.

    def _fetchable_by_node(self) -> dict[int, list[AssignedPartition]]:
        """Returns the partitions that need records, keyed by the node to fetch from."""
        found: dict[int, list[AssignedPartition]] = {}
        max_bytes = FULL_FETCHES * self._settings.max_partition_bytes
        for assigned in self._positions.fetchable(max_bytes, self._settings.max_bytes):
            leader = self._cluster.leader(assigned.topic_partition)
            if leader is None or leader.node_id is None:
                continue
            assigned.apply_leader_epoch(leader.leader_epoch)
            if assigned.replica is not None and time.monotonic() >= assigned.replica_until_s:
                assigned.replica = None
            if assigned.stage is Stage.READY:
                found.setdefault(leader.node_id if assigned.replica is None else assigned.replica, []).append(assigned)
        return found

    async def _fetch(self, node_id: int, channel: str) -> None:
        """Sends Fetch requests to this node, one at a time, while any of its partitions need records."""
        failures = 0
        try:
            while partitions := self._fetchable_by_node().get(node_id):
                is_patient = not self._positions.has_enough_buffered(FULL_FETCHES * self._settings.max_partition_bytes)
                for assigned in partitions:
                    assigned.is_fetching = True
                try:
                    stale, brought_any = await self._send_fetch(node_id, channel, partitions, is_patient=is_patient)
                except RetriableError:
                    stale, brought_any = {each.topic_partition.topic for each in partitions}, False
                    for assigned in partitions:
                        assigned.replica = None
                except ClientError as error:
                    stale, brought_any = set(), True
                    for assigned in partitions:
                        assigned.error = error
                    self._on_change()
                finally:
                    for assigned in partitions:
                        assigned.is_fetching = False
                if stale:
                    failures += 1
                    await self._cluster.pause(failures)
                    try:
                        await self._cluster.refresh(stale)
                    except RetriableError:
                        pass
                    except ClientError as error:  # the broker has refused the login
                        for assigned in partitions:
                            assigned.error = error
                        self._on_change()
                    continue
                failures = 0
                await asyncio.sleep(0)  # let the application receive its records before more are fetched
                if not is_patient and not brought_any:
                    return  # enough is buffered; the consumer calls `wake` when some records have been taken
        except asyncio.CancelledError:
            self._is_closed = True  # `close` or the end of the loop has cancelled this task: start nothing new
            raise
        finally:
            del self._fetches[node_id, channel]
            if not self._is_closed:
                asyncio.get_running_loop().call_soon(self._wake_unless_idle)

    def _wake_unless_idle(self) -> None:
        """Calls `wake` after a Fetch, because leaders may have changed during the Fetch. Does nothing if enough is
        buffered, because the next take calls `wake`."""
        if not self._positions.has_enough_buffered(FULL_FETCHES * self._settings.max_partition_bytes):
            self.wake()

    async def _send_fetch(
        self, node_id: int, channel: str, partitions: list[AssignedPartition], *, is_patient: bool
    ) -> tuple[set[str], bool]:
        """Sends one Fetch. Returns the topics whose metadata must be refreshed, and whether any records arrived."""
        connection = await self._cluster.connection(node_id, channel)
        ids = {each.topic_partition.topic: self._topic_id(each.topic_partition.topic) for each in partitions}
        has_ids = ZERO_UUID not in ids.values()
        version = connection.version(FetchRequest, None if has_ids else LAST_VERSION_WITH_NAMES)
        offsets = {each.topic_partition: each.fetch_offset for each in partitions}
        request = self._request(partitions, ids, is_patient=is_patient)
        timeout_ms = self._settings.max_wait_ms + self._cluster.request_timeout_ms
        answer = await connection.send(request, version, FetchResponse, timeout_ms=timeout_ms)
        check(answer.error_code, "Fetch")
        names = {topic_id: topic for topic, topic_id in ids.items()}
        by_partition = {each.topic_partition: each for each in partitions}
        stale: set[str] = set()
        brought_any = False
        brought: dict[str, int] = {}  # bytes by topic
        for fetched_topic in answer.responses:
            topic = fetched_topic.topic if version <= LAST_VERSION_WITH_NAMES else names.get(fetched_topic.topic_id, "")
            for data in fetched_topic.partitions:
                if data.records:
                    brought[topic] = brought.get(topic, 0) + len(data.records)
                assigned = by_partition.get(TopicPartition(topic, data.partition_index))
                if data.current_leader is not None:
                    leader = Leader(data.current_leader.leader_id, data.current_leader.leader_epoch)
                    self._cluster.adopt_leader(TopicPartition(topic, data.partition_index), leader)
                if assigned is None or self._positions.find(assigned.topic_partition) is not assigned:
                    continue
                self._note_bounds(assigned, data)
                if assigned.fetch_offset != offsets[assigned.topic_partition]:
                    continue  # the application has moved the position during the Fetch
                if self._apply_response(assigned, data):
                    stale.add(topic)
                brought_any |= bool(data.records)
        if brought:
            self._metrics.record_fetch(brought)
        return stale, brought_any

    def _note_bounds(self, assigned: AssignedPartition, data: PartitionData) -> None:
        """Stores the log's bounds for the metrics. Ignores -1, which an error response contains in place of the
        bounds."""
        is_committed_only = self._settings.isolation_level is IsolationLevel.READ_COMMITTED
        end_offset = data.last_stable_offset if is_committed_only else data.high_watermark
        if end_offset >= 0:
            assigned.log_end_offset = end_offset
        if data.log_start_offset >= 0:
            assigned.log_start_offset = data.log_start_offset

    def _topic_id(self, topic: str) -> bytes:
        metadata = self._cluster.known_topic(topic)
        return ZERO_UUID if metadata is None else metadata.topic_id

    def _request(
        self, partitions: list[AssignedPartition], ids: Mapping[str, bytes], *, is_patient: bool
    ) -> FetchRequest:
        topics: dict[str, FetchTopic] = {}
        for assigned in partitions:
            topic, partition = assigned.topic_partition
            if topic not in topics:
                topics[topic] = FetchTopic(topic=topic, topic_id=ids[topic], partitions=[])
            topics[topic].partitions.append(
                FetchPartition(
                    partition=partition,
                    current_leader_epoch=NO_EPOCH if assigned.validated_epoch is None else assigned.validated_epoch,
                    fetch_offset=assigned.fetch_offset,
                    partition_max_bytes=self._settings.max_partition_bytes,
                )
            )
        return FetchRequest(
            max_wait_ms=self._settings.max_wait_ms if is_patient else 0,
            min_bytes=self._settings.min_bytes,
            max_bytes=self._settings.max_bytes,
            isolation_level=self._settings.isolation_level.value,
            topics=list(topics.values()),
            rack_id=self._settings.client_rack or "",
        )

    def _apply_response(self, assigned: AssignedPartition, data: PartitionData) -> bool:
        """Processes the response for one partition. Returns True if the partition must be fetched again after a pause
        and a metadata refresh."""
        topic, partition = assigned.topic_partition
        code = code_of(data.error_code)
        if code is not ErrorCode.NONE and assigned.replica is not None:
            assigned.replica = None  # fetch from the leader again, which has the authoritative log
            return True
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            if assigned.fetched:
                return True  # the error is reported once the buffered records have been taken
            self._positions.lose(assigned)
        elif code in RETRIABLE:
            return True
        elif code is not ErrorCode.NONE:
            assigned.error = refusal(code, f"records of {topic}-{partition}")
        elif data.records:
            self._positions.move_to_end(assigned)
            assert not isinstance(data.records, list)
            is_committed_only = self._settings.isolation_level is IsolationLevel.READ_COMMITTED
            aborted = (data.aborted_transactions or []) if is_committed_only else None
            try:
                fetched = FetchedRecords(
                    assigned.topic_partition,
                    data.records,
                    assigned.fetch_offset,
                    aborted=aborted,
                    checks_crcs=self._settings.check_crcs,
                )
            except MalformedMessage as error:
                assigned.error = ClientError(
                    f"the records of {topic}-{partition} cannot be read: {error}", ErrorCode.CORRUPT_MESSAGE
                )
            else:
                if fetched.is_cut_short:
                    message = (
                        f"a batch of {topic}-{partition} at offset {assigned.fetch_offset} is larger than a Fetch"
                        " allows"
                    )
                    assigned.error = ClientError(message, ErrorCode.RECORD_LIST_TOO_LARGE)
                else:
                    assigned.fetched.append(fetched)
        else:
            if data.preferred_read_replica != NO_REPLICA and not assigned.fetched:
                assigned.replica = data.preferred_read_replica
                assigned.replica_until_s = time.monotonic() + self._settings.replica_max_age_ms / 1000
            return False
        self._on_change()
        return False

    # Look-ups.

    def _needs_lookup(self) -> bool:
        if self._error is not None:
            return False
        now_s = time.monotonic()
        return (
            bool(self._cluster.stale_topics(now_s))
            or bool(self._missing_topics())
            or any(
                each.error is None and (each.stage is not Stage.READY or self._is_leaderless(each))
                for each in self._positions
            )
        )

    def _missing_topics(self) -> set[str]:
        return {topic for topic in self._watched if self._cluster.known_topic(topic) is None}

    def _is_leaderless(self, assigned: AssignedPartition) -> bool:
        leader = self._cluster.leader(assigned.topic_partition)
        return leader is None or leader.node_id is None

    async def _look_up(self) -> None:
        failures = 0
        try:
            while self._needs_lookup():
                before = self._pending_lookups()
                try:
                    await self._look_up_once()
                except RetriableError:
                    pass
                except ClientError as error:
                    self._error = error
                    return
                self.wake()  # start the fetches that are now possible
                failures = failures + 1 if before <= self._pending_lookups() else 0
                if failures:
                    await self._cluster.pause(failures)
        finally:
            self._lookup = None
            self._on_change()

    def _pending_lookups(self) -> set[object]:
        """Returns the topics and partitions that need a look-up. The result names only the topic or partition, because
        needing a different kind of look-up than before is not progress."""
        return (
            self._missing_topics()
            | set(self._cluster.stale_topics(time.monotonic()))
            | {
                each.topic_partition
                for each in self._positions
                if each.stage is not Stage.READY or self._is_leaderless(each)
            }
        )

    async def _look_up_once(self) -> None:
        topics = self._missing_topics() | set(self._cluster.stale_topics(time.monotonic()))
        topics |= {each.topic_partition.topic for each in self._positions if self._is_leaderless(each)}
        if known_topics := {topic for topic in topics if self._cluster.known_topic(topic) is not None}:
            await self._cluster.refresh(known_topics)
        for topic in topics - known_topics:
            with suppress(RetriableError):
                await self._cluster.topic(topic, timeout_ms=0)
        if waiting := [each.topic_partition for each in self._positions.in_stage(Stage.NEEDS_COMMITTED_OFFSET)]:
            assert self._committed is not None
            for partition, offset in (await self._committed(waiting)).items():
                self._positions.committed(partition, offset)
        await self._validate(self._positions.in_stage(Stage.NEEDS_VALIDATION))
        await self._reset(self._positions.in_stage(Stage.NEEDS_RESET))

    async def _reset(self, waiting: list[AssignedPartition]) -> None:
        timestamps = {each.topic_partition: each.reset_to for each in waiting if each.reset_to is not None}
        for each in waiting:
            if each.reset_to is None:
                self._positions.lose(each)
        if not timestamps:
            return
        level = self._settings.isolation_level.value
        stale: set[str] = set()
        for partition, found in (await ask_offsets(self._cluster, timestamps, isolation_level=level)).items():
            assigned = self._positions.find(partition)
            if (
                assigned is None
                or assigned.stage is not Stage.NEEDS_RESET
                or assigned.reset_to != timestamps.get(partition)
            ):
                continue
            if found.code is ErrorCode.NONE:
                # As in Kafka's Java client, the position gets no leader epoch, because an offset from the leader itself
                # needs no validation. If the log did not contain the epoch, validation and look-up would alternate
                # endlessly.
                assigned.seek(found.offset)
            elif found.code in RETRIABLE:
                stale |= {partition.topic} if found.code in STALE_METADATA else set()
            else:
                assigned.error = refusal(found.code, f"the offsets of {partition.topic}-{partition.partition}")
        if stale:
            await self._cluster.refresh(stale)

    async def _validate(self, waiting: list[AssignedPartition]) -> None:
        """Checks that the leader's log contains the record before the position (KIP-320)."""
        epochs = {each.topic_partition: each.leader_epoch for each in waiting if each.leader_epoch is not None}
        if not epochs:
            return
        stale: set[str] = set()
        for partition, end in (await ask_epoch_ends(self._cluster, epochs)).items():
            assigned = self._positions.find(partition)
            if assigned is None or assigned.leader_epoch != epochs.get(partition):
                continue
            if end.code is ErrorCode.NONE:
                self._positions.apply_validation(assigned, end.current_epoch, end.leader_epoch, end.end_offset)
            elif end.code in RETRIABLE:
                stale.add(partition.topic)
            else:
                assigned.error = refusal(end.code, f"the log of {partition.topic}-{partition.partition}")
        if stale:
            await self._cluster.refresh(stale)
