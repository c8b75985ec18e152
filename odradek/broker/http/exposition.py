"""Formats the metrics as text for Prometheus, with the names that Prometheus's JMX exporter usually gives to Kafka's
metrics.

docs/metrics.md lists the MBean of each metric. With thousands of partitions, formatting takes milliseconds, so it runs
in a thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from odradek.broker.http.measures import DeadLetterMeasure, GroupMeasure, Measures
from odradek.protocol.variant import variant

if TYPE_CHECKING:
    from odradek.broker.network.connection_host import LoginCounts

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
BUCKET_BITS = range(5, 26)
CLASSIC = "classic"
STATES_OF_GROUPS = {
    CLASSIC: ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty"),
    "consumer": ("Empty", "Assigning", "Reconciling", "Stable", "Dead"),
    "share": ("Empty", "Stable", "Dead"),
    "streams": ("Empty", "NotReady", "Assigning", "Reconciling", "Stable", "Dead"),
}
REBALANCED = ("consumer", "share", "streams")
COUNTED = {  # names of Kafka's group metrics, without the suffix `-count`
    "offset-commit": "Offsets that were committed",
    "offset-expiration": "Offsets that have expired",
    "offset-deletion": "Offsets that OffsetDelete has removed",
    "group-completed-rebalance": "Rebalances of classic groups that have ended",
    "streams-group-topology-description-set-success": "Topology descriptions that were stored",
    "streams-group-topology-description-set-error": "Topology descriptions that could not be stored; always 0",
    "streams-group-topology-description-get-success": "Topology descriptions in answers to StreamsGroupDescribe",
    "streams-group-topology-description-get-error": "Topology descriptions that could not be read; always 0",
    "streams-group-topology-description-delete-success": "Topology descriptions that were removed with their group",
    "streams-group-topology-description-delete-error": "Topology descriptions that could not be removed; always 0",
    "streams-group-topology-description-cleanup-cycle": "Searches for groups that expire with their descriptions",
    "streams-group-topology-description-cleanup-eligible": "Groups that expired with their descriptions",
}
RUNNING = 3  # Kafka's number for the broker state RUNNING

# Maps each quota key to the type of Kafka's MBean and the name and help text of the rate metric.
QUOTAS = {
    "producer_byte_rate": ("produce", "byte_rate", "Bytes of Produce requests per second"),
    "consumer_byte_rate": ("fetch", "byte_rate", "Bytes of responses to Fetch requests per second"),
    "request_percentage": ("request", "request_time", "Time that requests take, as a percentage of one thread"),
    "controller_mutation_rate": (
        "controllermutation",
        "mutation_rate",
        "Partitions created and deleted per second",
    ),
}

Families: TypeAlias = Iterator[Metric]

LOGINS: tuple[tuple[str, str, Callable[[LoginCounts], int]], ...] = (
    ("successful_authentication", "Successful logins", lambda counts: counts.succeeded),
    ("failed_authentication", "Failed logins", lambda counts: counts.failed),
    ("successful_reauthentication", "Successful re-authentications", lambda counts: counts.succeeded_again),
    ("failed_reauthentication", "Failed re-authentications", lambda counts: counts.failed_again),
    (
        "expired_connections_killed",
        "Connections closed because their SASL session had expired",
        lambda counts: counts.expired,
    ),
)


def exposition(measures: Measures) -> bytes:
    registry = CollectorRegistry()
    registry.register(MeasuresCollector(measures))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class MeasuresCollector(Collector):
    def __init__(self, measures: Measures) -> None:
        self._measures = measures

    def collect(self) -> Families:
        yield gauge(
            "kafka_server_kafkaserver_brokerstate", "State of the broker; always 3, which means running", RUNNING
        )
        yield InfoMetricFamily("odradek", "Variant of the running code: compiled or pure", {"variant": variant()})
        for part in (requests, connections, quotas, partitions, topics, disk, loop, groups, transactions, shares):
            yield from part(self._measures)


def requests(measures: Measures) -> Families:
    labels = ("request", "version")
    prefix = "kafka_network_requestmetrics"
    count = CounterMetricFamily(f"{prefix}_requests", "Requests that have been answered or parked", labels=labels)
    size = SummaryMetricFamily(f"{prefix}_requestbytes", "Size of requests in bytes", labels=labels)
    local = SummaryMetricFamily(
        f"{prefix}_localtimems", "Time until a request is answered or parked, ms", labels=labels
    )
    remote = SummaryMetricFamily(
        f"{prefix}_remotetimems",
        "Time for which a request is parked, waiting for other requests or the disk, ms",
        labels=labels,
    )
    total = HistogramMetricFamily(
        f"{prefix}_totaltimems", "Time from the last byte of a request to its response, ms", labels=labels
    )
    throttle = SummaryMetricFamily(
        f"{prefix}_throttletimems", "Time for which a connection is muted because of a quota, ms", labels=labels
    )
    for api, version, number, request_bytes, local_ms, remote_ms, answered_in, throttle_ms in measures.requests:
        of = (api, str(version))
        count.add_metric(of, number)
        size.add_metric(of, number, request_bytes)
        local.add_metric(of, number, local_ms)
        remote.add_metric(of, number, remote_ms)
        throttle.add_metric(of, number, throttle_ms)
        total.add_metric(of, buckets(answered_in), local_ms + remote_ms)
    errors = CounterMetricFamily(
        f"{prefix}_errors", "Requests that were refused as a whole", labels=("request", "error")
    )
    for (api, error), number in measures.errors.items():
        errors.add_metric((api, error), number)
    yield from (count, size, local, remote, throttle, total, errors)


def buckets(answered_in: Sequence[int]) -> list[tuple[str, int]]:
    """Returns the upper bounds of a histogram's buckets, in ms, with their cumulative counts. The bounds double from 32
    µs to about half a minute."""
    counts = list(accumulate(answered_in))
    bounds = [(str((1 << bits) / 1000), counts[bits]) for bits in BUCKET_BITS]
    return [*bounds, ("+Inf", counts[-1])]


def connections(measures: Measures) -> Families:
    prefix = "kafka_server_socket_server_metrics_connection"
    open_ = GaugeMetricFamily(f"{prefix}_count", "Open connections", labels=("listener",))
    made = CounterMetricFamily(f"{prefix}_creation", "Connections that have been opened", labels=("listener",))
    delayed = SummaryMetricFamily(
        f"{prefix}_accept_throttle_time",
        "Time for which new connections waited because of max.connection.creation.rate, ms",
        labels=("listener",),
    )
    held = SummaryMetricFamily(
        "kafka_server_socket_server_metrics_ip_connection_accept_throttle_time",
        "Time for which connections were held and then closed because their address opened too many, ms",
        labels=("listener",),
    )
    for listener, number, number_made, (delays, delay_ms), (holds, hold_ms), _ in measures.listeners:
        open_.add_metric((listener,), number)
        made.add_metric((listener,), number_made)
        delayed.add_metric((listener,), delays, delay_ms)
        held.add_metric((listener,), holds, hold_ms)
    yield from (open_, made, delayed, held)
    yield from logins(measures)


def logins(measures: Measures) -> Families:
    """Yields the login counters of listeners with SASL."""
    for name, help_, count_of in LOGINS:
        family = CounterMetricFamily(f"kafka_server_socket_server_metrics_{name}", help_, labels=("listener",))
        for each in measures.listeners:
            if each.logins is not None:
                family.add_metric((each.listener,), count_of(each.logins))
        yield family


def quotas(measures: Measures) -> Families:
    """Yields metrics for the quotas in use. As in Kafka, the user or client id label is empty if the quota does not
    depend on the user or client id."""
    labels = ("user", "client_id")
    for key, (name, rate_name, help_) in QUOTAS.items():
        prefix = f"kafka_server_{name}"
        rate = GaugeMetricFamily(f"{prefix}_{rate_name}", help_, labels=labels)
        limit = GaugeMetricFamily(f"{prefix}_quota", "Limit of the quota", labels=labels)
        throttle = SummaryMetricFamily(
            f"{prefix}_throttle_time", "Time for which connections were muted because of the quota, ms", labels=labels
        )
        for each in measures.quotas:
            if each.key == key:
                of = (each.user or "", each.client_id or "")
                rate.add_metric(of, each.per_second)
                limit.add_metric(of, each.limit)
                throttle.add_metric(of, each.throttled, each.throttle_ms)
        yield from (rate, limit, throttle)


def partitions(measures: Measures) -> Families:
    labels = ("topic", "partition")
    families = {
        "size_bytes": ("kafka_log_log_size", "Size of the partition's segments in bytes"),
        "segments": ("kafka_log_log_numlogsegments", "Number of segments"),
        "log_start_offset": ("kafka_log_log_logstartoffset", "First offset that can be read"),
        "log_end_offset": ("kafka_log_log_logendoffset", "Offset of the next record to be appended"),
        "last_stable_offset": (
            "kafka_cluster_partition_laststableoffset",
            "Offset below which every transaction is committed or aborted; read_committed consumers read up to it",
        ),
        "stable_lag": (
            "kafka_cluster_partition_laststableoffsetlag",
            "Records that read_committed consumers cannot read yet",
        ),
        "producer_ids": (
            "kafka_cluster_partition_produceridcount",
            "Producer ids whose sequence numbers the partition remembers",
        ),
    }
    found = measures.partitions
    for attribute, (name, help_) in families.items():
        family = GaugeMetricFamily(name, help_, labels=labels)
        for each in found:
            family.add_metric((each.topic, str(each.partition)), getattr(each, attribute))
        yield family
    prefix = "kafka_server_replicamanager"
    yield gauge(f"{prefix}_partitioncount", "Partitions that this broker serves", len(found))
    yield gauge(f"{prefix}_leadercount", "Partitions that this broker leads", len(found))
    yield gauge(f"{prefix}_offlinereplicacount", "Partitions that are offline", measures.offline_partitions)
    yield gauge(
        f"{prefix}_produceridcount",
        "Live producer ids, summed over all partitions",
        sum(each.producer_ids for each in found),
    )
    yield gauge(
        f"{prefix}_partitionswithlatetransactionscount",
        "Partitions with a hanging transaction, which its coordinator should have ended",
        sum(each.has_late_transaction for each in found),
    )


def topics(measures: Measures) -> Families:
    prefix = "kafka_server_brokertopicmetrics"
    families = {
        "records_in": (f"{prefix}_messagesin", "Appended records, including transaction markers"),
        "bytes_in": (f"{prefix}_bytesin", "Appended bytes"),
        "bytes_out": (f"{prefix}_bytesout", "Bytes sent to consumers"),
    }
    for attribute, (name, help_) in families.items():
        family = CounterMetricFamily(name, help_, labels=("topic",))
        by_topic: Counter[str] = Counter()
        for each in measures.partitions:
            by_topic[each.topic] += getattr(each, attribute)
        for topic, total in by_topic.items():
            family.add_metric((topic,), total)
        yield family


def groups(measures: Measures) -> Families:
    if measures.groups is None:
        return
    prefix = "kafka_coordinator_group_groupmetadatamanager"
    counts = measures.groups.by_type_and_state
    by_type: Counter[str] = Counter(dict.fromkeys(STATES_OF_GROUPS, 0))
    for (group_type, _), count in counts.items():
        by_type[group_type] += count
    yield gauge(f"{prefix}_numgroups", "Classic groups", by_type[CLASSIC])
    for state in STATES_OF_GROUPS[CLASSIC]:
        count = counts.get((CLASSIC, state), 0)
        yield gauge(f"{prefix}_numgroups{state.lower()}", f"Classic groups in state {state}", count)
    yield gauge(f"{prefix}_numoffsets", "Committed offsets of groups", measures.groups.offsets)
    # The metrics below cover groups of all types. Kafka 4.4 and later call the number of offsets `offset_count`
    # (KIP-1301).
    prefix = "kafka_server_group_coordinator_metrics"
    family = GaugeMetricFamily(f"{prefix}_group_count", "Groups by type", labels=("protocol",))
    for group_type, count in by_type.items():
        family.add_metric((group_type,), count)
    yield family
    for group_type, states in STATES_OF_GROUPS.items():
        name = f"{prefix}_{group_type}_group_count"
        family = GaugeMetricFamily(name, f"Groups of type {group_type}, by state", labels=("state",))
        for state in states:
            family.add_metric((state,), counts.get((group_type, state), 0))
        yield family
    yield gauge(f"{prefix}_offset_count", "Committed offsets of groups", measures.groups.offsets)
    for group_type in REBALANCED:
        yield CounterMetricFamily(
            f"{prefix}_{group_type}_group_rebalance",
            f"New epochs of groups of type {group_type}, except those because members left",
            value=measures.groups.rebalances.get(group_type, 0),
        )
    for name, what in COUNTED.items():
        value = measures.groups.counts.get(name, 0)
        yield CounterMetricFamily(f"{prefix}_{name.replace('-', '_')}", what, value=value)
    yield from lags(measures.groups)


def lags(groups: GroupMeasure) -> Families:
    records = GaugeMetricFamily(
        "odradek_group_lag_records",
        "Records between the committed offsets of a group and the ends of its partitions",
        labels=("group",),
    )
    uncommitted = GaugeMetricFamily(
        "odradek_group_uncommitted_partitions",
        "Partitions of a group's members that have no committed offset, and are not part of the lag",
        labels=("group",),
    )
    for group, lag in groups.lags:
        if lag.records is not None:
            records.add_metric((group,), lag.records)
        uncommitted.add_metric((group,), lag.uncommitted)
    yield from (records, uncommitted)
    yield gauge("odradek_group_lag_left_out", "Groups whose lag is left out of the metrics", groups.left_out)


def disk(measures: Measures) -> Families:
    found = measures.disk
    name = "kafka_log_logflushstats_logflushrateandtimems"
    time_ms = HistogramMetricFamily(name, "Duration of fdatasyncs of partitions, ms")
    time_ms.add_metric((), buckets(found.synced_in), found.sync_ms)
    yield time_ms
    prefix = "odradek_log_directory"
    yield gauge(f"{prefix}_total_bytes", "Size of the file system that holds the data directory", found.total_bytes)
    yield gauge(
        f"{prefix}_usable_bytes",
        "Space of the data directory's file system that the broker can still use",
        found.usable_bytes,
    )


def loop(measures: Measures) -> Families:
    found = measures.loop
    prefix = "odradek_loop"
    late = HistogramMetricFamily(f"{prefix}_latems", "Delay of the event loop's ticks, ms")
    late.add_metric((), buckets(found.late_by), found.late_ms)
    blocking = SummaryMetricFamily(
        f"{prefix}_blockingms", "Time of tasks that blocked the event loop for more than 5 ms, ms", labels=("by",)
    )
    longest = GaugeMetricFamily(
        f"{prefix}_blockingms_max", "Longest time for which a task blocked the event loop, ms", labels=("by",)
    )
    for name, times, total_ms, max_ms in found.blocking:
        blocking.add_metric((name,), times, total_ms)
        longest.add_metric((name,), max_ms)
    yield from (late, blocking, longest)


def transactions(measures: Measures) -> Families:
    prefix = "kafka_server_transaction_coordinator_metrics"
    if measures.transactions is not None:
        ids = GaugeMetricFamily(
            f"{prefix}_transactional_id_count", "Transactional ids that the coordinator stores", labels=("state",)
        )
        for state, number in sorted(measures.transactions.ids_by_state.items()):
            ids.add_metric((state,), number)
        yield ids
        open_ms = measures.transactions.open_time_max_ms
        yield gauge(f"{prefix}_active_transaction_open_time_max", "Age of the oldest open transaction, ms", open_ms)
        yield gauge(
            f"{prefix}_kept_transaction_count",
            "Open transactions that InitProducerId kept, and that their new owner must commit or abort",
            measures.transactions.kept,
        )
        yield gauge(
            f"{prefix}_transactionpartitionscount",
            "Partitions that take part in open transactions",
            measures.transactions.partitions,
        )
    prefix = "kafka_server_addpartitionstotxnmanager"
    answered, answered_ms, failed = measures.verification
    time_ms = SummaryMetricFamily(f"{prefix}_verificationtimems", "Time until the coordinator answered, ms")
    time_ms.add_metric((), answered, answered_ms)
    yield time_ms
    failures = CounterMetricFamily(f"{prefix}_verificationfailure", "Partitions whose verification failed")
    failures.add_metric((), failed)
    yield failures


def shares(measures: Measures) -> Families:
    prefix = "kafka_server_sharepartitionmanager"
    if measures.shares.txn_pending is not None:
        yield gauge(
            f"{prefix}_txnpendingrecordscount",
            "Records whose acknowledgement is pending in an open transaction",
            measures.shares.txn_pending,
        )
        pending = GaugeMetricFamily(
            "odradek_share_pending_records",
            "Records that a transaction has pending in a share partition",
            labels=("group", "topic", "partition", "transactional_id"),
        )
        for group, topic, index, transactional_id, records in measures.shares.pending:
            pending.add_metric((group, topic, str(index), transactional_id or ""), records)
        yield pending
    expired = CounterMetricFamily(
        f"{prefix}_txnpendinglockexpiredcount", "Pending records that became available again because their lock expired"
    )
    expired.add_metric((), measures.shares.txn_lock_expired)
    yield expired
    if measures.shares.dead_letters:
        yield from dead_letters(measures.shares.dead_letters)


def dead_letters(measures: Sequence[DeadLetterMeasure]) -> Families:
    prefix = "kafka_server_sharegroupmetrics_deadletterqueue"
    copies = CounterMetricFamily(f"{prefix}recordcount", "Records copied into dead-letter queues", labels=("group",))
    writes = CounterMetricFamily(
        f"{prefix}totalproducerequests",
        "Attempts to write a batch of copies into a dead-letter queue",
        labels=("group",),
    )
    failed = CounterMetricFamily(
        f"{prefix}failedproducerequests", "Batches of copies that a dead-letter queue refused", labels=("group",)
    )
    uncopied = CounterMetricFamily(
        "odradek_share_uncopied_dead_letters", "Records that were archived without a copy", labels=("group",)
    )
    for each in measures:
        copies.add_metric((each.group,), each.records)
        writes.add_metric((each.group,), each.writes)
        failed.add_metric((each.group,), each.failed_writes)
        uncopied.add_metric((each.group,), each.uncopied)
    yield from (copies, writes, failed, uncopied)


def gauge(name: str, help_: str, value: float) -> Metric:
    return GaugeMetricFamily(name, help_, value=value)
