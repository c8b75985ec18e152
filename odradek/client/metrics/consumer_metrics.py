"""The metrics that only consumers and share consumers have."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from odradek.client.common.values import TopicPartition
from odradek.client.metrics.client_metrics import ApiSensors, ClientMetrics
from odradek.client.metrics.sensors import NAN, SECONDS_PER_HOUR, Clock, MetricGroup, Sensor
from odradek.client.metrics.values import Metric, MetricKind, Unit
from odradek.protocol.api_keys import ApiKey

PARTITION = "consumer-fetch-manager-metrics"


class Polls:
    """Measures the calls that wait for records."""

    def __init__(self, group: MetricGroup) -> None:
        self._clock = group.clock
        self._began_s: float | None = None
        self._spent_s = 0.0  # duration of the last completed call
        self._between = group.average(
            "time-between-poll", Unit.MILLISECONDS, "time between two calls that poll for records"
        )
        self._idle = group.average(
            "poll-idle-ratio",
            Unit.RATIO,
            "fraction of the time that is spent in calls that poll for records",
            has_maximum=False,
        )
        group.gauge(
            "last-poll-seconds-ago",
            Unit.SECONDS,
            "time since the last poll for records; -1 if there was none",
            self._ago,
        )

    def begin_poll(self) -> None:
        now_s = self._clock()
        if self._began_s is not None and now_s > self._began_s:
            between_s = now_s - self._began_s
            self._between.record(between_s * 1000)
            self._idle.record(self._spent_s / between_s)
        self._began_s, self._spent_s = now_s, 0.0

    def end_poll(self) -> None:
        if self._began_s is not None:
            self._spent_s = self._clock() - self._began_s

    def _ago(self) -> float:
        return -1.0 if self._began_s is None else self._clock() - self._began_s


class Fetches:
    """Measures fetches and the records that they return."""

    def __init__(self, group: MetricGroup) -> None:
        self.latency = group.average("fetch-latency", Unit.MILLISECONDS, "time from a Fetch request to its answer")
        group.meter_of(self.latency, "fetch", "fetches answered", counts_events=True)
        self.throttle = group.average("fetch-throttle-time", Unit.MILLISECONDS, "throttle time of a Fetch request")
        self.size = group.average("fetch-size", Unit.BYTES, "bytes of records in the answer to a Fetch request")
        group.meter_of(self.size, "bytes-consumed", "bytes of records fetched", is_bytes=True)


class Rebalances:
    def __init__(self, group: MetricGroup) -> None:
        self._clock = group.clock
        self._ended_s: float | None = None
        self._sensor = Sensor(group.clock)
        group.gauge(
            "rebalance-rate-per-hour",
            Unit.PER_HOUR,
            "assignments that the consumer adopted, per hour",
            lambda: self._sensor.events_rate() * SECONDS_PER_HOUR,
        )
        group.counter(
            "rebalance-total",
            Unit.COUNT,
            "assignments that the consumer adopted, in total",
            lambda: float(self._sensor.count),
        )

    def record_rebalance(self) -> None:
        self._sensor.record()
        self._ended_s = self._clock()

    def seconds_since_last(self) -> float:
        return -1.0 if self._ended_s is None else self._clock() - self._ended_s


class PartitionReading(NamedTuple):
    """The lag and lead of one partition: the number of records from the position to the end, and from the start to the
    position. Each is None if unknown."""

    partition: TopicPartition
    lag: int | None
    lead: int | None


class TopicReading:
    """Measures one topic's records."""

    __slots__ = ("fetched_bytes", "group", "records")

    def __init__(self, group: MetricGroup) -> None:
        self.group = group
        self.records = group.meter("records-consumed", "records returned to the application")
        self.fetched_bytes = group.average(
            "fetch-size", Unit.BYTES, "bytes of records in the answer to a Fetch request"
        )
        group.meter_of(self.fetched_bytes, "bytes-consumed", "bytes of records fetched", is_bytes=True)


class ConsumerMetrics(ClientMetrics):
    def __init__(self, client_id: str, clock: Clock = time.monotonic) -> None:
        super().__init__("consumer", client_id, clock)
        self.read_partitions: Callable[[], list[PartitionReading]] = list  # set by the consumer
        self.polls = Polls(self.client)
        self.commit = self.client.time_spent("commit-sync", "time spent in `commit`")
        self.committed = self.client.time_spent("committed", "time spent in `committed`")
        fetching = self._group("consumer-fetch-manager-metrics")
        fetches = Fetches(fetching)
        self._fetch_size = fetches.size
        self.measure_api(ApiKey.FETCH, latency_ms=fetches.latency, throttle_ms=fetches.throttle)
        self._records = fetching.average(
            "records-per-request", Unit.COUNT, "records that one poll of fetched records returned", has_maximum=False
        )
        fetching.meter_of(self._records, "records-consumed", "records returned to the application")
        fetching.gauge("records-lag-max", Unit.COUNT, "largest `records-lag` of the partitions", self._largest_lag)
        fetching.gauge("records-lead-min", Unit.COUNT, "smallest `records-lead` of the partitions", self._smallest_lead)
        self._topics: dict[str, TopicReading] = {}
        group = self._group("consumer-coordinator-metrics")
        group.gauge(
            "assigned-partitions",
            Unit.COUNT,
            "partitions assigned to the consumer",
            lambda: float(len(self.read_partitions())),
        )
        commit = group.average("commit-latency", Unit.MILLISECONDS, "time from an OffsetCommit to its answer")
        group.meter_of(commit, "commit", "OffsetCommits answered", counts_events=True)
        self.measure_api(ApiKey.OFFSET_COMMIT, latency_ms=commit)
        measure_heartbeats(self, group, ApiKey.HEARTBEAT, ApiKey.CONSUMER_GROUP_HEARTBEAT)
        join = group.average("join-time", Unit.MILLISECONDS, "time from a JoinGroup to its answer")
        group.meter_of(join, "join", "JoinGroups answered", counts_events=True)
        self.measure_api(ApiKey.JOIN_GROUP, latency_ms=join)
        sync = group.average("sync-time", Unit.MILLISECONDS, "time from a SyncGroup to its answer")
        group.meter_of(sync, "sync", "SyncGroups answered", counts_events=True)
        self.measure_api(ApiKey.SYNC_GROUP, latency_ms=sync)
        self.rebalances = Rebalances(group)
        group.gauge(
            "last-rebalance-seconds-ago",
            Unit.SECONDS,
            "time since an assignment was last adopted; -1 if there was none",
            self.rebalances.seconds_since_last,
        )

    def record_fetch(self, by_topic: dict[str, int]) -> None:
        """Records each topic's number of bytes in a response."""
        self._fetch_size.record(sum(by_topic.values()))
        for topic, size_bytes in by_topic.items():
            self._topic(topic).fetched_bytes.record(size_bytes)

    def record_returned(self, topic: str, records: int) -> None:
        """Counts records returned to the application."""
        self._records.record(records)
        self._topic(topic).records.record(records)

    def _topic(self, topic: str) -> TopicReading:
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = TopicReading(MetricGroup(PARTITION, self.clock))
        return found

    def _largest_lag(self) -> float:
        return max((float(each.lag) for each in self.read_partitions() if each.lag is not None), default=NAN)

    def _smallest_lead(self) -> float:
        return min((float(each.lead) for each in self.read_partitions() if each.lead is not None), default=NAN)

    def _read(self) -> Iterable[Metric]:
        yield from super()._read()
        for topic, sensors in list(self._topics.items()):
            yield from sensors.group.read({"client-id": self._client_id, "topic": topic})
        for partition, lag, lead in self.read_partitions():
            tags = {"client-id": self._client_id, "topic": partition.topic, "partition": str(partition.partition)}
            for name, value, what in (
                ("records-lag", lag, "records up to the end of the partition, or to its last stable offset"),
                ("records-lead", lead, "records from the start of the partition to the position"),
            ):
                if value is not None:
                    yield Metric(name, PARTITION, tags, Unit.COUNT, MetricKind.GAUGE, what, float(value))


class ShareConsumerMetrics(ClientMetrics):
    def __init__(self, client_id: str, clock: Clock = time.monotonic) -> None:
        super().__init__("consumer", client_id, clock)
        group = self._group("consumer-share-metrics")
        self.polls = Polls(group)
        self.metadata_fetches = group.meter("share-group-metadata-fetch", "calls of `share_group_metadata` (KIP-1289)")
        fetching = self._group("consumer-share-fetch-manager-metrics")
        fetches = Fetches(fetching)
        self._fetch_size = fetches.size
        self.measure_api(ApiKey.SHARE_FETCH, latency_ms=fetches.latency, throttle_ms=fetches.throttle)
        self._records = fetching.average("records-per-request", Unit.COUNT, "records in the answer to a fetch")
        fetching.meter_of(self._records, "records-consumed", "records acquired")
        self._acknowledgements = fetching.meter("acknowledgements-send", "records whose acknowledgement was answered")
        self._errors = fetching.meter(
            "acknowledgements-error", "records whose acknowledgement was refused, or whose answer was lost"
        )
        coordinator = self._group("consumer-share-coordinator-metrics")
        measure_heartbeats(self, coordinator, ApiKey.SHARE_GROUP_HEARTBEAT)
        self.rebalances = Rebalances(coordinator)

    def record_fetch(self, records: int, size_bytes: int) -> None:
        """Records the size of a response and its number of records."""
        self._records.record(records)
        self._fetch_size.record(size_bytes)

    def record_acknowledgements(self, ranges: Iterable[tuple[int, int]], *, has_failed: bool) -> None:
        """Records the outcome of acknowledging these offset ranges. `has_failed` is True if the broker refused them or
        its response was lost."""
        count = sum(last - first + 1 for first, last in ranges)
        self._acknowledgements.record(count)
        if has_failed:
            self._errors.record(count)


def measure_heartbeats(metrics: ClientMetrics, group: MetricGroup, *apis: ApiKey) -> None:
    response = group.average(
        "heartbeat-response-time", Unit.MILLISECONDS, "time from a heartbeat to its answer", has_average=False
    )
    group.meter_of(response, "heartbeat", "heartbeats answered", counts_events=True)
    sensors: list[ApiSensors] = [metrics.measure_api(api, latency_ms=response) for api in apis]
    group.gauge(
        "last-heartbeat-seconds-ago",
        Unit.SECONDS,
        "time since the last heartbeat; -1 if there was none",
        metrics.seconds_since(sensors),
    )
