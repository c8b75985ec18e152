"""Tests that Odradek's own clients support the additions in Kafka 4.4: the check of the cluster and node (KIP-1242) and
offsets by topic id (KIP-1319). Source: docs/spec/kafka-4.4.md#s1-2 and #s5-2."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.client import Consumer, Producer, TopicPartition
from odradek.client.common.errors import RetriableError
from odradek.client.network.cluster import Cluster
from odradek.client.network.connection import Connection, ExpectedBroker
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.testing.sync import Odradek
from tests.clients.admin import create_topic
from tests.support.broker_process import BrokerProcess
from tests.support.reserved_port import ReservedPort

CLIENT_ID = "own"


async def opened(address: str, expected: ExpectedBroker | None) -> Connection:
    host, _, port = address.rpartition(":")
    return await Connection.open(host, int(port), client_id=CLIENT_ID, request_timeout_ms=10_000, expected=expected)


async def test_a_connection_that_leads_to_another_broker_is_refused(odradek: Odradek) -> None:
    with odradek.cluster() as kafka:
        plain = await opened(kafka.bootstrap, None)
        metadata = await plain.ask(MetadataRequest(topics=[]), MetadataResponse)
        (node,), cluster_id = metadata.brokers, metadata.cluster_id
        assert cluster_id is not None
        right = await opened(kafka.bootstrap, ExpectedBroker(cluster_id, node.node_id))
        for wrong in (ExpectedBroker(cluster_id, node.node_id + 1), ExpectedBroker("another", node.node_id)):
            with pytest.raises(RetriableError) as refused:
                await opened(kafka.bootstrap, wrong)
            assert refused.value.code is ErrorCode.REBOOTSTRAP_REQUIRED
        for connection in (plain, right):
            connection.close()
            await connection.closed()


async def test_a_client_meets_another_cluster_at_the_address_of_the_old_one(tmp_path: Path) -> None:
    """The client connects to its bootstrap servers again and so finds the new cluster."""
    reserved = ReservedPort()
    cluster = Cluster(f"localhost:{reserved.number}", client_id=CLIENT_ID)
    ids: list[tuple[str | None, list[int]]] = []
    for name in ("old", "new"):
        with BrokerProcess(tmp_path / name, {"node.id": 1 + len(ids)}, port=reserved.number):
            if not ids:
                await cluster.start()
                before = await cluster.connection(1)
            else:
                await before.closed()
                with pytest.raises(RetriableError) as refused:
                    await cluster.connection(1)
                assert refused.value.code is ErrorCode.REBOOTSTRAP_REQUIRED
                await cluster.refresh()
            ids.append((cluster.cluster_id, cluster.node_ids))
    await cluster.close()
    assert ids[0][0] != ids[1][0]
    assert [nodes for _, nodes in ids] == [[1], [2]]


@pytest.mark.parametrize(("release", "version"), [("4.4", 6), ("4.3", 5), ("4.0-tv1", 4)])
async def test_offsets_of_a_transaction_are_committed_by_topic_ids_where_the_broker_takes_them(
    odradek: Odradek, release: str, version: int
) -> None:
    with odradek.cluster(emulate=release) as kafka:
        create_topic(kafka.bootstrap, "in")
        async with Producer(bootstrap_servers=kafka.bootstrap) as producer:
            await (await producer.send("in", b"one"))
        place = TopicPartition("in", 0)
        async with Producer(bootstrap_servers=kafka.bootstrap, transactional_id="t") as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction({place: 1}, "g")
            await producer.commit_transaction()
        requests = kafka.requests(api="TxnOffsetCommit")
        assert [each["version"] for each in requests] == [version]
        async with Consumer(bootstrap_servers=kafka.bootstrap, group_id="g", enable_auto_commit=False) as consumer:
            consumer.assign([place])
            assert await consumer.position(place) == 1


async def test_a_client_learns_the_features_of_a_broker_that_knows_no_newest_version(odradek: Odradek) -> None:
    """A broker that refuses the newest version of ApiVersions returns the versions that it supports, and the client
    continues with one of them (docs/spec/kafka-4.4.md#s1-1)."""
    with odradek.cluster(emulate="4.0") as kafka:
        connection = await opened(kafka.bootstrap, None)
        assert connection.versions.has_feature("transaction.version")
        connection.close()
        await connection.closed()
