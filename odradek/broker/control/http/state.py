"""State of a cluster's broker as JSON: partitions, producers, transactions, groups, share groups, sessions and so on.

Field names are part of the interface. Lists are answered in pages: what is beyond `limit` is left to the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from odradek.broker.control.nodes.node_view import NodeRequests
from odradek.broker.control.problems import Problem, only
from odradek.broker.http.page.groups import described
from odradek.broker.http.page.shares import stored_ranges, stored_state, stored_states
from odradek.broker.shares.core.state import SharePartitionKey
from odradek.files.checkpoints import topic_id_text
from odradek.protocol.errors import KafkaError

if TYPE_CHECKING:
    from odradek.broker.broker import Broker
    from odradek.broker.control.clusters.clusters import Cluster
    from odradek.broker.shares.core.state_core import StateCore

Row: TypeAlias = dict[str, object]
MOST_ROWS = 1000


def page_of(rows: Iterable[Row], query: Mapping[str, str]) -> Row:
    """Returns `limit` rows behind the first `skip`, and `more`: whether there are others. Raises Problem."""
    only(query, frozenset({"skip", "limit"}))
    numbers = {}
    for name, default, most in (("skip", 0, 2**31), ("limit", MOST_ROWS, MOST_ROWS)):
        said = query.get(name, str(default))
        if not said.isascii() or not said.isdecimal() or len(said) > 10 or int(said) > most:
            raise Problem(400, f"{name} must be a number up to {most}", field=name)
        numbers[name] = int(said)
    skip, limit = numbers["skip"], numbers["limit"]
    found = list(islice(rows, skip, skip + limit + 1))
    return {"rows": found[:limit], "more": len(found) > limit}


def producers(cluster: Cluster) -> Iterator[Row]:
    """Yields what each partition knows of each producer id."""
    for partition in sorted(cluster.running.broker.partitions, key=lambda each: (each.topic, each.index)):
        for entry in partition.log.producers():
            yield {
                "topic": partition.topic,
                "partition": partition.index,
                "producer_id": entry.producer_id,
                "producer_epoch": entry.producer_epoch,
                "coordinator_epoch": entry.coordinator_epoch,
                "last_sequence": entry.last_sequence,
                "last_offset": entry.last_data_offset,
                "last_timestamp_ms": entry.last_timestamp,
                "open_from_offset": entry.current_txn_first_offset,
            }


def partitions(cluster: Cluster) -> Iterator[Row]:
    """Yields the partitions of all topics, those of the broker's own too."""
    for name, topic in sorted(cluster.running.broker.metadata.image.topics.items()):
        for index, partition in enumerate(topic.partitions):
            yield {
                **topic_facts(cluster, name, index),
                "topic_id": topic_id_text(topic.topic_id),
                "replicas": partition.replicas,
                "isr": partition.isr,
            }


def topic_facts(cluster: Cluster, name: str, index: int) -> Row:
    try:
        broker = cluster.running.broker
        log = broker.partitions.get(name, index).log
        placed = broker.metadata.image.topics[name].partitions[index]
    except KafkaError as error:
        return {"topic": name, "partition": index, "error": error.code.name}
    return {
        "topic": name,
        "partition": index,
        "leader": placed.leader,
        "leader_epoch": placed.leader_epoch,
        "log_start_offset": log.log_start_offset,
        "last_stable_offset": log.last_stable_offset,
        "log_end_offset": log.log_end_offset,
    }


def transactions(cluster: Cluster) -> Iterator[Row]:
    """Yields transactional ids as their coordinators describe them. Raises Problem while one of these is not there."""
    broker = cluster.running.broker
    for shard in broker.transactions.shards if broker.has_started("transactions") else ():
        try:
            core = shard.look(lambda core: core)
        except KafkaError as error:
            raise Problem(409, f"a transaction coordinator does not answer: {error}") from error
        for txn in core.entries():  # one after the other, as a page asks for them
            each = core.describe(txn.transactional_id)
            yield {
                "transaction": each.transactional_id,
                "state": each.transaction_state,
                "producer_id": each.producer_id,
                "producer_epoch": each.producer_epoch,
                "timeout_ms": each.transaction_timeout_ms,
                "started_ms": each.transaction_start_time_ms if each.transaction_start_time_ms >= 0 else None,
                "partitions": [f"{topic.topic}-{index}" for topic in each.topics for index in topic.partitions],
            }


def groups(cluster: Cluster) -> Iterator[Row]:
    """Yields groups of every type with their members. Raises Problem while a coordinator is not there."""
    broker = cluster.running.broker
    for shard in broker.groups.shards if broker.has_started("groups") else ():
        try:
            listed = shard.look(lambda core: core.list_groups((), ()))
            for each in listed:
                told = shard.look(partial(described, name=each.group_id, kind=each.group_type))
                yield {"group": each.group_id, "type": each.group_type, "state": each.group_state, **told}
        except KafkaError as error:
            raise Problem(409, f"a group coordinator does not answer: {error}") from error


def share_partitions(cluster: Cluster) -> Iterator[Row]:
    """Yields share partitions with the records in flight: as their leader has them in memory, then, as the share
    coordinator stores them, those of which no leader has anything in memory."""
    broker = cluster.running.broker
    names = {topic_id: each.name for topic_id, each in broker.metadata.image.topics_by_id.items()}
    in_memory: set[SharePartitionKey] = set()
    for live in broker.shares.live if broker.has_started("shares") else ():
        if not live.is_loaded:
            continue
        key, flight = live.key, live.core.flight
        in_memory.add(key)
        yield {
            "share_group": key.group_id,
            "topic": names.get(key.topic_id),
            "partition": key.partition,
            "start_offset": flight.start_offset,
            "records": [
                {
                    "first_offset": span.first_offset,
                    "last_offset": span.last_offset,
                    "state": span.state.name,
                    "deliveries": span.delivery_count,
                    "member": span.member_id or None,
                }
                for span in islice(flight.spans(), MOST_ROWS)
            ],
        }
    stored_keys = [key for shard in stored_states(broker) if shard.is_loaded for key in shard.look(keys_of)]
    for key in stored_keys:
        stored = None if key in in_memory else stored_state(broker, key)
        if stored is not None:
            yield {
                "share_group": key.group_id,
                "topic": names.get(key.topic_id),
                "partition": key.partition,
                "start_offset": stored.start_offset,
                "records": [
                    {
                        "first_offset": each.first_offset,
                        "last_offset": each.last_offset,
                        "state": each.state.name,
                        "deliveries": each.delivery_count,
                        "member": each.member_id or None,
                    }
                    for each in islice(stored_ranges(stored), MOST_ROWS)
                ],
            }


def keys_of(core: StateCore) -> Sequence[SharePartitionKey]:
    return core.keys


def sessions(cluster: Cluster) -> Iterator[Row]:
    """Yields fetch sessions, then share sessions."""
    broker = cluster.running.broker
    names = {topic_id: each.name for topic_id, each in broker.metadata.image.topics_by_id.items()}

    def named(topic: str | bytes, index: int) -> str:
        return f"{topic if isinstance(topic, str) else names.get(topic, topic.hex())}-{index}"

    kept = [
        (node.id, session)
        for node in cluster.running_nodes
        for session in (
            node.requests.dispatcher.broker if isinstance(node.requests, NodeRequests) else broker
        ).fetch_sessions
    ]
    for node_id, session in kept:
        yield {
            "type": "fetch",
            "node": node_id,
            "id": session.session_id,
            "epoch": session.epoch,
            "created_ms": session.created_ms,
            "last_used_ms": session.last_used_ms,
            "partitions": [
                {"partition": named(*key), "fetch_offset": each.fetch_offset}
                for key, each in islice(session.partitions.items(), MOST_ROWS)
            ],
        }
    if not broker.has_started("shares"):
        return
    for share in list(broker.shares.sessions):
        yield {
            "type": "share",
            "group": share.key.group_id,
            "member": share.key.member_id,
            "epoch": share.epoch,
            "partitions": [
                {"partition": named(each.topic_id, each.partition)} for each in islice(share.partitions, MOST_ROWS)
            ],
        }


def connections(cluster: Cluster) -> Iterator[Row]:
    """Yields open connections; `client_id` is that of the first request; None before it, and where no requests are
    kept."""
    exchanges = cluster.faults.exchanges
    for server, _, node in cluster.running_nodes.doors():
        for info in server.connections():
            client = exchanges.client(info)
            yield {
                "id": info.connection_id,
                "node": node,
                "listener": info.listener,
                "host": info.client_host,
                "port": info.client_port,
                "principal": info.principal,
                "client_id": None if client is None else client.client_id,
                "software": info.client_software_name,
                "software_version": info.client_software_version,
                "in_flight": client.in_flight if client is not None else 0 if exchanges.are_kept else None,
            }


LISTS: Mapping[str, Callable[[Cluster], Iterator[Row]]] = {
    "partitions": partitions,
    "producers": producers,
    "transactions": transactions,
    "groups": groups,
    "share_partitions": share_partitions,
    "sessions": sessions,
    "connections": connections,
}


def client(cluster: Cluster, client_id: str) -> Row:
    """Raises Problem."""
    found = [each for each in cluster.faults.exchanges.clients() if each.client_id == client_id]
    in_flight = sum(each.in_flight for each in found)
    return {"client": client_id, "connections": len(found), "in_flight": in_flight, "idle": in_flight == 0}


def member(broker: Broker, group: str, name: str) -> Row:
    """Shows the member with this member id, group instance id or client id; `owns` is None where there is none."""
    nobody: Row = {"member": name, "group": group, "owns": None}
    if not broker.has_started("groups"):
        return nobody
    try:
        shard = broker.groups.shard_for(group)
        kinds = [
            each.group_type for each in shard.look(lambda core: core.list_groups((), ())) if each.group_id == group
        ]
        if not kinds:
            return nobody
        members = shard.look(lambda core: described(core, group, kinds[0]))["members"]
    except KafkaError as error:
        return {**nobody, "error": error.code.name}
    for each in members if isinstance(members, list) else ():
        if name in (each["id"], each["instance"], each["client"]):
            return {**nobody, "id": each["id"], "epoch": each["epoch"], "owns": sorted(each["partitions"])}
    return nobody


def share_record(broker: Broker, group: str, topic: str, index: int, offset: int) -> Row:
    """Shows a record as the leader of its share partition has it, or, if no leader has the share partition in memory,
    as the share coordinator stores it.

    `state` is None if neither has any state, and ENDED before the start offset: acknowledged or archived.
    """
    nothing: Row = {"share_group": group, "topic": topic, "partition": index, "offset": offset, "state": None}
    image = broker.metadata.image.topics.get(topic)
    if image is None:
        return nothing
    for live in broker.shares.live if broker.has_started("shares") else ():
        key = live.key
        if (key.group_id, key.topic_id, key.partition) != (group, image.topic_id, index) or not live.is_loaded:
            continue
        flight = live.core.flight
        if offset < flight.start_offset:
            return {**nothing, "state": "ENDED"}
        for span in flight.spans():
            if span.first_offset <= offset <= span.last_offset:
                who = span.member_id or None
                return {**nothing, "state": span.state.name, "deliveries": span.delivery_count, "member": who}
        return {**nothing, "state": "AVAILABLE", "deliveries": 0, "member": None}
    stored = stored_state(broker, SharePartitionKey(group, image.topic_id, index))
    if stored is None:
        return nothing
    if offset < stored.start_offset:
        return {**nothing, "state": "ENDED"}
    for each in stored_ranges(stored):
        if each.first_offset <= offset <= each.last_offset:
            who = each.member_id or None
            return {**nothing, "state": each.state.name, "deliveries": each.delivery_count, "member": who}
    return {**nothing, "state": "AVAILABLE", "deliveries": 0, "member": None}
