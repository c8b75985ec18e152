"""The views of the broker as a whole: the overview, the connections, and the warnings in its log."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

from odradek.broker.http.page.served import JsonValue, Query, View, ViewedBroker, order_of
from odradek.broker.http.page.transactions import transaction_counts
from odradek.protocol.errors import KafkaError
from odradek.protocol.topic_partition import INTERNAL_TOPICS
from odradek.system.processes import resident_bytes

if TYPE_CHECKING:
    from odradek.broker.coordinators.shard import Shard
    from odradek.broker.groups.core import GroupCore
    from odradek.broker.partitions.partition import Partition


async def overview(served: ViewedBroker, query: Query) -> View:
    broker, traffic = served.broker, served.traffic
    image = broker.metadata.image
    _, free_bytes = broker.log_directory.space_bytes()
    totals = await partition_totals(served)
    groups = await group_counts(served)
    transactions = await transaction_counts(served)
    return {
        "version": version("odradek"),
        "cluster_id": broker.cluster_id,
        "node_id": broker.config.node_id,
        "data_directory": str(broker.config.data_directory),
        "listeners": [f"{each.name}://{each.host}:{each.port}" for each in broker.advertised_listeners],
        "features": dict(sorted(image.features.items())),
        "now_ms": broker.clock.now_ms(),
        "started_ms": traffic.since_ms,
        "memory_bytes": resident_bytes(),
        "disk_free_bytes": free_bytes,
        "size_bytes": totals.size_bytes,
        "topics": sum(name not in INTERNAL_TOPICS for name in image.topics),
        "partitions": totals.partitions,
        "offline": [f"{topic}-{index}" for topic, index in sorted(broker.partitions.offline)],
        "connections": sum(server.connection_count for server in traffic.servers),
        "groups": groups,
        "transactions": transactions,
        # These are totals since the process started. The browser computes rates from successive totals.
        "requests_total": sum(route.requests for route in traffic.dispatcher.routes),
        "records_in_total": totals.records_in,
        "bytes_in_total": totals.bytes_in,
        "bytes_out_total": totals.bytes_out,
        "warnings": len(served.warnings),
    }


@dataclass(slots=True)
class Totals:
    """Totals for all partitions. Records and bytes in and out are counted since the process started."""

    partitions: int = 0
    size_bytes: int = 0
    records_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0

    def add(self, partition: Partition) -> None:
        if partition.is_deleted:  # deleted while other partitions were being visited
            return
        log = partition.log
        self.partitions += 1
        self.size_bytes += log.size_bytes
        self.records_in += log.log_end_offset - partition.first_end_offset
        self.bytes_in += partition.bytes_in
        self.bytes_out += partition.bytes_out


async def partition_totals(served: ViewedBroker) -> Totals:
    totals = Totals()
    await served.visit(served.broker.partitions, totals.add)
    return totals


async def group_counts(served: ViewedBroker) -> JsonValue:
    """Returns the number of groups by type, or None while a coordinator is loading."""
    broker = served.broker
    counts = {"classic": 0, "consumer": 0, "share": 0}
    if not broker.has_started("groups"):
        return counts

    def count(shard: Shard[GroupCore]) -> None:
        for each in shard.read_state(lambda core: core.list_groups((), ())):
            counts[each.group_type] = counts.get(each.group_type, 0) + 1

    try:
        await served.visit(broker.groups.shards, count)
    except KafkaError:
        return None
    return counts


def connections(served: ViewedBroker, query: Query) -> View:
    """Lists connections. `find` is a substring of the address or the client software; for `sort` and `from`, see
    `Order`."""
    part, order = query.get("find", ""), order_of(query, ("from", "software", "version", "listener", "principal"))
    infos = [info for server in served.traffic.servers for info in server.connections()]
    software = Counter(f"{info.client_software_name} {info.client_software_version}" for info in infos)
    found = [info for info in infos if part in f"{info.client_host}:{info.client_port} {info.client_software_name}"]
    rows: list[dict[str, JsonValue]] = [
        {
            "id": info.connection_id,
            "from": f"{info.client_host}:{info.client_port}",
            "listener": info.listener,
            "principal": info.principal,
            "software": info.client_software_name,
            "version": info.client_software_version,
            "told": None
            if info.advertised_address is None
            else f"{info.advertised_address[0]}:{info.advertised_address[1]}",
        }
        for info in found
    ]
    return {
        "total": len(found),
        "from": order.start,
        "software": dict(software.most_common()),
        "connections": order.visible_rows(rows),
    }


def warnings(served: ViewedBroker, query: Query) -> View:
    return {
        "warnings": [
            {"at_ms": int(each.created * 1000), "level": each.levelname, "logger": each.name, "text": each.getMessage()}
            for each in reversed(served.warnings)
        ]
    }
