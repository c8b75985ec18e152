"""Tests that the page's lists are served over HTTP in pages and in the requested order. Also tests the contents of the
lists of users and quotas, and the lag of groups."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from odradek.broker.http.page.served import SHOWN
from tests.support.broker_process import IS_KAFKA, BrokerProcess
from tests.support.commands import command

pytestmark = pytest.mark.skipif(IS_KAFKA, reason="Kafka has no such page")

TOPICS = 250


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as running:
        assert isinstance(running, BrokerProcess)
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        for each in admin.create_topics([NewTopic(f"t-{number:03}", 1) for number in range(TOPICS)]).values():
            each.result(60)
        producer = Producer({"bootstrap.servers": running.bootstrap})
        for number, count in ((7, 3), (3, 2), (5, 1)):
            for _ in range(count):
                producer.produce(f"t-{number:03}", b"1")
        assert producer.flush(30) == 0
        yield running


def view(broker: BrokerProcess, name: str, **query: object) -> Any:
    with urlopen(f"http://127.0.0.1:{broker.ready['http_port']}/api/{name}?{urlencode(query)}", timeout=60) as answer:
        return json.loads(answer.read())


def names(shown: Any) -> list[str]:
    return [each["name"] for each in shown["topics"]]


def test_a_list_has_pages(broker: BrokerProcess) -> None:
    first, second = view(broker, "topics"), view(broker, "topics", **{"from": SHOWN})
    assert (first["total"], first["from"], second["from"]) == (TOPICS, 0, SHOWN)
    assert names(first) + names(second) == [f"t-{number:03}" for number in range(TOPICS)]


def test_a_list_is_sorted_whole_before_it_has_pages(broker: BrokerProcess) -> None:
    assert names(view(broker, "topics", sort="-records"))[:3] == ["t-007", "t-003", "t-005"]
    assert names(view(broker, "topics", sort="records", **{"from": SHOWN}))[-3:] == ["t-005", "t-003", "t-007"]
    assert names(view(broker, "topics", sort="-name"))[0] == f"t-{TOPICS - 1:03}"


@pytest.mark.parametrize(
    "name", ["topics", "groups", "transactions", "shares", "connections", "acls", "users", "quotas", "clusters"]
)
def test_an_order_that_is_unknown_is_refused(broker: BrokerProcess, name: str) -> None:
    for query in ("sort=weight", "from=-1", "from=x"):
        with pytest.raises(HTTPError) as refused:
            urlopen(f"http://127.0.0.1:{broker.ready['http_port']}/api/{name}?{query}", timeout=60)
        assert json.loads(refused.value.read())["code"] == "INVALID_REQUEST"


def test_partitions_without_a_commit_are_named_apart(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("lagging", 3)])["lagging"].result(30)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(9):
        producer.produce("lagging", b"1", partition=number % 3)
    assert producer.flush(30) == 0
    settings = {"group.id": "late", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, **settings})
    consumer.subscribe(["lagging"])
    assert consumer.consume(1, 30)
    consumer.commit(offsets=[TopicPartition("lagging", 0, 1)], asynchronous=False)
    (row,) = view(broker, "groups", find="late")["groups"]
    assert (row["partitions"], row["lag"], row["uncommitted"]) == (3, 2, 2)
    group = view(broker, "group", id="late")
    assert group["lag"] == {"records": 2, "uncommitted": 2}
    assert [(each["partition"], each["committed"], each["lag"]) for each in group["offsets"]] == [
        ("lagging-0", 1, 2),
        ("lagging-1", None, None),
        ("lagging-2", None, None),
    ]
    metrics = metrics_of(broker)
    assert 'odradek_group_lag_records{group="late"} 2.0' in metrics
    assert 'odradek_group_uncommitted_partitions{group="late"} 2.0' in metrics
    listed = command("groups", "list", "--json", "-b", broker.bootstrap)
    (late,) = (each for each in json.loads(listed.stdout) if each["group"] == "late")
    assert (late["lag"], late["uncommitted_partitions"]) == (2, 2)
    consumer.close()


def metrics_of(broker: BrokerProcess) -> list[str]:
    with urlopen(f"http://127.0.0.1:{broker.ready['http_port']}/metrics", timeout=60) as answer:
        return str(answer.read().decode()).splitlines()


def test_users_and_quotas_are_listed(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    credential = UserScramCredentialUpsertion(
        "alice", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"secret"
    )
    admin.alter_user_scram_credentials([credential])["alice"].result(30)
    set_quota = command("quotas", "set", "--user", "alice", "producer_byte_rate=1024", "-b", broker.bootstrap)
    assert set_quota.returncode == 0, set_quota.stderr
    users = view(broker, "users")
    assert {each["user"] for each in users["users"]} == {"alice"}
    assert "secret" not in json.dumps(users)
    assert view(broker, "quotas")["quotas"] == [
        {"entity": "user alice", "of": {"user": "alice"}, "limit": "producer_byte_rate", "value": 1024}
    ]
    assert view(broker, "quotas", find="bob")["quotas"] == []
    assert view(broker, "acls")["acls"] == []


def test_clusters_are_sorted(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", {"odradek.control.enable": "true"}) as running:
        assert isinstance(running, BrokerProcess)
        made = []
        for ttl_s in (900, 300, 600):
            address = f"http://127.0.0.1:{running.ready['http_port']}/control/v1/clusters"
            body = json.dumps({"ttl_s": ttl_s}).encode()
            with urlopen(Request(address, body, {"Content-Type": "application/json"}), timeout=60) as answer:
                made.append(json.loads(answer.read())["id"])
        by_lease = [each["id"] for each in view(running, "clusters", sort="ttl_s")["clusters"]]
        assert by_lease == [made[1], made[2], made[0], "default"]  # The cluster without a lease comes last.
        assert (
            view(running, "clusters", sort="-id", **{"from": 1})["clusters"][0]["id"] == sorted([*made, "default"])[-2]
        )
