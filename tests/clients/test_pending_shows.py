"""Tests that a broker's metrics, page and JSON show the transactions that hold share group acknowledgements (KIP-1289).

The broker shows these transactions even after the application has died and after a restart. Rules:
docs/spec/share-groups.md#s5-11. tests/spec/test_gauges_of_the_kips.py covers every other metric, state by state.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from odradek.client import ClientError, ProducerFenced
from odradek.client.sync import Admin
from tests.clients.own_share_consumers import first_of
from tests.clients.own_share_transactions import BROKER, producer_of, queue_of_ten, transactional_worker, upgrade
from tests.clients.speakers import wait_for
from tests.clients.test_http_pages import get, metrics
from tests.support.broker_process import IS_KAFKA, BrokerProcess

pytestmark = pytest.mark.skipif(IS_KAFKA, reason="no released Kafka has KIP-1289, and none has such pages")

QUEUE, ID = "tasks", "pay"
PENDING = ("kafka_server_sharepartitionmanager_txnpendingrecordscount",)
PENDING_HERE = ("odradek_share_pending_records", QUEUE, "0", QUEUE, ID)
PATIENT = {"group.share.record.lock.duration.ms": 60_000, "group.share.max.record.lock.duration.ms": 60_000}


def view(broker: BrokerProcess, path: str) -> Mapping[str, Any]:
    status, text = get(broker, f"/api/{path}")
    assert status == 200, text
    found: Mapping[str, Any] = json.loads(text)
    return found


def looks(broker: BrokerProcess, *, pending: int) -> None:
    found = metrics(broker)
    assert found[PENDING] == pending
    assert found.get(PENDING_HERE, 0) == pending
    (row,) = view(broker, "shares")["partitions"]
    assert (row["group"], row["partition"]) == (QUEUE, f"{QUEUE}-0")
    assert row["states"].get("TX_PENDING", 0) == pending
    assert [(each["transactional_id"], each["records"]) for each in row["pending"]] == (
        [(ID, pending)] if pending else []
    )
    one = view(broker, f"transaction?id={ID}")
    here = {"group": QUEUE, "partition": f"{QUEUE}-0", "records": pending}
    assert one["pending"] == ([here] if pending else [])
    (listed,) = view(broker, "transactions")["transactions"]
    assert listed["pending_records"] == pending


def test_an_application_that_died_shows_until_its_transaction_is_ended_by_hand(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", BROKER | PATIENT) as broker:
        assert isinstance(broker, BrokerProcess)
        upgrade(broker.bootstrap)
        queue_of_ten(broker.bootstrap, QUEUE)
        with producer_of(broker.bootstrap, ID) as producer:
            with transactional_worker(broker.bootstrap, QUEUE) as consumer:
                producer.init_transactions()
                records = first_of(consumer)
                assert view(broker, "shares")["partitions"][0]["phase"] == "active"
                looks(broker, pending=0)
                producer.begin_transaction()
                producer.send_share_acknowledgements_to_transaction(records, consumer.share_group_metadata())
                looks(broker, pending=10)
            wait_for("the broker to let go", lambda: view(broker, "shares")["partitions"][0]["phase"] == "stored")
            looks(broker, pending=10)
            broker.kill9()
            broker.start()
            looks(broker, pending=10)
            latency = "kafka_network_requestmetrics_totaltimems_count"
            assert not [key for key in metrics(broker) if key[:2] == (latency, "TxnShareAcknowledge")], "a new process"
            with Admin(bootstrap_servers=broker.bootstrap) as admin:
                admin.force_terminate_transaction(ID)
            looks(broker, pending=0)
            with pytest.raises(ProducerFenced):
                producer.commit_transaction()


def test_the_latency_of_acknowledgements_in_transactions_counts_refused_ones_too(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", BROKER) as broker:
        assert isinstance(broker, BrokerProcess)
        upgrade(broker.bootstrap)
        queue_of_ten(broker.bootstrap, QUEUE)
        latency = ("kafka_network_requestmetrics_totaltimems_count", "TxnShareAcknowledge", "0")
        with transactional_worker(broker.bootstrap, QUEUE) as consumer, producer_of(broker.bootstrap, ID) as producer:
            producer.init_transactions()
            records = first_of(consumer)
            assert latency not in metrics(broker)
            producer.begin_transaction()
            producer.send_share_acknowledgements_to_transaction(records, consumer.share_group_metadata())
            assert metrics(broker)[latency] == 1
            with Admin(bootstrap_servers=broker.bootstrap) as admin:
                admin.force_terminate_transaction(ID)
            with pytest.raises(ClientError):
                producer.send_share_acknowledgements_to_transaction(records, consumer.share_group_metadata())
            assert metrics(broker)[latency] == 2
