"""The table of presets, which are rare states of a cluster. A preset acts on the running broker, for example with
requests, rules and the clock. It never edits files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.broker.configuration.contradictions import super_users
from odradek.broker.control.presets import bad_day, groups, producers, security, shares, streams, topics, transactions
from odradek.broker.control.presets.behaviour import BEHAVIOUR, Behaviour
from odradek.broker.control.presets.parameters import Facts, Parameters
from odradek.broker.control.presets.preset_client import MAX_TIMEOUT_MS, PresetClient
from odradek.broker.control.problems import Problem, unknown_field
from odradek.protocol.errors import KafkaError

if TYPE_CHECKING:
    from odradek.broker.control.clusters.clusters import Cluster


@dataclass(frozen=True, slots=True)
class Preset:
    """A rare state that a test can request by name.

    bring_about  the function that produces the state; its docstring describes the state to users
    defaults     default values of the parameters; they also determine the types
    """

    name: str
    bring_about: Callable[[PresetClient, Parameters], Awaitable[Facts]]
    defaults: Mapping[str, str | int]
    clients: Behaviour

    @property
    def text(self) -> str:
        return " ".join((self.bring_about.__doc__ or "").split())

    def as_json(self) -> dict[str, object]:
        known = {"correct": self.clients.correct, "wrong": self.clients.wrong or None}
        return {"name": self.name, "text": self.text, "parameters": self.defaults, **known}


TOPIC: Mapping[str, str | int] = {"topic": "orders"}
PARTITION: Mapping[str, str | int] = {**TOPIC, "partition": 0}
TXN: Mapping[str, str | int] = {"transactional_id": "t"}
GROUP: Mapping[str, str | int] = {**TOPIC, "group": "g"}

ROWS: tuple[tuple[str, Callable[[PresetClient, Parameters], Awaitable[Facts]], Mapping[str, str | int]], ...] = (
    # Transactions and producers
    ("epoch-nearly-exhausted", producers.epoch_nearly_exhausted, {**TXN, "epochs_left": 1}),
    (
        "open-transaction",
        transactions.open_transaction,
        {**PARTITION, **TXN, "records": 1, "open_records": 1, "timeout_ms": MAX_TIMEOUT_MS},
    ),
    ("dead-producer", transactions.dead_producer, {**TOPIC, **TXN, "hold": "markers"}),
    (
        "half-written-markers",
        transactions.half_written_markers,
        {**TOPIC, **TXN, "decision": "commit", "hold": "marker"},
    ),
    ("aborted-tail", transactions.aborted_tail, {**PARTITION, **TXN, "records": 1, "transactions": 3}),
    ("lone-marker", transactions.lone_marker, {**PARTITION, **TXN, "records": 1}),
    ("empty-aborted-transaction", transactions.empty_aborted_transaction, {**PARTITION, **TXN, "records": 1}),
    ("abort-across-segments", transactions.abort_across_segments, {**TOPIC, **TXN, "records": 1}),
    ("expired-producer-ids", transactions.expired_producer_ids, {}),
    ("expired-transactional-ids", transactions.expired_transactional_ids, {}),
    ("prepared-transaction", transactions.prepared_transaction, {**TOPIC, **TXN, "days": 7}),
    (
        "kept-epoch-nearly-exhausted",
        producers.kept_epoch_nearly_exhausted,
        {**TOPIC, **TXN, "days": 0, "epochs_left": 1},
    ),
    ("producer-ids-nearly-used", producers.producer_ids_nearly_used, {"ids_left": 1}),
    ("sequence-wrap", producers.sequence_wrap, {**PARTITION, "records": 2, "sequences_left": 1}),
    ("coordinator-loading", transactions.coordinator_loading, {"type": "group", "key": "g", "hold": "loading"}),
    # Groups
    ("log-start-behind-commit", groups.log_start_behind_commit, {**PARTITION, "group": "g", "records": 10}),
    (
        "log-end-before-commit",
        groups.log_end_before_commit,
        {**PARTITION, "group": "g", "records": 10, "lost": 5},
    ),
    (
        "static-twin",
        groups.static_twin,
        {**GROUP, "instance": "i", "protocol": "classic", "assignor": "range"},
    ),
    (
        "classic-rebalance",
        groups.classic_rebalance,
        {**GROUP, "state": "CompletingRebalance", "assignor": "range", "rebalance_timeout_ms": 300_000},
    ),
    ("revocation-outstanding", groups.revocation_outstanding, {**GROUP, "partitions": 1}),
    ("stale-member-epoch", groups.stale_member_epoch, {"group": "g", "other_topic": "others"}),
    # Streams groups
    ("streams-revocation-outstanding", streams.streams_revocation_outstanding, {**GROUP, "partitions": 1}),
    ("missing-source-topic", streams.missing_source_topic, GROUP),
    ("stale-topology", streams.stale_topology, {**GROUP, "epoch": 1}),
    # Share groups
    ("share-lock-limit", shares.share_lock_limit, {**GROUP, "more": 1}),
    ("last-delivery", shares.last_delivery, {**GROUP, "limit": 5}),
    ("tx-pending", shares.tx_pending, {**GROUP, **TXN, "timeout_ms": MAX_TIMEOUT_MS}),
    # Topics and logs
    ("recreated-topic", topics.recreated_topic, {**TOPIC, "partitions": 0}),
    ("more-partitions", topics.more_partitions, {**TOPIC, "more": 1}),
    ("large-batch", topics.large_batch, {**TOPIC, "size_bytes": 2 * 1024 * 1024}),
    ("compacted-hole", topics.compacted_hole, {**TOPIC, "records": 5}),
    ("throttled-client", topics.throttled_client, {"client_id": "rdkafka", "throttle_ms": 1_000, "times": 1}),
    # Permissions and logins
    ("rights-withdrawn", security.rights_withdrawn, {**TOPIC, "principal": security.ANYBODY, "operation": "WRITE"}),
    ("expiring-token", security.expiring_token, {"owner": "User:alice", "lives_ms": 60_000}),
    ("bad-day", bad_day.bad_day, {**TOPIC, **TXN, "seed": 1}),
)
PRESETS: Mapping[str, Preset] = {name: Preset(name, how, defaults, BEHAVIOUR[name]) for name, how, defaults in ROWS}


async def make_topics(cluster: Cluster, partitions: Mapping[str, int]) -> None:
    """Creates the topics that do not exist yet. Acts as a super user if the cluster has one. Raises Problem.

    partitions  number of partitions by topic name
    """
    if partitions:
        async with cluster.change():
            may_do_all = sorted(super_users(cluster.running.broker.config.super_users))
            client = PresetClient(cluster, may_do_all[0] if may_do_all else None)
            for name, count in partitions.items():
                await client.topic(name, count)


async def bring_about(cluster: Cluster, name: str, values: Mapping[str, object]) -> Facts:
    """Applies a preset and returns the facts that a test needs about the resulting state. Raises Problem."""
    preset = PRESETS.get(name)
    if preset is None:
        raise unknown_field("preset", name, PRESETS)
    parameters = Parameters(values, preset.defaults)
    known = set(cluster.faults.rules.by_name)
    try:
        async with cluster.change():
            return await preset.bring_about(PresetClient(cluster), parameters)
    except Problem:
        for rule in cluster.faults.rules.by_name.keys() - known:
            if rule.startswith(f"{name} "):
                cluster.faults.remove(rule)
        raise
    except KafkaError as error:
        raise Problem(409, f"{name}: {error.code.name}") from error
