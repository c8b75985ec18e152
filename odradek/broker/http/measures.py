"""Collects the metrics as plain numbers when they are requested. Runs in the event loop's thread.

Between two collections, the broker only maintains counters of requests (`odradek.broker.api.dispatch`), bytes,
connections and verifications.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from odradek.broker.facts.groups import group_facts, lag_of, positions
from odradek.broker.runtime.slices import visit_in_slices
from odradek.protocol.errors import KafkaError
from odradek.protocol.topic_partition import SHARE_GROUP_STATE

if TYPE_CHECKING:
    from odradek.broker.api.dispatch import Dispatcher, Route
    from odradek.broker.broker import Broker
    from odradek.broker.client_limits import ClientLimits
    from odradek.broker.coordinators.group_coordinator import GroupCoordinator
    from odradek.broker.coordinators.shard import Shard
    from odradek.broker.coordinators.transaction_coordinator import TransactionCoordinator
    from odradek.broker.groups.core import GroupCore
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.broker.network.admission import Admissions
    from odradek.broker.network.connection_host import LoginCounts
    from odradek.broker.network.server import Server
    from odradek.broker.partitions.partition import Partition
    from odradek.broker.runtime.loop_watch import LoopWatch
    from odradek.broker.security.quotas.metering import Metering
    from odradek.broker.shares.core.state_core import StateCore
    from odradek.broker.shares.leader.dead_letter_queues import DeadLetterCounts
    from odradek.broker.transactions.core import TransactionCore
    from odradek.broker.transactions.tables import TxnState
    from odradek.protocol.lag import GroupLag
    from odradek.protocol.messages.list_groups_response import ListedGroup

METRICS = "metrics"  # the name under which the loop watch reports this work
MAX_PENDING = 200  # maximum number of rows for share partitions and transactions; totals also include the omitted rows
MAX_LAGS = 1000  # maximum number of groups whose lag is computed
SHARE = "share"
LATE_AFTER_MS = 5 * 60 * 1000  # a transaction is late if it is this much older than transaction.max.timeout.ms


class Traffic(NamedTuple):
    """Request and connection counters, and the time when counting started."""

    dispatcher: Dispatcher[HandlerBroker]
    servers: Sequence[Server]
    since_ms: int
    limits: ClientLimits


class RequestMeasure(NamedTuple):
    """Counters of the requests of one API version. Times are totals for all requests.

    local_ms     time until requests were answered or parked
    remote_ms    time that requests spent parked
    answered_in  number of requests by duration, see `Route`
    throttle_ms  time that clients were throttled after their requests because of a quota
    """

    api: str
    version: int
    requests: int
    request_bytes: int
    local_ms: float
    remote_ms: float
    answered_in: Sequence[int]
    throttle_ms: int = 0

    @classmethod
    def of(cls, route: Route[HandlerBroker]) -> RequestMeasure:
        api = route.api_key.kafka_name
        local_ms, remote_ms = route.local_s * 1000, route.remote_s * 1000
        answered_in, throttle_ms = tuple(route.answered_in), route.throttled_ms
        return cls(
            api, route.version, route.requests, route.request_bytes, local_ms, remote_ms, answered_in, throttle_ms
        )


class ListenerMeasure(NamedTuple):
    """Counters of the connections of one listener.

    delayed     number of connections that had to wait because of the listener's connection rate, and their total
                waiting time in ms
    held_count  number of connections that were held and then closed because of their address's connection rate, and the
                total time in ms that they were held
    logins      None if the listener has no SASL
    """

    listener: str
    connections: int
    connections_made: int
    delayed: tuple[int, int] = (0, 0)
    held_count: tuple[int, int] = (0, 0)
    logins: LoginCounts | None = None


class QuotaMeasure(NamedTuple):
    """Usage of one quota by the clients that share it.

    user, client_id  None if the quota does not depend on the user or client id
    throttle_ms      total time that connections were muted
    throttled        number of times that connections were muted
    """

    key: str
    user: str | None
    client_id: str | None
    limit: float
    per_second: float
    throttle_ms: int
    throttled: int


class PartitionMeasure(NamedTuple):
    """Metrics of one partition's log.

    stable_lag  number of records between the last stable offset and the high watermark; read_committed consumers are
                waiting for these records
    records_in, bytes_in, bytes_out
                totals since this process opened the partition; transaction markers count as records, as in Kafka
    """

    topic: str
    partition: int
    size_bytes: int
    segments: int
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    stable_lag: int
    producer_ids: int
    has_late_transaction: bool
    records_in: int
    bytes_in: int
    bytes_out: int


class LagMeasure(NamedTuple):
    """The lag of one group, computed the same way as on the page and in `odradek groups` (`odradek.protocol.lag`)."""

    group: str
    lag: GroupLag


class GroupMeasure(NamedTuple):
    """Metrics of all groups.

    offsets     number of committed offsets of groups of all types
    rebalances  number of rebalances by group type; see `GroupCore.rebalances`
    counts      other counts, by their names in `groups.common.outcome.COUNTED`; see `GroupCore.counts`
    lags        lags of the first `MAX_LAGS` groups, except share groups, which have no lag, and groups that have
                neither a committed offset nor an assigned partition
    left_out    number of groups after the first `MAX_LAGS`, whose lag is not computed
    """

    by_type_and_state: Mapping[tuple[str, str], int]
    offsets: int
    rebalances: Mapping[str, int]
    counts: Mapping[str, int]
    lags: Sequence[LagMeasure] = ()
    left_out: int = 0


class TransactionMeasure(NamedTuple):
    """Metrics of all transactional ids.

    ids_by_state      number of ids in each state
    open_time_max_ms  age of the oldest open transaction
    kept              number of open transactions that InitProducerId kept and whose owner must commit or abort them
                      (KIP-939)
    partitions        number of partitions in open transactions (KIP-1289)
    """

    ids_by_state: Mapping[str, int]
    open_time_max_ms: int
    kept: int
    partitions: int


class PendingMeasure(NamedTuple):
    """The number of records whose acknowledgement is pending in one transaction and one share partition (KIP-1289).

    transactional_id  None if the stored records do not contain the id
    """

    group: str
    topic: str
    partition: int
    transactional_id: str | None
    records: int


class DeadLetterMeasure(NamedTuple):
    """Counters of one share group's dead letters since the process started; see `DeadLetterCounts`."""

    group: str
    records: int
    writes: int
    failed_writes: int
    uncopied: int


class ShareMeasure(NamedTuple):
    """Measures of acknowledgements in transactions (KIP-1289), and of dead-letter queues (KIP-1191).

    txn_pending       number of records whose acknowledgement is waiting for a transaction to end, according to the
                      share coordinator; None if the coordinator is not loaded
    txn_lock_expired  number of pending records that have become available again since the process started, because
                      their lock expired
    pending           pending records by share partition and transaction; at most `MAX_PENDING` rows
    dead_letters      one row for each group that has had dead letters
    """

    txn_pending: int | None
    txn_lock_expired: int
    pending: Sequence[PendingMeasure] = ()
    dead_letters: Sequence[DeadLetterMeasure] = ()


class DiskMeasure(NamedTuple):
    """Metrics of the disk.

    sync_ms    total duration of all partitions' fdatasyncs
    synced_in  number of fdatasyncs by duration, see `LogSyncs`
    total_bytes, usable_bytes
               size and free space of the file system that contains the data directory
    """

    sync_ms: float
    synced_in: Sequence[int]
    total_bytes: int
    usable_bytes: int


class BlockingMeasure(NamedTuple):
    """Statistics of one kind of work that blocked the event loop for longer than `loop_watch.LONG_S`: the number of
    times, the total duration and the longest duration."""

    name: str
    occurrences: int
    total_ms: float
    max_ms: float


class LoopMeasure(NamedTuple):
    """Metrics of the event loop.

    late_ms   total delay of the loop's ticks
    late_by   number of ticks by delay, see `LoopWatch`
    blocking  the kinds of work that blocked the loop
    """

    late_ms: float
    late_by: Sequence[int]
    blocking: Sequence[BlockingMeasure] = ()


class VerificationMeasure(NamedTuple):
    answered: int
    answered_ms: int
    failed: int


@dataclass(frozen=True, slots=True)
class Measures:
    requests: Sequence[RequestMeasure]
    errors: Mapping[tuple[str, str], int]  # number of requests that were refused as a whole, by API and error
    listeners: Sequence[ListenerMeasure]
    quotas: Sequence[QuotaMeasure]
    partitions: Sequence[PartitionMeasure]
    offline_partitions: int
    groups: GroupMeasure | None  # None if there is no coordinator, or while it is loading
    transactions: TransactionMeasure | None  # None if there is no coordinator, or while it is loading
    verification: VerificationMeasure
    shares: ShareMeasure
    disk: DiskMeasure
    loop: LoopMeasure


async def measure(broker: Broker, traffic: Traffic) -> Measures:
    """Collects all metrics.

    Clients are served in the meantime, so the metrics do not all reflect the same moment, and may include deleted
    objects.
    """
    now_ms = broker.clock.now_ms()
    late_before_ms = now_ms - broker.config.transaction_max_timeout_ms - LATE_AFTER_MS
    partitions = await partition_measures(broker, late_before_ms)
    groups = broker.groups if broker.has_started("groups") else None
    transactions = broker.transactions if broker.has_started("transactions") else None
    verifier = broker.verifier if broker.has_started("verifier") else None
    dispatcher = traffic.dispatcher
    of_groups = None if groups is None else await group_measure(groups, broker)
    of_transactions = None if transactions is None else await transaction_measure(transactions, now_ms, broker.watch)
    return Measures(
        requests=[RequestMeasure.of(route) for route in dispatcher.routes],
        errors={(key.kafka_name, code.name): n for (key, code), n in dispatcher.errors.items()},
        listeners=[listener_measure(server, traffic.limits.admissions) for server in traffic.servers],
        quotas=quota_measures(traffic.limits.metering, now_ms),
        partitions=partitions,
        offline_partitions=len(broker.partitions.offline),
        groups=of_groups,
        transactions=of_transactions,
        verification=VerificationMeasure(0, 0, 0)
        if verifier is None
        else VerificationMeasure(verifier.answered, verifier.answered_ms, verifier.failed),
        disk=DiskMeasure(
            broker.syncs.time_s * 1000, tuple(broker.syncs.durations), *broker.log_directory.space_bytes()
        ),
        loop=loop_measure(broker.watch),
        shares=await share_measure(broker),
    )


def loop_measure(watch: LoopWatch) -> LoopMeasure:
    blocking = [
        BlockingMeasure(name, of.count, of.total_s * 1000, of.max_s * 1000) for name, of in watch.blocking.items()
    ]
    return LoopMeasure(watch.late_s * 1000, tuple(watch.tick_delays), blocking)


def listener_measure(server: Server, admissions: Admissions) -> ListenerMeasure:
    name = server.listener_name
    delayed, held = admissions.delayed_at[name], admissions.held_at[name]
    return ListenerMeasure(
        name,
        server.connection_count,
        server.connections_made,
        (delayed.connections, delayed.time_ms),
        (held.connections, held.time_ms),
        server.requests.logins,
    )


def quota_measures(metering: Metering | None, now_ms: int) -> list[QuotaMeasure]:
    if metering is None:
        return []
    return [
        QuotaMeasure(each.key, *each.sharers, each.limit, each.per_second, each.throttle_ms, each.throttled)
        for each in metering.usage(now_ms)
    ]


async def partition_measures(broker: Broker, late_before_ms: int) -> list[PartitionMeasure]:
    measured: list[PartitionMeasure] = []

    def add(partition: Partition) -> None:
        if not partition.is_deleted:
            measured.append(partition_measure(partition, late_before_ms))

    await visit_in_slices(broker.partitions, add, broker.watch, METRICS)
    return measured


def partition_measure(partition: Partition, late_before_ms: int) -> PartitionMeasure:
    log = partition.log
    producers = log.producers()
    open_ = [entry for entry in producers if entry.current_txn_first_offset is not None]
    oldest = min(open_, key=lambda entry: entry.current_txn_first_offset or 0, default=None)
    return PartitionMeasure(
        topic=partition.topic,
        partition=partition.index,
        size_bytes=log.size_bytes,
        segments=len(log.segments),
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        last_stable_offset=log.last_stable_offset,
        stable_lag=log.high_watermark - log.last_stable_offset,
        producer_ids=len(producers),
        has_late_transaction=oldest is not None and oldest.last_timestamp < late_before_ms,
        records_in=log.log_end_offset - partition.first_end_offset,
        bytes_in=partition.bytes_in,
        bytes_out=partition.bytes_out,
    )


async def group_measure(groups: GroupCoordinator, broker: Broker) -> GroupMeasure | None:
    states: Counter[tuple[str, str]] = Counter()
    rebalances: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    offsets = 0
    found: list[tuple[Shard[GroupCore], ListedGroup]] = []
    lags: list[LagMeasure] = []

    def add(shard: Shard[GroupCore]) -> None:
        nonlocal offsets
        listed = shard.read_state(lambda core: core.list_groups((), ()))
        states.update((each.group_type, each.group_state) for each in listed)
        offsets += shard.read_state(lambda core: core.offset_count)
        rebalances.update(shard.read_state(lambda core: core.rebalances))
        counts.update(shard.read_state(lambda core: core.counts))
        found.extend((shard, each) for each in listed if each.group_type != SHARE)

    def add_lag(place: tuple[Shard[GroupCore], ListedGroup]) -> None:
        shard, listed = place
        of = shard.read_state(lambda core: positions(core, group_facts(listed, core), broker))
        if of:
            lags.append(LagMeasure(listed.group_id, lag_of(of)))

    try:
        await visit_in_slices(groups.shards, add, broker.watch, METRICS)
        await visit_in_slices(found[:MAX_LAGS], add_lag, broker.watch, METRICS)
    except KafkaError:  # the coordinator is loading
        return None
    return GroupMeasure(states, offsets, rebalances, counts, lags, max(0, len(found) - MAX_LAGS))


async def transaction_measure(
    transactions: TransactionCoordinator, now_ms: int, watch: LoopWatch
) -> TransactionMeasure | None:
    states: Counter[TxnState] = Counter()
    open_time_max_ms = kept = partitions = 0

    def add(shard: Shard[TransactionCore]) -> None:
        nonlocal open_time_max_ms, kept, partitions
        states.update(shard.read_state(lambda core: core.state_counts()))
        open_time_max_ms = max(open_time_max_ms, shard.read_state(lambda core: core.open_time_max_ms(now_ms)))
        kept += shard.read_state(lambda core: core.kept_count)
        partitions += shard.read_state(lambda core: core.open_partition_count)

    try:
        await visit_in_slices(transactions.shards, add, watch, METRICS)
    except KafkaError:  # the coordinator is loading
        return None
    by_state = {state.kafka_name: count for state, count in states.items()}
    return TransactionMeasure(by_state, open_time_max_ms, kept, partitions)


async def share_measure(broker: Broker) -> ShareMeasure:
    measure = await pending_measure(broker)
    if not broker.has_started("shares"):
        return measure
    return measure._replace(dead_letters=dead_letter_rows(broker.shares.dead_letters.counts))


def dead_letter_rows(counts: Mapping[str, DeadLetterCounts]) -> list[DeadLetterMeasure]:
    return [
        DeadLetterMeasure(group, each.records, each.writes, each.failed_writes, each.uncopied)
        for group, each in counts.items()
    ]


async def pending_measure(broker: Broker) -> ShareMeasure:
    expired = broker.shares.lock_expired_count if broker.has_started("shares") else 0
    if SHARE_GROUP_STATE not in broker.metadata.image.topics:
        return ShareMeasure(0, expired)
    if not broker.has_started("share_coordinator"):
        return ShareMeasure(None, expired)  # the topic exists, but its coordinator has not started
    names = {topic_id: each.name for topic_id, each in broker.metadata.image.topics_by_id.items()}
    total = 0
    rows: list[PendingMeasure] = []

    def add(shard: Shard[StateCore]) -> None:
        nonlocal total
        total += shard.read_state(lambda core: core.pending_count)
        rows.extend(islice(shard.read_state(lambda core: pending_rows(core, names)), max(0, MAX_PENDING - len(rows))))

    try:
        await visit_in_slices(broker.share_coordinator.shards, add, broker.watch, METRICS)
    except KafkaError:  # the coordinator is loading
        return ShareMeasure(None, expired)
    return ShareMeasure(total, expired, rows)


def pending_rows(core: StateCore, names: Mapping[bytes, str]) -> Iterator[PendingMeasure]:
    for key in core.pending_keys:
        topic = names.get(key.topic_id)
        for each in () if topic is None else core.pending_in(key):
            yield PendingMeasure(
                key.group_id, topic or "", key.partition, each.transaction.transactional_id, each.record_count
            )
