"""Limits of streams groups. Kafka has no such limits. This broker needs them because a member determines the size of
the topology, and all other clients wait while the broker makes a decision about the topology."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages import streams_group_heartbeat_request as wire

MAX_TOPICS = 5_000  # maximum number of topics and subtopologies in one topology; a topic listed twice counts twice
MAX_TASKS = 20_000  # maximum number of tasks in one group, not counting standby tasks


def check_size(topology: wire.Topology) -> None:
    """Raises STREAMS_INVALID_TOPOLOGY if the topology lists too many subtopologies and topics."""
    count = sum(
        1
        + len(each.source_topics)
        + len(each.repartition_sink_topics)
        + len(each.repartition_source_topics)
        + len(each.state_changelog_topics)
        for each in topology.subtopologies
    )
    if count > MAX_TOPICS:
        what = f"The topology has {count} subtopologies and topics; this broker allows {MAX_TOPICS}."
        raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, what)


def check_task_count(task_counts: Mapping[str, int]) -> None:
    """Raises STREAMS_INVALID_TOPOLOGY if the partition counts of the topics result in too many tasks."""
    count = sum(task_counts.values())
    if count > MAX_TASKS:
        what = f"The topology has {count} tasks; this broker allows {MAX_TASKS} in a group."
        raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, what)
