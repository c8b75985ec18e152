"""The state of a cluster's broker as JSON, such as partitions, producers, transactions, groups, share groups and
sessions.

The field names are part of the public interface. Lists are returned in pages of at most `limit` rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from odradek.broker.control.nodes.node_view import NodeRequests
from odradek.broker.control.problems import Problem
from odradek.broker.facts import groups as group_facts
from odradek.broker.facts import shares as share_facts
from odradek.broker.facts import transactions as transaction_facts
from odradek.broker.facts.partitions import partition_facts
from odradek.broker.shares.core.state import SharePartitionKey
from odradek.control_calls.table import MAX_ROWS
from odradek.files.checkpoints import topic_id_text
from odradek.protocol.errors import KafkaError

if TYPE_CHECKING:
    from odradek.broker.broker import Broker
    from odradek.broker.control.clusters.clusters import Cluster
    from odradek.broker.facts.shares import RecordRange

Row: TypeAlias = dict[str, object]
NO_PRODUCER_ID = -1
DEAD = "Dead"  # the state that Kafka returns for a group that does not exist


def page_of(rows: Iterable[Row], query: Mapping[str, str]) -> Row:
    """Skips `skip` rows and returns at most `limit` of the remaining rows. The field `more` is true if there are more
    rows. Raises Problem."""
    numbers = {}
    for name, default, most in (("skip", 0, 2**31), ("limit", MAX_ROWS, MAX_ROWS)):
        said = query.get(name, str(default))
        if not said.isascii() or not said.isdecimal() or len(said) > 10 or int(said) > most:
            raise Problem(400, f"{name} must be a whole number from 0 to {most}", field=name)
        numbers[name] = int(said)
    skip, limit = numbers["skip"], numbers["limit"]
    found = list(islice(rows, skip, skip + limit + 1))
    return {"rows": found[:limit], "more": len(found) > limit}


def producers(cluster: Cluster) -> Iterator[Row]:
    """Yields the producer state of each partition, with a row for each producer id."""
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
    """Yields the partitions of all topics, including internal topics."""
    for name, topic in sorted(cluster.running.broker.metadata.image.topics.items()):
        for index, partition in enumerate(topic.partitions):
            yield {
                **partition_row(cluster, name, index),
                "topic_id": topic_id_text(topic.topic_id),
                "replicas": partition.replicas,
                "isr": partition.isr,
            }


def partition_row(cluster: Cluster, name: str, index: int) -> Row:
    try:
        found = partition_facts(cluster.running.broker, name, index)
    except KafkaError as error:
        return {"topic": name, "partition": index, "error": error.code.name}
    return {
        "topic": found.topic,
        "partition": found.partition,
        "leader": found.leader,
        "leader_epoch": found.leader_epoch,
        "log_start_offset": found.log_start_offset,
        "last_stable_offset": found.last_stable_offset,
        "log_end_offset": found.log_end_offset,
    }


def transactions(cluster: Cluster) -> Iterator[Row]:
    """Yields all transactional ids with their states. Raises Problem while a transaction coordinator is unavailable."""
    try:
        for each in transaction_facts.transactions(cluster.running.broker):
            yield {
                "transaction": each.transactional_id,
                "state": each.state,
                "producer_id": each.producer_id,
                "producer_epoch": each.producer_epoch,
                "timeout_ms": each.timeout_ms,
                "started_ms": each.started_ms,
                "partitions": each.partitions,
            }
    except KafkaError as error:
        raise Problem(409, f"a transaction coordinator is unavailable: {error}") from error


def transaction_row(broker: Broker, name: str) -> Row:
    """Returns the state of a transactional id. The field `state` is None if the id is unknown to its coordinator."""
    try:
        found = transaction_facts.transaction(broker, name)
    except KafkaError as error:
        return {"transaction": name, "error": error.code.name}
    if found is None:
        return {"transaction": name, "state": None, "producer_id": NO_PRODUCER_ID, "partitions": []}
    return {
        "transaction": name,
        "state": found.state,
        "producer_id": found.producer_id,
        "partitions": found.partitions,
    }


def groups(cluster: Cluster) -> Iterator[Row]:
    """Yields the groups of all types with their members. Raises Problem while a group coordinator is unavailable."""
    try:
        for each in group_facts.groups(cluster.running.broker):
            yield {
                "group": each.id,
                "type": each.type,
                "state": each.state,
                "epoch": each.epoch,
                "assignor": each.assignor,
                "members": [member._asdict() for member in each.members],
            }
    except KafkaError as error:
        raise Problem(409, f"a group coordinator is unavailable: {error}") from error


def group_row(broker: Broker, name: str) -> Row:
    """Returns a group's state and its number of members. The state is Dead if the group does not exist."""
    try:
        found = group_facts.group(broker, name)
    except KafkaError as error:
        return {"group": name, "error": error.code.name}
    if found is None:
        return {"group": name, "state": DEAD, "members": 0}
    return {"group": name, "state": found.state, "members": len(found.members)}


def share_partitions(cluster: Cluster) -> Iterator[Row]:
    """Yields the share partitions with their in-flight records.

    Share partitions that a leader has in memory come first. The others follow, with the state that the share
    coordinator has stored.
    """
    broker = cluster.running.broker
    names = {topic_id: each.name for topic_id, each in broker.metadata.image.topics_by_id.items()}
    for each in share_facts.share_partitions(broker):
        yield {
            "share_group": each.key.group_id,
            "topic": names.get(each.key.topic_id),
            "partition": each.key.partition,
            "start_offset": each.start_offset,
            "records": [
                {"first_offset": records.first_offset, "last_offset": records.last_offset, **record_state(records)}
                for records in each.ranges[:MAX_ROWS]
            ],
        }


def record_state(records: RecordRange) -> Row:
    return {"state": records.state.name, "deliveries": records.delivery_count, "member": records.member_id}


def sessions(cluster: Cluster) -> Iterator[Row]:
    """Yields the fetch sessions, and then the share sessions."""
    broker = cluster.running.broker
    names = {topic_id: each.name for topic_id, each in broker.metadata.image.topics_by_id.items()}

    def named(topic: str | bytes, index: int) -> str:
        return f"{topic if isinstance(topic, str) else names.get(topic, topic.hex())}-{index}"

    stored = [
        (node.id, session)
        for node in cluster.running_nodes
        for session in (
            node.requests.dispatcher.broker if isinstance(node.requests, NodeRequests) else broker
        ).fetch_sessions
    ]
    for node_id, session in stored:
        yield {
            "type": "fetch",
            "node": node_id,
            "id": session.session_id,
            "epoch": session.epoch,
            "created_ms": session.created_ms,
            "last_used_ms": session.last_used_ms,
            "partitions": [
                {"partition": named(*key), "fetch_offset": each.fetch_offset}
                for key, each in islice(session.partitions.items(), MAX_ROWS)
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
                {"partition": named(each.topic_id, each.partition)} for each in islice(share.partitions, MAX_ROWS)
            ],
        }


def connections(cluster: Cluster) -> Iterator[Row]:
    """Yields the open connections.

    The field `client_id` is the client id of the connection's first request. It is None before that request, or if the
    cluster does not keep requests.
    """
    exchanges = cluster.faults.exchanges
    for server, _, node in cluster.running_nodes.running_servers():
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
    """Returns the connections and unanswered requests of a client. Raises Problem if the cluster does not keep
    requests."""
    found = [each for each in cluster.faults.exchanges.clients() if each.client_id == client_id]
    in_flight = sum(each.in_flight for each in found)
    return {"client": client_id, "connections": len(found), "in_flight": in_flight, "idle": in_flight == 0}


def member(broker: Broker, group: str, name: str) -> Row:
    """Returns the member with this member id, group instance id or client id. The field `owns` is None if the member
    does not exist."""
    nobody: Row = {"member": name, "group": group, "owns": None}
    try:
        found = group_facts.group(broker, group)
    except KafkaError as error:
        return {**nobody, "error": error.code.name}
    for each in () if found is None else found.members:
        if name in (each.id, each.instance, each.client):
            return {**nobody, "id": each.id, "epoch": each.epoch, "owns": sorted(each.partitions)}
    return nobody


def share_record(broker: Broker, group: str, topic: str, index: int, offset: int) -> Row:
    """Returns a record's delivery state, from its share partition's leader.

    If no leader has the share partition in memory, the row comes from the share coordinator. The field `state` is None
    if the share coordinator has no state either, and ENDED below the start offset, where all records are acknowledged
    or archived.
    """
    nothing: Row = {"share_group": group, "topic": topic, "partition": index, "offset": offset, "state": None}
    image = broker.metadata.image.topics.get(topic)
    if image is None:
        return nothing
    found = share_facts.share_partition(broker, SharePartitionKey(group, image.topic_id, index))
    if found is None:
        return nothing
    if offset < found.start_offset:
        return {**nothing, "state": "ENDED"}
    return {**nothing, **record_state(found.at(offset))}
