"""The consumer. It reads assigned partitions, or subscribes to topics as a member of a group, and returns records one
at a time or in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar, Unpack

from odradek.client.common.errors import ClientError, IllegalState, RetriableError
from odradek.client.common.values import ConsumerGroupMetadata, ConsumerRecord, OffsetAndMetadata, TopicPartition
from odradek.client.consuming.assignors import ASSIGNORS
from odradek.client.consuming.delivery import Delivery, RecordTaker
from odradek.client.consuming.fetched import RawBatches
from odradek.client.consuming.fetcher import Fetcher, FetchSettings, IsolationLevel
from odradek.client.consuming.group_offsets import GroupOffsets
from odradek.client.consuming.handover import Callbacks, GroupProtocol, GroupSettings, Handover, Interest, OnRebalance
from odradek.client.consuming.offset_lookup import OffsetAndTimestamp, list_offsets
from odradek.client.consuming.positions import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, OffsetReset, Positions
from odradek.client.consuming.subscription import Commits, Subscription
from odradek.client.metrics.consumer_metrics import ConsumerMetrics, PartitionReading
from odradek.client.network.cluster import (
    DEFAULT_METADATA_MAX_AGE_MS,
    DEFAULT_REQUEST_TIMEOUT_MS,
    DEFAULT_RETRY_BACKOFF_MAX_MS,
    DEFAULT_RETRY_BACKOFF_MS,
    Cluster,
)
from odradek.client.network.connected import ConnectedClient, is_set_by
from odradek.client.security.settings import Security, SecuritySettings

Records = dict[TopicPartition, list[ConsumerRecord]]
T = TypeVar("T")

ISOLATION_LEVELS = {level.name.lower(): level for level in IsolationLevel}
PER_POLL = 500  # default maximum number of records per poll


class Consumer(ConnectedClient):
    """Reads the records of topics. Within a partition, records are returned in the order of their offsets.

        async with Consumer("orders", bootstrap_servers="localhost:9092", group_id="billing") as consumer:
            async for record in consumer:
                ...
                await consumer.commit()

    A consumer with a `group_id` and topics shares these topics' partitions with the other group members. A consumer
    that uses `assign` reads exactly the given partitions, without a group.

    A consumer must be started before use and closed afterwards, preferably with `async with`. Rebalances happen only
    during calls that return records. Only one task at a time may use a consumer.
    """

    def __init__(
        self,
        *topics: str,
        bootstrap_servers: str | Sequence[str],
        group_id: str | None = None,
        group_instance_id: str | None = None,
        group_protocol: str = "classic",
        group_remote_assignor: str | None = None,
        client_rack: str | None = None,
        client_id: str = "odradek",
        isolation_level: str = "read_committed",
        auto_offset_reset: str = "earliest",
        enable_auto_commit: bool = False,
        auto_commit_interval_ms: float = 5_000,
        fetch_min_bytes: int = 1,
        fetch_max_bytes: int = 50 * 1024 * 1024,
        fetch_max_wait_ms: int = 500,
        max_partition_fetch_bytes: int = 1024 * 1024,
        check_crcs: bool = True,
        session_timeout_ms: int = 45_000,
        heartbeat_interval_ms: float = 3_000,
        max_poll_interval_ms: int = 300_000,
        partition_assignment_strategy: Sequence[str] = ("range", "cooperative-sticky"),
        default_api_timeout_ms: float = 60_000,
        request_timeout_ms: float = DEFAULT_REQUEST_TIMEOUT_MS,
        retry_backoff_ms: float = DEFAULT_RETRY_BACKOFF_MS,
        retry_backoff_max_ms: float = DEFAULT_RETRY_BACKOFF_MAX_MS,
        metadata_max_age_ms: float = DEFAULT_METADATA_MAX_AGE_MS,
        bootstrap_timeout_ms: float = 0,
        allow_auto_create_topics: bool = True,
        **security: Unpack[SecuritySettings],
    ) -> None:
        """Creates a consumer. `start` connects it. Raises ValueError for invalid settings.

        Settings have Kafka's names and defaults, with three exceptions. `isolation_level` is read_committed: records of
        aborted and open transactions are not returned. `auto_offset_reset` is earliest (or latest, or none): if there
        is no committed offset, the consumer begins at the start of the partition. `enable_auto_commit` is False: the
        application has to commit.

        bootstrap_servers               one or more brokers as `host:port`, in a sequence or separated by commas
        group_id                        the id of the consumer group; required to subscribe and to commit
        group_instance_id               makes the member static (KIP-345): its partitions remain reserved while it
                                        restarts
        client_rack                     the rack of this client. The leader may then direct the consumer to a follower
                                        in the same rack (KIP-392).
        fetch_min_bytes                 how many bytes a broker collects before it answers a Fetch
        fetch_max_wait_ms               maximum time that a broker waits for `fetch_min_bytes`
        fetch_max_bytes                 size limit of a Fetch response
        max_partition_fetch_bytes       size limit of a partition's records in a Fetch response
        check_crcs                      verify the CRC of each batch
        max_poll_interval_ms            how long the application may process records before the member leaves the group
        session_timeout_ms              classic only: a member that sends no heartbeat for this long is removed from the
                                        group
        heartbeat_interval_ms           classic only: how often to send heartbeats
        group_protocol                  classic, or consumer (KIP-848). With consumer, the broker assigns the
                                        partitions, using `group_remote_assignor` if set, and chooses the
                                        heartbeat interval.
        partition_assignment_strategy   classic only: range, roundrobin and cooperative-sticky, in order of preference.
                                        With cooperative-sticky alone, members keep most of their partitions during a
                                        rebalance.
        default_api_timeout_ms          how long calls that do not return records retry transient errors
        """
        unknown = set(partition_assignment_strategy) - ASSIGNORS.keys()
        if unknown or not partition_assignment_strategy:
            raise ValueError(
                f"partition_assignment_strategy must be a list of {', '.join(ASSIGNORS)}, not {sorted(unknown)}"
            )
        if enable_auto_commit and group_id is None:
            raise ValueError("enable_auto_commit needs a group_id")
        metrics = ConsumerMetrics(client_id)
        self._metrics: ConsumerMetrics = metrics
        self._cluster = Cluster(
            bootstrap_servers,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            metadata_max_age_ms=metadata_max_age_ms,
            bootstrap_timeout_ms=bootstrap_timeout_ms,
            allow_auto_create_topics=allow_auto_create_topics,
            security=Security.of(security),
            metrics=metrics,
        )
        if isolation_level not in ISOLATION_LEVELS:
            raise ValueError(f"isolation_level must be {' or '.join(ISOLATION_LEVELS)}, not {isolation_level!r}")
        self._isolation_level = ISOLATION_LEVELS[isolation_level]
        self._timeout_ms = default_api_timeout_ms
        self._protocol = GroupProtocol(group_protocol)
        self._positions = Positions(OffsetReset(auto_offset_reset))
        self._delivery = Delivery()
        self._change = asyncio.Event()
        self._offsets = None if group_id is None else GroupOffsets(self._cluster, group_id, timeout_ms=self._timeout_ms)
        self._commits = Commits(
            self._offsets or GroupOffsets(self._cluster, "", timeout_ms=self._timeout_ms),
            self._positions,
            self._delivery,
            interval_ms=auto_commit_interval_ms if enable_auto_commit else None,
            request_timeout_ms=request_timeout_ms,
        )
        self._fetcher = Fetcher(
            self._cluster,
            self._positions,
            FetchSettings(
                isolation_level=self._isolation_level,
                min_bytes=fetch_min_bytes,
                max_bytes=fetch_max_bytes,
                max_wait_ms=fetch_max_wait_ms,
                max_partition_bytes=max_partition_fetch_bytes,
                check_crcs=check_crcs,
                client_rack=client_rack,
                replica_max_age_ms=metadata_max_age_ms,
            ),
            committed=None if self._offsets is None else self._offsets.committed_now,
            on_change=self._change.set,
            metrics=metrics,
        )
        self._taker = RecordTaker(self._positions, self._delivery, self._fetcher, metrics.record_returned)
        metrics.read_partitions = self._partition_readings
        self._subscription = Subscription(
            self._cluster,
            GroupSettings(
                group_id=group_id or "",
                group_instance_id=group_instance_id,
                session_timeout_ms=session_timeout_ms,
                heartbeat_interval_ms=heartbeat_interval_ms,
                max_poll_interval_ms=max_poll_interval_ms,
                assignors=tuple(partition_assignment_strategy),
                protocol=self._protocol,
                remote_assignor=group_remote_assignor,
                client_rack=client_rack,
            ),
            Handover(
                self._positions,
                self._delivery,
                self._fetcher,
                commit=self._commits.commit_unattended,
                on_rebalance=metrics.rebalances.record_rebalance,
            ),
            progress=self._progress,
            on_change=self._change.set,
        )
        self._commits.subscription = self._subscription
        self._is_polling = self._is_started = self._is_closed = False
        if topics:
            self.subscribe(topics)

    async def start(self) -> None:
        """Connects to the cluster. Raises RetriableError if no broker answers; the call can then be repeated. Raises
        AuthenticationFailed if a broker refuses the login."""
        await self._connect()
        self._is_started = True
        self._fetcher.wake()

    async def close(self) -> None:
        """Commits if `enable_auto_commit` is set and leaves the group. A closed consumer cannot be started again."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._is_started:
                await self._subscription.leave()
        finally:
            await self._fetcher.close()
            await self._cluster.close()

    # Partitions.

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | None = None,
        on_assigned: OnRebalance | None = None,
        on_revoked: OnRebalance | None = None,
        on_lost: OnRebalance | None = None,
    ) -> None:
        """Subscribes to these topics, replacing any earlier subscription.

        The next call that returns records joins the group.

        pattern       also subscribes to all topics whose full name matches this RE2 pattern. Requires
                      group_protocol="consumer".
        on_assigned   called with new partitions before any of their records are read; the place to `seek`
        on_revoked    called before partitions are given up; the place to commit offsets or to abort a transaction
        on_lost       called if other members already own the partitions; defaults to `on_revoked`

        The callbacks may be coroutine functions. They run within calls that return records.

        Raises IllegalState without `group_id`, after `assign`, and for a pattern with the classic protocol. Raises
        TypeError if `topics` is a single string.
        """
        if self._offsets is None:
            raise IllegalState("subscribe needs a group_id; assign does not")
        if not self._subscription.exists and self._positions.partitions:
            raise IllegalState("partitions were assigned with assign: call unsubscribe first")
        if isinstance(topics, str):
            raise TypeError("subscribe needs a list of topics, not a string")
        if pattern is not None and self._protocol is GroupProtocol.CLASSIC:
            raise IllegalState('a pattern needs group_protocol="consumer"')
        interest = Interest(frozenset(topics), pattern)
        self._subscription.subscribe(interest, Callbacks(on_assigned, on_revoked, on_lost))

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assigns exactly these partitions to the consumer. Partitions that it already reads keep their positions.
        Raises IllegalState after `subscribe`: call `unsubscribe` first."""
        if self._subscription.exists:
            raise IllegalState("topics were subscribed with subscribe: call unsubscribe first")
        requested = [TopicPartition(*partition) for partition in partitions]
        self._drop_buffered(*(self._positions.partitions - set(requested)))
        self._positions.assign(requested, has_group=self._offsets is not None)
        self._wake()

    async def unsubscribe(self) -> None:
        """Gives up all partitions and leaves the group."""
        await self._subscription.leave()

    def assignment(self) -> set[TopicPartition]:
        """Returns the partitions that the consumer currently reads."""
        return self._positions.partitions

    def subscription(self) -> frozenset[str]:
        """Returns the topics passed to `subscribe`."""
        return self._subscription.interest.topics

    # Records.

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> ConsumerRecord:
        record = self._delivery.take()
        return record if record is not None else await self.getone()

    async def getone(self) -> ConsumerRecord:
        """Waits for the next record, without a time limit, and returns it. Raises the errors of `getmany`:
        OffsetOutOfRange, AuthorizationFailed, ClientError and IllegalState."""
        while (record := self._delivery.take()) is None:
            await self.wait_ready()
        return record

    async def getmany(self, *, timeout_ms: float = 1_000, max_records: int = PER_POLL) -> Records:
        """Returns records by partition as soon as some have arrived, or an empty dict after `timeout_ms`.

        Raises OffsetOutOfRange if the application has to choose a position; AuthorizationFailed if the client has no
        permission to read a topic or to join the group; ClientError for damaged records (`seek` past them) or if the
        group does not accept this member. Raises IllegalState before `start`, after `close`, and if neither `subscribe`
        nor `assign` has been called; ValueError if `max_records` is less than 1.
        """
        if max_records < 1:
            raise ValueError(f"max_records={max_records}")
        found: Records = {}
        delivered = await self._poll(timeout_ms, partial(self._taker.take_first, max_records))
        count = 0
        while delivered is not None:
            partition, records = delivered
            found.setdefault(partition, []).extend(records)
            count += len(records)
            if count >= max_records:
                break
            try:
                delivered = self._taker.take_more(max_records - count)
            except ClientError:
                # Return the records taken so far. The next call raises this error.
                break
        return found

    async def getbatches(self, *, timeout_ms: float = 1_000) -> dict[TopicPartition, RawBatches]:
        """Returns undecoded batches by partition, for `odradek.client.columns.read_records`, or an empty dict after
        `timeout_ms`.

        The position moves past all returned batches. The consumer checks neither CRCs nor records, so the caller must
        check them.

        Raises the errors of `getmany`, except the error for damaged records: OffsetOutOfRange, AuthorizationFailed,
        ClientError if the group does not accept this member, and IllegalState.
        """
        self._drop_buffered(*self._positions.partitions)
        return await self._poll(timeout_ms, self._taker.take_batches) or {}

    def take_ready(self) -> ConsumerRecord | None:
        """Returns the next record without waiting, or None if no record is ready or the consumer has other work to do
        first. If the result is None, call `wait_ready`."""
        return self._delivery.take()

    async def wait_ready(self) -> None:
        """Waits until `take_ready` may have a record. No record is lost if the wait is cancelled. Raises the errors of
        `getmany`, such as IllegalState and ClientError."""
        delivered = await self._poll(None, partial(self._taker.take_first, PER_POLL))
        assert delivered is not None
        self._delivery.load(*delivered)

    # Positions.

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continues reading this partition at `offset`. Raises ValueError if the offset is negative; IllegalState if
        the partition is not assigned."""
        if offset < 0:
            raise ValueError(f"the offset {offset}")
        self._drop_buffered(partition)
        self._positions.get(partition).seek(offset)
        self._wake()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continues at the start of these partitions, or of all assigned partitions if none are given. Raises
        IllegalState if a partition is not assigned."""
        self._reset(partitions, EARLIEST_TIMESTAMP)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continues at the end of these partitions, or of all assigned partitions if none are given.

        The next call that returns records looks up the end. With read_committed, the end is the last stable offset.
        Raises IllegalState if a partition is not assigned.
        """
        self._reset(partitions, LATEST_TIMESTAMP)

    async def position(self, partition: TopicPartition) -> int:
        """Returns the offset of the next record that the consumer will return. Raises RetriableError if this offset
        cannot be determined within `default_api_timeout_ms`; OffsetOutOfRange, or another ClientError, if the
        application has to choose a position; IllegalState if the partition is not assigned."""
        assigned = self._positions.get(partition)
        ends_at = asyncio.get_running_loop().time() + self._timeout_ms / 1000
        while assigned.offset < 0:
            if assigned.error is not None:
                raise assigned.error
            self._change.clear()
            self._wake()
            if not await is_set_by(self._change, ends_at):
                raise RetriableError(
                    f"the position in {partition.topic}-{partition.partition} could not be determined in time"
                )
            assigned = self._positions.get(partition)
        on_its_way = self._delivery.position(partition)
        return assigned.offset if on_its_way is None else on_its_way

    def pause(self, *partitions: TopicPartition) -> None:
        """Stops returning records of these partitions until `resume` is called. Raises IllegalState if a partition is
        not assigned."""
        self._drop_buffered(*partitions)
        for partition in partitions:
            self._positions.get(partition).is_paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Resumes returning records of these partitions after `pause`. Does nothing if they are not paused. Raises
        IllegalState if a partition is not assigned."""
        for partition in partitions:
            self._positions.get(partition).is_paused = False
        self._change.set()
        self._wake()

    def paused(self) -> set[TopicPartition]:
        """Returns the assigned partitions that are paused."""
        return {each.topic_partition for each in self._positions if each.is_paused}

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the log start offset of each partition. Raises RetriableError on timeout; ClientError for a partition
        that the broker refuses."""
        return await self._log_bounds(partitions, EARLIEST_TIMESTAMP)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the end offset of each partition: the last stable offset with read_committed, otherwise the high
        watermark. Raises RetriableError on timeout; ClientError for a partition that the broker refuses."""
        return await self._log_bounds(partitions, LATEST_TIMESTAMP)

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Returns the offset and timestamp of each partition's first record with at least the given timestamp, or None
        if there is no such record. Raises ValueError for a negative timestamp; RetriableError on timeout; ClientError
        for a partition that the broker refuses."""
        if any(timestamp < 0 for timestamp in timestamps_ms.values()):
            raise ValueError("the timestamp is before 1970")
        return await list_offsets(
            self._cluster, timestamps_ms, isolation_level=self._isolation_level.value, timeout_ms=self._timeout_ms
        )

    # Committed offsets.

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None) -> None:
        """Commits these offsets. By default, commits the position in every partition: the offset after the last
        returned record.

        Raises CommitFailed if the group has continued without this member. Raises RetriableError if the group is
        rebalancing (fetch records, then commit again) or its coordinator cannot be reached. Raises IllegalState without
        `group_id`.
        """
        self._require_group("commit")
        with self._metrics.commit:
            await self._commits.commit(offsets)

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Returns the group's committed offset in each partition, or None if the group has not committed an offset
        there. Raises RetriableError on timeout; ClientError if the broker refuses the request; IllegalState without
        `group_id`."""
        offsets = self._require_group("committed")
        with self._metrics.committed:
            return await offsets.committed([TopicPartition(*each) for each in partitions])

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Returns metadata that identifies this member, for a producer's `send_offsets_to_transaction`.

        Raises IllegalState if the consumer has no group. Also raises IllegalState if `enable_auto_commit` is set: the
        consumer would commit its position outside the transaction, and if the transaction were aborted, the records
        before that position would never be read again."""
        self._require_group("group_metadata")
        if self._commits.is_automatic:
            raise IllegalState(
                f"the consumer of the group {self._subscription.metadata.group_id!r} has enable_auto_commit=True: it "
                "commits offsets outside the transaction, and an abort would lose the records before them. Leave "
                "enable_auto_commit out"
            )
        return self._subscription.metadata

    # Internals.

    async def _poll(self, timeout_ms: float | None, take: Callable[[], T | None]) -> T | None:
        """Returns the first result of `take` that is not None, or None after `timeout_ms`. Does not await anything
        after `take` has succeeded, so a cancellation loses no records."""
        if not self._is_started or self._is_closed:
            raise IllegalState("the consumer was not started, or is closed")
        if not self._subscription.exists and not self._positions.partitions:
            raise IllegalState("neither subscribe nor assign was called")
        loop = asyncio.get_running_loop()
        ends_at = None if timeout_ms is None else loop.time() + timeout_ms / 1000
        self._is_polling = True
        self._metrics.polls.begin_poll()
        try:
            # Without this pause, an application that only takes records would leave no time for Fetch and Heartbeat
            # requests.
            await asyncio.sleep(0)
            while True:
                self._change.clear()  # any later change ends the wait below
                await self._subscription.poll_coordinator()
                await self._commits.commit_if_due(loop.time())
                delivered = take()
                if delivered is not None:
                    return delivered
                if (error := self._positions.error() or self._fetcher.error()) is not None:
                    self._fetcher.wake()
                    raise error
                self._fetcher.wake()
                due_at = self._commits.next_commit_at
                waits_until = ends_at if due_at is None else due_at if ends_at is None else min(ends_at, due_at)
                if not await is_set_by(self._change, waits_until) and waits_until == ends_at:
                    return None
        finally:
            self._is_polling = False
            self._metrics.polls.end_poll()

    def _partition_readings(self) -> list[PartitionReading]:
        """Returns the lag and lead of every partition for the metrics. Thread-safe."""
        found = []
        for each in self._positions.snapshot():
            on_its_way = self._delivery.position(each.topic_partition)
            position = each.offset if on_its_way is None else on_its_way
            start, end = each.log_start_offset, each.log_end_offset
            found.append(
                PartitionReading(
                    each.topic_partition,
                    lag=None if end is None or position < 0 else max(0, end - position),
                    lead=None if start is None or position < 0 else max(0, position - start),
                )
            )
        return found

    def _drop_buffered(self, *partitions: TopicPartition) -> None:
        """Drops the buffered records of these partitions and moves the positions back to the first dropped record."""
        for partition in partitions:
            position = self._delivery.position(partition)
            if position is not None:
                self._delivery.drop()
                assigned = self._positions.get(partition)
                assigned.seek(position, assigned.leader_epoch)

    def _reset(self, partitions: Iterable[TopicPartition], timestamp: int) -> None:
        for partition in tuple(partitions) or self._positions.partitions:
            self._drop_buffered(partition)
            self._positions.get(partition).reset(timestamp)
        self._wake()

    async def _log_bounds(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        found = await list_offsets(
            self._cluster,
            {TopicPartition(*partition): timestamp for partition in partitions},
            isolation_level=self._isolation_level.value,
            timeout_ms=self._timeout_ms,
        )
        return {partition: each.offset for partition, each in found.items() if each is not None}

    def _require_group(self, call: str) -> GroupOffsets:
        if self._offsets is None:
            raise IllegalState(f"{call} needs a group_id")
        return self._offsets

    def _progress(self) -> object:
        """Returns a value that changes whenever the application polls or takes records. A change proves that the
        application is alive."""
        return object() if self._is_polling else self._delivery.progress

    def _wake(self) -> None:
        if self._is_started:
            self._fetcher.wake()
