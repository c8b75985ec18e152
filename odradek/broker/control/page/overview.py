"""The first view: what is served, how much passes through, and what keeps readers waiting."""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import TYPE_CHECKING

from odradek.broker.control.page.transactions import transaction_counts
from odradek.protocol.errors import KafkaError
from odradek.protocol.internal_topics import INTERNAL_TOPICS

if TYPE_CHECKING:
    from odradek.broker.control.page.json_value import JsonValue, View
    from odradek.broker.control.page.served import Served

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def overview(served: Served) -> View:
    broker, traffic = served.broker, served.traffic
    image = broker.metadata.image
    disk = os.statvfs(broker.config.data_directory)
    partitions = list(broker.partitions)
    return {
        "version": version("odradek"),
        "cluster_id": broker.cluster_id,
        "node_id": broker.config.node_id,
        "data_directory": str(broker.config.data_directory),
        "listeners": [f"{each.name}://{each.host}:{each.port}" for each in broker.advertised],
        "features": dict(sorted(image.features.items())),
        "now_ms": broker.clock.now_ms(),
        "started_ms": traffic.since_ms,
        "memory_bytes": resident_bytes(),
        "disk_free_bytes": disk.f_bavail * disk.f_frsize,
        "size_bytes": sum(each.log.size_bytes for each in partitions),
        "topics": sum(name not in INTERNAL_TOPICS for name in image.topics),
        "partitions": len(partitions),
        "offline": [f"{topic}-{index}" for topic, index in sorted(broker.partitions.offline)],
        "connections": sum(server.connection_count for server in traffic.servers),
        "groups": group_counts(served),
        "transactions": transaction_counts(served),
        # Sums since the start: a rate is the difference of two.
        "requests_total": sum(route.requests for route in traffic.dispatcher.routes),
        "records_in_total": sum(each.log.log_end_offset - each.first_end_offset for each in partitions),
        "bytes_in_total": sum(each.bytes_in for each in partitions),
        "bytes_out_total": sum(each.bytes_out for each in partitions),
        "warnings": len(served.warnings),
    }


def group_counts(served: Served) -> JsonValue:
    """By type; None while they are loaded."""
    broker = served.broker
    counts = {"classic": 0, "consumer": 0, "share": 0}
    if not broker.has_started("groups"):
        return counts
    try:
        for shard in broker.groups.shards:
            for each in shard.look(lambda core: core.list_groups((), ())):
                counts[each.group_type] = counts.get(each.group_type, 0) + 1
    except KafkaError:
        return None
    return counts


def resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as statm:
        return int(statm.read().split()[1]) * PAGE_BYTES
