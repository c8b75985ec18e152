"""The nodes of a cluster. They have different ids and ports, but share one set of logs, so nothing is replicated.

Each node has its own registration in the metadata and is a replica of every partition. As in Kafka, moving a
partition's leader writes a record to the metadata log and increases the leader epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.broker.configuration.broker_settings import BROKER_SETTINGS
from odradek.broker.control.nodes.node_view import NodeRequests, state_partition
from odradek.broker.control.problems import Problem, invalid_field, unknown_field, whole_number
from odradek.broker.fetch.replicas import Replicas
from odradek.broker.metadata.image import NO_LEADER
from odradek.broker.metadata.image import Node as Place
from odradek.broker.metadata.records import Decision
from odradek.broker.metadata.registration import UNASSIGNED, registration_records
from odradek.broker.network.addresses import client_addresses
from odradek.broker.network.listening import bind_listener
from odradek.broker.runtime.slices import work_in_slices
from odradek.broker.runtime.uuids import random_uuid
from odradek.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.topic_partition import GROUP_OFFSETS, INTERNAL_TOPICS, SHARE_GROUP_STATE, TRANSACTION_STATE

if TYPE_CHECKING:
    from odradek.broker.broker import Broker
    from odradek.broker.configuration.listeners import Listener
    from odradek.broker.metadata.cluster_metadata import Decided
    from odradek.broker.metadata.image import MetadataImage, PartitionImage
    from odradek.broker.network.connection_host import FrameReceiver, RequestReceiver
    from odradek.broker.network.server import Server
    from odradek.broker.runtime.clock import TimerHandle
    from odradek.broker.runtime.slices import Steps
    from odradek.broker.serving import ServingBroker
    from odradek.protocol.struct import Message

R = TypeVar("R")
MAX_NODES = 16
LAST_NODE_ID = 2**31 - 1
POLL_INTERVAL_S = 0.002
SESSION_MS = 9_000  # time until a killed node is fenced in the metadata; Kafka's broker.session.timeout.ms
STATE_TOPICS = {"group": GROUP_OFFSETS, "transaction": TRANSACTION_STATE, "share": SHARE_GROUP_STATE}


@dataclass(slots=True)
class NodeListener:
    """One listener of a node.

    requests  handles requests on this listener, including SASL logins, but without fault rules
    server    None while the node is stopped
    """

    listener: Listener
    requests: FrameReceiver
    server: Server | None = None


@dataclass(slots=True)
class Node:
    """A node of the cluster.

    requests        handles requests to the node, but not the SASL logins on its listeners
    node_listeners  the listeners of the node, in the order of the broker's listeners
    lost            the timer that fences the node after it has been killed
    """

    id: int
    requests: RequestReceiver
    node_listeners: list[NodeListener] = field(default_factory=list)
    lost: TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        return self.node_listeners[0].server is not None

    @property
    def listeners(self) -> list[Listener]:
        return [each.listener for each in self.node_listeners]

    def as_json(self) -> dict[str, object]:
        state, first = "running" if self.is_running else "stopped", self.node_listeners[0].listener
        return {"id": self.id, "host": first.host, "port": first.port, "state": state}


class Nodes:
    """The nodes of one running broker. If there is only one node, the node uses the broker's own servers and
    dispatcher."""

    def __init__(self, serving: ServingBroker, ids: Sequence[int], ports: dict[tuple[int, str], int]) -> None:
        """Prepares the nodes. `open` starts them.

        ids    ids of the nodes; the broker's own id is the first
        ports  the ports that were chosen for this cluster or used before a restart, by node id and listener name. Newly
               assigned ports are added.
        """
        self._serving = serving
        self._ports = ports
        self._placings = count()
        self._ids = ids
        self._by_id: dict[int, Node] = {}
        self._places = False  # whether new partitions are spread over the nodes; set when several nodes listen

    async def open(self) -> None:
        """Starts and registers the nodes and assigns partition leaders. Raises CannotStart, OSError or KafkaError."""
        serving, broker = self._serving, self._serving.broker
        first_id = broker.config.node_id
        self._replicas = Replicas(broker.metadata.image)
        for node_id in self._ids:
            node = Node(node_id, serving.dispatcher)
            if len(self._ids) > 1:
                node.requests = NodeRequests(serving, node_id, self._replicas, self)
            for listener, server in zip(broker.bound, serving.servers, strict=True):
                if node_id == first_id:
                    requests = server.requests
                    if len(self._ids) > 1:
                        requests = serving.behind_login(listener, node.requests)
                    node.node_listeners.append(NodeListener(listener, requests, server))
                else:
                    port = self._ports.get((node_id, listener.name), 0)
                    requests = serving.behind_login(listener, node.requests)
                    node.node_listeners.append(NodeListener(replace(listener, port=port), requests))
            self._by_id[node_id] = node
        self._note_ports(self._by_id[first_id])
        if len(self._ids) == 1:
            return
        for server in serving.servers:
            # otherwise clients would get their own connection's address for every node
            server.addresses = None
        for node in self:
            if node.id != first_id:
                await self._listen(node)
        self._places = True
        broker.metadata.node = broker.metadata.node._replace(
            other_ids=tuple(one for one in self._by_id if one != first_id)
        )
        records: list[Message] = []
        for node in self:
            if node.id != first_id:
                existing = broker.metadata.image.brokers.get(node.id)  # the node's registration from before a restart
                epoch = broker.metadata.image.next_offset + len(records)
                records += self._registration(node, epoch, None if existing is None else existing.rack)
        await self._commit(records)
        await self._change_leaders((topic, index, one.replicas[0]) for topic, index, one in self._partitions())

    def __iter__(self) -> Iterator[Node]:
        return iter(list(self._by_id.values()))

    def get(self, number: object, field: str = "node") -> Node:
        """Returns the node with this id. If no node has this id, raises Problem, which names `field`."""
        node = self._by_id.get(whole_number(number, field))
        if node is None:
            raise unknown_field(field, str(number), [str(each) for each in self._by_id])
        return node

    def running_servers(self) -> Iterator[tuple[Server, FrameReceiver, int]]:
        """Yields each running server, the handler of its requests without fault rules, and the id of its node."""
        for node in self:
            for each in node.node_listeners:
                if each.server is not None:
                    yield each.server, each.requests, node.id

    @property
    def running(self) -> list[Node]:
        return [node for node in self if node.is_running]

    async def close(self) -> None:
        """Stops the timers and servers that the broker does not stop itself."""
        for node in self:
            if node.lost is not None:
                node.lost.cancel()
            for each in node.node_listeners:
                if each.server is not None and each.server not in self._serving.servers:
                    await each.server.stop(0)

    async def stop(self, node: Node, *, is_clean: bool) -> None:
        """Stops a node and closes its connections. Raises Problem if the node is not running.

        is_clean  True if other nodes become leaders immediately; False if they do so only after SESSION_MS, as after a
                  kill
        """
        if not node.is_running:
            raise Problem(409, f"node {node.id} is stopped")
        stopped = [each.server for each in node.node_listeners if each.server is not None]
        for each in node.node_listeners:
            each.server = None
        for server in stopped:
            await server.stop(0)
            if server in self._serving.servers:
                self._serving.servers.remove(server)
        if is_clean:
            await self._fence(node)
        else:
            node.lost = self._serving.broker.timers.after(SESSION_MS, lambda: self._fence_later(node))

    async def start(self, node: Node) -> None:
        """Starts a stopped node on its old ports. The node becomes the leader of all partitions that have none.

        Raises Problem if the node is running, and CannotStart or OSError if it cannot listen.
        """
        if node.is_running:
            raise Problem(409, f"node {node.id} is running")
        if node.lost is not None:
            node.lost.cancel()
            node.lost = None
        await self._listen(node)
        image = self._serving.broker.metadata.image
        if image.brokers[node.id].is_fenced:
            epoch = image.brokers[node.id].broker_epoch
            await self._commit([BrokerRegistrationChangeRecord(broker_id=node.id, broker_epoch=epoch, fenced=-1)])
        await self.decide(partial(self._in_sync, node))
        await self._change_leaders(self._leaders_to_change(None, lambda: node.id))

    def is_live(self, node_id: int) -> bool:
        """Returns whether this node belongs to the cluster and is running."""
        node = self._by_id.get(node_id)
        return node is not None and node.is_running

    async def make_leaders(self, places: Sequence[tuple[str, int, int]]) -> None:
        """Changes the leaders of partitions. Each entry of `places` contains a topic, a partition and the id of its new
        leader."""
        await self._change_leaders(places)

    async def move_leader(self, topic: str, index: int, node: Node) -> None:
        """Makes the node the leader of a partition. A new leader epoch begins even if the node is already the leader.
        Raises Problem."""
        self._placed_at(topic, index)
        if not node.is_running:
            raise Problem(409, f"node {node.id} is stopped")
        await self._change_leaders([(topic, index, node.id)])

    async def put_in_rack(self, node: Node, rack: str | None) -> None:
        """Sets a node's rack, so that consumers in the same rack fetch from this node (KIP-392). Raises Problem."""
        broker = self._serving.broker
        if len(self._ids) == 1:
            raise Problem(409, "a cluster of one node has no followers")
        existing = broker.metadata.image.brokers[node.id]
        records = self._registration(node, existing.broker_epoch, rack)
        await self._commit(records[:1] if existing.is_fenced else records)
        for partition in broker.partitions:
            partition.leader_epoch_changed()  # wakes waiting fetches; they respond with the new preferred replica

    def set_follower_end(self, topic: str, index: int, node: Node, end: int | None) -> None:
        """Sets the offset up to which this follower appears to have replicated a partition. Raises Problem.

        end  None if the follower has replicated everything
        """
        self._placed_at(topic, index)
        partition = self._serving.broker.partitions.get(topic, index)
        log, key = partition.log, (topic, index, node.id)
        if end is None:
            self._replicas.end_offsets.pop(key, None)
        elif not log.log_start_offset <= end <= log.high_watermark:
            raise invalid_field("end", f"a number from {log.log_start_offset} to {log.high_watermark}, or null")
        else:
            self._replicas.end_offsets[key] = end
        partition.leader_epoch_changed()  # wakes waiting fetches

    async def truncate(self, topic: str, index: int, offset: int, node: Node | None) -> None:
        """Simulates an unclean leader election. Truncates the log to `offset` and begins a new leader epoch there.

        Raises Problem, or KafkaError with KAFKA_STORAGE_ERROR.

        node  the new leader; None to keep the current one
        """
        leader = self._placed_at(topic, index).leader if node is None else node.id
        if leader is None or not self.get(leader).is_running:
            raise Problem(409, f"{topic}-{index} has no running leader")
        broker = self._serving.broker
        if topic in INTERNAL_TOPICS:  # the coordinator would still have state from the truncated records in memory
            raise Problem(409, f"{topic} is an internal topic, which cannot be truncated")
        log = broker.partitions.get(topic, index).log
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise invalid_field("offset", f"an offset in the log, from {log.log_start_offset} to {log.log_end_offset}")
        await self._change_leaders([(topic, index, leader)], cut_at=offset)

    def _placed_at(self, topic: str, index: int) -> PartitionImage:
        image = self._serving.broker.metadata.image.topics.get(topic)
        if image is None or not 0 <= index < len(image.partitions):
            raise Problem(404, f"there is no partition {topic}-{index}")
        return image.partitions[index]

    async def move_coordinator(self, kind: str, key: str, node: Node) -> None:
        """Makes the node the coordinator of a key by moving the leader of the key's partition. Raises Problem.

        kind  group, transaction or share
        key   group id, transactional id, or share partition
        """
        if kind not in STATE_TOPICS:
            raise unknown_field("type", kind, STATE_TOPICS)
        topic, broker = STATE_TOPICS[kind], self._serving.broker
        if topic not in broker.metadata.image.topics:
            raise Problem(409, f"{topic} does not exist yet: it is created when a client first looks for a coordinator")
        await self.move_leader(topic, state_partition(broker, topic, key), node)

    async def _listen(self, node: Node) -> None:
        serving, config = self._serving, self._serving.broker.config
        addresses = client_addresses(config) if len(self._ids) == 1 else None
        with ExitStack() as undo:  # another process may have taken a port while the node was stopped
            sockets = [undo.enter_context(bind_listener(each.listener, config)) for each in node.node_listeners]
            for each, bound in zip(node.node_listeners, sockets, strict=True):
                each.listener = replace(each.listener, port=bound.getsockname()[1])
                each.server = serving.new_server(each.listener, each.requests, addresses)
                undo.callback(each.server.stop_accepting)
                await each.server.listen(bound)
            undo.pop_all()
        self._note_ports(node)

    def _note_ports(self, node: Node) -> None:
        self._ports.update({(node.id, each.name): each.port for each in node.listeners})

    def _registration(self, node: Node, epoch: int, rack: str | None) -> Sequence[Message]:
        broker = self._serving.broker
        own = broker.metadata.node
        endpoints = broker.advertised_listeners if node.id == own.node_id else node.listeners
        place = Place(node.id, own.directory_id)
        return registration_records(place, endpoints, rack=rack, incarnation_id=random_uuid(), broker_epoch=epoch)

    def _fence_later(self, node: Node) -> None:
        self._serving.broker.spawn(self._fence(node))

    async def _fence(self, node: Node) -> None:
        node.lost = None
        image = self._serving.broker.metadata.image
        if node.id in image.brokers:
            epoch = image.brokers[node.id].broker_epoch
            await self._commit([BrokerRegistrationChangeRecord(broker_id=node.id, broker_epoch=epoch, fenced=1)])
        await self._change_leaders(self._leaders_to_change(node.id, self._next_leader))
        await self.decide(partial(self._in_sync, node))

    def _leaders_to_change(self, by: int | None, leader: Callable[[], int]) -> Iterator[tuple[str, int, int] | None]:
        """Yields the partitions that the node `by` leads, each with its next leader. If `by` is None, yields the
        partitions without a leader.

        Yields None for every other partition.
        """
        for topic, index, one in self._partitions():
            yield (topic, index, leader()) if one.leader == by else None

    def _in_sync(self, node: Node, image: MetadataImage) -> Steps[Decision[None]]:
        """Decides how the in-sync replicas of other nodes' partitions change when a node has started or stopped."""
        changes: list[Message] = []
        for topic, index, one in self._partitions():
            yield
            isr = [each for each in one.isr if each != node.id] + ([node.id] if node.is_running else [])
            if one.leader not in (None, node.id) and set(isr) != set(one.isr):
                topic_id = image.topics[topic].topic_id
                changes.append(PartitionChangeRecord(partition_id=index, topic_id=topic_id, isr=isr))
        return Decision(None, tuple(changes))

    def _partitions(self) -> Iterator[tuple[str, int, Any]]:
        for topic in self._serving.broker.metadata.image.topics.values():
            for partition in topic.partitions:
                yield topic.name, partition.partition_id, partition

    def adapt_decision(self, decision: Decision[Any]) -> Decision[Any]:
        """Adapts a decision about partitions to a cluster of several nodes before it is recorded. With one node, the
        decision does not change.

        New partitions get all nodes as replicas. Their leaders are assigned round robin, unless the request assigns
        them. If the decision reassigns partitions, new leader epochs begin in their logs.
        """
        if not self._places:
            return decision
        live, moved = {node.id for node in self.running}, []
        for record in decision.records:
            # A change without in-sync replicas is a reassignment by a client; the changes that this class decides
            # always name in-sync replicas.
            if isinstance(record, PartitionChangeRecord) and record.isr is None:
                moved.append((record.topic_id, record.partition_id))
            if isinstance(record, PartitionRecord):
                first = [self._next_leader()] if len(record.replicas) == 1 else record.replicas
                ids = [node.id for node in self]
                record.replicas = [*(one for one in first if one in ids), *(one for one in ids if one not in first)]
                in_sync = [one for one in record.replicas if one in live]
                record.leader, record.isr = in_sync[0] if live else NO_LEADER, in_sync or record.replicas
                record.directories = self._directories(record.replicas)
        if moved:
            self._serving.broker.spawn(self._begin_moved_epochs(moved))
        return decision

    async def _begin_moved_epochs(self, moved: Sequence[tuple[bytes, int]]) -> None:
        await self._commit([])  # waits for the decision that moved the leaders
        topics = self._serving.broker.metadata.image.topics_by_id  # some topics may have been deleted
        await self._begin_epochs([(topics[which].name, index) for which, index in moved if which in topics])

    def _directories(self, replicas: Sequence[int]) -> list[bytes]:
        own = self._serving.broker.metadata.node
        return [own.directory_id if one == own.node_id else UNASSIGNED for one in replicas]

    def _next_leader(self) -> int:
        """Returns the id of the next running node, round robin, or NO_LEADER if no node is running."""
        live = self.running
        return live[next(self._placings) % len(live)].id if live else NO_LEADER

    async def _change_leaders(self, places: Iterable[tuple[str, int, int] | None], cut_at: int | None = None) -> None:
        """Changes the leaders of partitions and begins the new leader epochs in their logs.

        places  topic, partition and new leader of each change, read in slices while the metadata does not change; None
                for a partition that does not change
        cut_at  if not None, the logs are truncated to this offset before the new epochs begin
        """
        await self._begin_epochs(await self.decide(partial(self._decide_leaders, places)), cut_at)

    def _decide_leaders(
        self, places: Iterable[tuple[str, int, int] | None], image: MetadataImage
    ) -> Steps[Decision[Sequence[tuple[str, int]]]]:
        led: list[tuple[str, int]] = []
        changes: list[Message] = []
        for place in places:
            yield
            topic = None if place is None else image.topics.get(place[0])
            if place is None or topic is None:  # the topic has been deleted
                continue
            name, index, leader = place
            existing = topic.partitions[index]
            change = PartitionChangeRecord(
                partition_id=index,
                topic_id=topic.topic_id,
                leader=leader,
                isr=[node.id for node in self.running] or existing.isr,
            )
            new = [node.id for node in self if node.id not in existing.replicas]
            if new:  # a fork can have more nodes than its source
                change.replicas = [*existing.replicas, *new]
                change.directories = self._directories(change.replicas)
            changes.append(change)
            led.append((name, index))
        return Decision(led, tuple(changes))

    async def _begin_epochs(self, led: Sequence[tuple[str, int]], cut_at: int | None = None) -> None:
        """Begins new leader epochs in the logs of partitions, after the metadata has changed.

        cut_at  if not None, the logs are truncated to this offset first
        """
        if cut_at is None:
            await work_in_slices(self._begin_epochs_in_logs(led))
            return
        broker = self._serving.broker
        for topic, index in led:
            broker.flush_appends()
            while broker.partitions.get(topic, index).log.is_busy:
                await asyncio.sleep(POLL_INTERVAL_S)
                broker.flush_appends()
            broker.partitions.truncate(topic, index, cut_at)
            self._begin_epoch(topic, index)

    def _begin_epochs_in_logs(self, led: Sequence[tuple[str, int]]) -> Iterator[None]:
        for topic, index in led:
            yield
            if topic in self._serving.broker.metadata.image.topics:  # the topic may have been deleted in the meantime
                self._serving.broker.flush_appends()
                self._begin_epoch(topic, index)

    def _begin_epoch(self, topic: str, index: int) -> None:
        broker = self._serving.broker
        partition = broker.partitions.get(topic, index)
        partition.log.assign_leader_epoch(broker.metadata.image.topics[topic].partitions[index].leader_epoch)
        partition.leader_epoch_changed()
        if broker.has_started("shares"):  # a new leader does not inherit the acquired records of a share partition
            broker.shares.leader_epoch_changed(partition.topic_id, index)
        self._take_over(broker, topic, index)

    def _take_over(self, broker: Broker, topic: str, index: int) -> None:
        if topic == GROUP_OFFSETS and broker.has_started("groups"):
            broker.groups.shards.reload(index)
        elif topic == TRANSACTION_STATE and broker.has_started("transactions"):
            broker.transactions.shards.reload(index)
        elif topic == SHARE_GROUP_STATE and broker.has_started("share_coordinator"):
            broker.share_coordinator.shards.reload(index)

    async def _commit(self, records: Sequence[Message]) -> None:
        """Submits these records and waits until they, and all records submitted earlier, are in the metadata. Raises
        KafkaError."""
        await self.decide(lambda _: Decision(None, tuple(records)))

    async def decide(self, decide: Callable[[MetadataImage], Decided[R]]) -> R:
        """Submits a decision, waits until its records are in the metadata, and returns its result. Raises
        KafkaError."""
        broker = self._serving.broker
        done = broker.loop.create_future()
        answer = broker.metadata.submit(decide)
        answer.when_done(lambda _: None if done.done() else done.set_result(None))
        await done
        return answer.outcome()


def parse_nodes(value: object) -> int | list[int]:
    """Parses a request's `nodes` field, which contains the number of nodes or their ids. Raises Problem."""
    if not isinstance(value, list):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_NODES:
            raise invalid_field("nodes", f"a whole number from 1 to {MAX_NODES}, or a list of node ids")
        return value
    if not 1 <= len(value) <= MAX_NODES:
        raise invalid_field("nodes", f"a list of 1 to {MAX_NODES} node ids, or their number")
    ids: list[int] = []
    for index, each in enumerate(value):
        ids.append(whole_number(each, f"nodes[{index}]", 0, LAST_NODE_ID))
        if each in ids[:index]:
            raise invalid_field(f"nodes[{index}]", f"different from nodes[{ids.index(each)}], which is also {each}")
    return ids


def chosen_ids(requested: int | Sequence[int] | None, existing: Sequence[int]) -> Sequence[int]:
    """Returns the ids of all nodes of a new cluster. Raises Problem.

    requested  the number of nodes or their ids; None for the existing ids only
    existing   ids that must come first. These are the node ids of the forked cluster, or the broker's own id
    """
    if requested is None:
        return existing
    if isinstance(requested, int):
        requested = [*existing, *range(max(existing) + 1, max(existing) + 1 + requested - len(existing))][:requested]
    if list(requested[: len(existing)]) != list(existing):
        raise invalid_field(
            "nodes", f"a list that begins with the ids of the existing nodes: {', '.join(map(str, existing))}"
        )
    if max(requested) > LAST_NODE_ID:
        raise invalid_field("nodes", f"chosen so that no node id exceeds {LAST_NODE_ID}")
    return requested


def ids_of_nodes(
    nodes: int | Sequence[int] | None, settings: Mapping[str, str], source: Sequence[int] | None
) -> Sequence[int]:
    """Returns the node ids of a new cluster. Raises Problem.

    nodes     number of nodes or their ids; None for the nodes of the forked cluster, or one node if `source` is None
    settings  settings of the cluster, whose `node.id` must be the id of the first node
    source    node ids of the forked cluster; None without a fork
    """
    value = settings.get("node.id")
    if value is not None and (not value.isdecimal() or int(value) > LAST_NODE_ID):
        raise invalid_field("settings.node.id", f"a whole number from 0 to {LAST_NODE_ID}")
    if source is not None:
        ids = chosen_ids(nodes, source)
    elif nodes is None or isinstance(nodes, int):
        ids = chosen_ids(nodes, [int(value or BROKER_SETTINGS["node.id"].default or "")])
    else:
        ids = nodes
    if value is not None and int(value) != ids[0]:
        raise invalid_field("settings.node.id", f"{ids[0]}, the id of the first node")
    return ids
