"""Tests that Odradek opens directories from releases in which `share.version` 2 enabled acknowledgements in
transactions.

It also opens new directories that start with `odradek.share.transactions` (docs/share-transactions.md).
"""

from collections.abc import Mapping
from pathlib import Path

import pytest

from odradek.client import PreparedTxnState
from odradek.client.sync import Admin
from odradek.protocol.errors import ErrorCode
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.testing.sync import Odradek, Refused
from tests.clients.admin import create_topic
from tests.clients.own_consumers import produce
from tests.clients.own_share_consumers import SETTINGS, first_of, worker
from tests.clients.own_share_transactions import (
    Request,
    outputs,
    producer_of,
    queue_of_ten,
    request_of,
    transactional_worker,
)
from tests.clients.speakers import wait_for
from tests.clients.transactions import READERS
from tests.support.broker_process import BrokerProcess
from tests.support.earlier_directories import (
    GROUP,
    OUTPUT,
    PENDING,
    QUEUE,
    RAISED,
    RESOLVED,
    TRANSACTIONAL_ID,
    unpacked,
)
from tests.support.wire import ClosedByBroker, Wire

OWN = "odradek.share.transactions"
TWO_PHASE: dict[str, object] = SETTINGS | {"transaction.two.phase.commit.enable": "true"}
EARLIER_KEY = 93


def served_keys(bootstrap: str) -> set[int]:
    with Wire(bootstrap) as wire:
        return {each.api_key for each in wire.ask(ApiVersionsRequest(), 0, ApiVersionsResponse).api_keys}


def level(bootstrap: str) -> int:
    with Admin(bootstrap_servers=bootstrap) as admin:
        return admin.describe_features()[OWN].level


@pytest.mark.parametrize("name", [RAISED, PENDING, RESOLVED])
def test_w2_the_first_start_raises_the_feature_and_logs_it_once(name: str, tmp_path: Path) -> None:
    with BrokerProcess(unpacked(name, tmp_path), TWO_PHASE) as broker:
        assert level(broker.bootstrap) == 1
        assert 95 in served_keys(broker.bootstrap)
        message = "odradek.share.transactions is now at level 1: an earlier Odradek"
        assert message in broker.log_text()
        broker.restart()
        assert broker.log_text().count(message) == 1
        assert level(broker.bootstrap) == 1


@pytest.mark.parametrize("committed", [True, False])
def test_w2_staged_records_wait_for_their_transaction_which_can_be_ended(committed: bool, tmp_path: Path) -> None:
    with BrokerProcess(unpacked(PENDING, tmp_path), TWO_PHASE) as broker:
        at = broker.bootstrap
        with worker(at, QUEUE, GROUP) as consumer:
            assert [record.offset for record in first_of(consumer)] == [6, 7, 8, 9]
        broker.kill9()
        broker.start()
        with Admin(bootstrap_servers=at) as admin:
            transaction = admin.describe_transactions([TRANSACTIONAL_ID])[TRANSACTIONAL_ID]
            open_one = PreparedTxnState(transaction.producer_id, transaction.producer_epoch)
            admin.end_transaction(TRANSACTIONAL_ID, open_one, committed=committed)
        assert outputs(at, OUTPUT) == ([b"committed", b"second"] if committed else [b"committed"])
        with worker(at, QUEUE, GROUP) as consumer:
            found = [record.offset for record in first_of(consumer)]
        assert found == ([6, 7, 8, 9] if committed else [3, 4, 5, 6, 7, 8, 9])


def test_a_worker_goes_on_in_a_directory_of_an_earlier_odradek(tmp_path: Path) -> None:
    with BrokerProcess(unpacked(RESOLVED, tmp_path), TWO_PHASE) as broker:
        at = broker.bootstrap
        with (
            worker(at, QUEUE, GROUP) as consumer,
            producer_of(at, TRANSACTIONAL_ID, two_phase_commit=True) as producer,
        ):
            records = first_of(consumer)
            assert [record.offset for record in records] == [3, 4, 5, 6, 7, 8, 9]
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(OUTPUT, b"third").result(10)
            producer.send_share_acknowledgements_to_transaction(records, consumer.share_group_metadata())
            producer.commit_transaction()
        assert outputs(at, OUTPUT) == [b"committed", b"third"]


@pytest.mark.parametrize(
    ("settings", "environment"),
    [({OWN: 1}, {}), ({}, {"KAFKA_ODRADEK_SHARE_TRANSACTIONS": "1"})],
    ids=["override", "environment"],
)
def test_a_new_directory_begins_with_the_feature(
    settings: dict[str, object], environment: Mapping[str, str], tmp_path: Path
) -> None:
    with BrokerProcess(tmp_path / "data", SETTINGS | settings, environment=environment) as broker:
        assert level(broker.bootstrap) == 1
        queue_of_ten(broker.bootstrap, "jobs")
        with transactional_worker(broker.bootstrap, "jobs") as consumer:
            first_of(consumer)
            assert request_of(broker.bootstrap, "jobs", consumer).code(broker.bootstrap) is ErrorCode.NONE


@pytest.mark.parametrize("reader", READERS)
def test_k4_clients_that_do_not_know_the_key_go_on_working(reader: str, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", SETTINGS | {OWN: 1}) as broker:
        create_topic(broker.bootstrap, "plain")
        produce(broker.bootstrap, "plain", b"a", b"b")
        assert READERS[reader](broker.bootstrap, "plain", committed=True) == [b"a", b"b"]


def test_an_unknown_feature_level_is_refused_as_a_setting(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"odradek\.share\.transactions"):
        BrokerProcess(tmp_path / "data", SETTINGS | {OWN: 2}).start()


def test_a_cluster_of_a_test_begins_with_the_feature_in_its_settings(odradek: Odradek) -> None:
    with odradek.cluster(settings={OWN: 1}) as kafka:
        assert level(kafka.bootstrap) == 1
        assert 95 in served_keys(kafka.bootstrap)
        kafka.restart()
        assert level(kafka.bootstrap) == 1
        with odradek.cluster(fork=kafka) as fork:
            assert level(fork.bootstrap) == 1
    with odradek.cluster() as plain:
        assert level(plain.bootstrap) == 0
        assert 95 not in served_keys(plain.bootstrap)


def test_a_cluster_that_emulates_a_release_cannot_have_it(odradek: Odradek) -> None:
    with pytest.raises(Refused, match="no release of Kafka has this feature"):
        odradek.cluster(settings={OWN: 1}, emulate="4.3")


def test_w6_the_request_by_its_earlier_key_is_disconnected_and_leaves_nothing_pending(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", SETTINGS | {OWN: 1}) as broker:
        at = broker.bootstrap
        queue_of_ten(at, "jobs")
        with transactional_worker(at, "jobs") as consumer:
            first_of(consumer)
            request = request_of(at, "jobs", consumer)
            with Wire(at) as wire:
                wire.send_bytes(by_key(request, EARLIER_KEY))
                with pytest.raises(ClosedByBroker):
                    wire.receive(ApiVersionsRequest.API_KEY, 0)
            with Admin(bootstrap_servers=at) as admin:
                assert admin.describe_transactions(["jobs"])["jobs"].state == "Empty"
            wait_for("the request by today's key", lambda: request.code(at) is ErrorCode.NONE)


def by_key(request: Request, key: int) -> bytes:
    frame = request_bytes(request.message(), 0, 1, "")
    return frame[:4] + key.to_bytes(2, "big") + frame[6:]
