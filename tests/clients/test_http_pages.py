"""Tests the HTTP pages of a running broker."""

import json
import socket
from http.client import HTTPConnection
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.cimpl import TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from odradek.system.processes import resident_bytes
from tests.clients.admin import create_topic
from tests.support.broker_process import IS_KAFKA, BrokerProcess

pytestmark = pytest.mark.skipif(IS_KAFKA, reason="Kafka has no such pages")


def get(broker: BrokerProcess, path: str, *, at: str = "127.0.0.1", host: str | None = None) -> tuple[int, str]:
    """Requests a page and returns the status and the body.

    host  the Host header of the request
    """
    connection = HTTPConnection(at, broker.ready["http_port"], timeout=30)
    try:
        connection.request("GET", path, headers={} if host is None else {"Host": host})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def metrics(broker: BrokerProcess) -> dict[tuple[str, ...], float]:
    status, text = get(broker, "/metrics")
    assert status == 200
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_an_open_transaction_shows_in_the_metrics_until_it_is_committed(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        assert isinstance(broker, BrokerProcess)
        topic = create_topic(broker.bootstrap, "ledger")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "pay"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, b"1")
        producer.flush(30)
        open_ = metrics(broker)
        producer.commit_transaction(30)
        ended = metrics(broker)
    lag = ("kafka_cluster_partition_laststableoffsetlag", "0", topic)
    ids = "kafka_server_transaction_coordinator_metrics_transactional_id_count"
    assert (open_[lag], ended[lag]) == (1, 0)
    assert (open_[ids, "Ongoing"], ended[ids, "CompleteCommit"]) == (1, 1)
    end_txn = [
        value for key, value in ended.items() if key[:2] == ("kafka_network_requestmetrics_requests_total", "EndTxn")
    ]
    assert end_txn == [1]
    assert ended["kafka_server_socket_server_metrics_connection_creation_total", "PLAINTEXT"] > 0
    assert (ended.get(("process_resident_memory_bytes",), 0) > 0) == (resident_bytes() is not None)


def test_metrics_count_the_traffic_of_topics_and_the_offsets_of_groups(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        assert isinstance(broker, BrokerProcess)
        topic = create_topic(broker.bootstrap, "ledger")
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for value in (b"1", b"2", b"3"):
            producer.produce(topic, value)
        assert producer.flush(30) == 0
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, 0, 0)])
        read = [consumer.poll(30) for _ in range(3)]
        assert all(message is not None and message.error() is None for message in read)
        consumer.commit(asynchronous=False)
        consumer.close()
        found = metrics(broker)
    prefix = "kafka_server_brokertopicmetrics"
    assert found[f"{prefix}_messagesin_total", topic] == 3
    assert found[f"{prefix}_bytesout_total", topic] >= found[f"{prefix}_bytesin_total", topic] > 3 * 6
    assert found["kafka_coordinator_group_groupmetadatamanager_numgroupsempty",] == 1
    assert found["kafka_coordinator_group_groupmetadatamanager_numoffsets",] == 1
    assert found["kafka_server_group_coordinator_metrics_offset_count",] == 1
    assert found["kafka_server_group_coordinator_metrics_classic_group_count", "Empty"] == 1
    assert found["kafka_server_group_coordinator_metrics_classic_group_count", "Stable"] == 0
    produced = [
        key for key in found if key[0] == "kafka_network_requestmetrics_totaltimems_bucket" and "Produce" in key
    ]
    assert max(found[key] for key in produced) >= 1


def test_health_and_readiness_are_served_and_unknown_paths_are_not_found(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        assert isinstance(broker, BrokerProcess)
        assert json.loads(get(broker, "/healthz")[1]) == {"status": "ok", "offline_partitions": []}
        assert json.loads(get(broker, "/readyz")[1]) == {"ready": True, "loading": [], "offline_partitions": []}
        assert "<title>Odradek</title>" in get(broker, "/")[1]
        assert get(broker, "/shutdown")[0] == 404


def test_a_configured_port_that_is_taken_keeps_the_broker_from_starting(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        broker = BrokerProcess(tmp_path / "data", {"odradek.http.port": port})
        with pytest.raises(RuntimeError):
            broker.start()
    assert f"port {port} for the page, metrics and health is taken" in broker.log_text()
    assert "choose another port with --http-port" in broker.log_text()
    assert not (tmp_path / "data").exists()  # The broker opens the port before it uses the directory.


def test_a_configured_port_is_used_and_minus_one_opens_no_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    with BrokerProcess(tmp_path / "one", {"odradek.http.port": port}) as broker:
        assert isinstance(broker, BrokerProcess)
        assert broker.ready["http_port"] == port
        assert get(broker, "/healthz")[0] == 200
    with BrokerProcess(tmp_path / "two", {"odradek.http.port": -1}) as broker:
        assert isinstance(broker, BrokerProcess)
        assert broker.ready["http_port"] is None


@pytest.mark.slow
def test_other_machines_reach_the_pages_where_the_host_is_set(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "one", {"odradek.http.host": "127.0.0.2"}) as broker:
        assert isinstance(broker, BrokerProcess)
        assert get(broker, "/readyz", at="127.0.0.2")[0] == 200
        with pytest.raises(ConnectionRefusedError):
            get(broker, "/readyz")
    with BrokerProcess(tmp_path / "two", {"odradek.http.host": ""}) as broker:
        assert isinstance(broker, BrokerProcess)
        for address in ("127.0.0.1", "127.0.0.2"):
            assert get(broker, "/readyz", at=address)[0] == 200


def test_metrics_name_topics_so_that_a_page_of_another_name_does_not_get_them(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        assert isinstance(broker, BrokerProcess)
        assert [get(broker, page, host="broker:9644")[0] for page in ("/metrics", "/api/topics")] == [403, 403]
        assert [get(broker, page, host="broker:9644")[0] for page in ("/readyz", "/healthz")] == [200, 200]
