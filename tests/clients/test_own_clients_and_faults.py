"""Tests that Odradek's clients retry or report a request that the broker refuses once."""

from __future__ import annotations

import pytest

from odradek.client import ClientError, NewTopic
from odradek.client.sync import Admin, Consumer
from odradek.protocol.errors import ErrorCode
from odradek.testing.sync import Cluster
from tests.clients.own_consumers import produce, values_of

SESSION_MS = 6000


def test_a_fenced_instance_id_is_reported_before_the_member_joins_again(kafka: Cluster) -> None:
    produce(kafka.bootstrap, "orders", b"a")
    with Consumer(
        "orders",
        bootstrap_servers=kafka.bootstrap,
        group_id="g",
        group_instance_id="i",
        heartbeat_interval_ms=100,
        session_timeout_ms=SESSION_MS,
    ) as consumer:
        values_of(consumer, 1)
        fenced = {"match": {"api": "Heartbeat"}, "do": {"error": "FENCED_INSTANCE_ID"}, "times": 1}
        name = kafka.fault(fenced)
        kafka.wait(fault=name, hits=1)
        joined = len(kafka.requests(api="JoinGroup"))
        with pytest.raises(ClientError) as refused:
            consumer.getmany(timeout_ms=5000)
        assert refused.value.code is ErrorCode.FENCED_INSTANCE_ID
        assert len(kafka.requests(api="JoinGroup")) == joined


@pytest.mark.parametrize("api", ["CreateTopics", "CreatePartitions", "DeleteTopics"])
def test_a_client_finds_the_controller_again_after_it_has_moved(kafka: Cluster, api: str) -> None:
    kafka.fault({"match": {"api": api}, "do": {"error": "NOT_CONTROLLER"}, "times": 2})
    with Admin(bootstrap_servers=kafka.bootstrap, retry_backoff_ms=20) as admin:
        admin.create_topics([NewTopic("orders", partitions=1)])
        admin.create_partitions({"orders": 2})
        assert len(admin.describe_topics(["orders"])["orders"].partitions) == 2
        admin.delete_topics(["orders"])
        assert admin.list_topics() == []
