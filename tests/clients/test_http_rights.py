"""Tests the page on a broker with an authorizer. Rules: docs/page.md."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.configuration.contradictions import STANDARD_AUTHORIZER
from odradek.protocol.messages.create_acls_request import AclCreation, CreateAclsRequest
from odradek.protocol.messages.create_acls_response import CreateAclsResponse
from tests.clients.admin import create_topic
from tests.support.broker_process import IS_KAFKA, BrokerProcess
from tests.support.wire import Wire

pytestmark = pytest.mark.skipif(IS_KAFKA, reason="Kafka has no such pages")

TOKEN = "correct horse battery staple"
AUTHORIZER: dict[str, object] = {"authorizer.class.name": STANDARD_AUTHORIZER}
TOPIC, CLUSTER, LITERAL, READ, ALTER, DESCRIBE, ALLOW = 2, 4, 3, 3, 7, 8, 3


def ask(broker: BrokerProcess, path: str, headers: Mapping[str, str] | None = None) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", broker.ready["http_port"], timeout=30)
    try:
        connection.request("GET", path, headers=dict(headers or {}))
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def code_of(text: str) -> Any:
    return json.loads(text).get("code")


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Yields a broker without super users. Its ACLs were created in an earlier run, in which every client was a super
    user."""
    directory = tmp_path / "data"
    with BrokerProcess(directory, AUTHORIZER | {"super.users": "User:ANONYMOUS"}) as broker:
        create_topic(broker.bootstrap, "public", exact=True)
        create_topic(broker.bootstrap, "secret", exact=True)
        creations = [
            AclCreation(
                resource_type=resource,
                resource_name=name,
                resource_pattern_type=LITERAL,
                principal="User:ANONYMOUS",
                host="*",
                operation=operation,
                permission_type=ALLOW,
            )
            for resource, name, operation in ((TOPIC, "public", READ), (CLUSTER, "kafka-cluster", ALTER))
        ]
        with Wire(broker.bootstrap) as wire:
            wire.ask(CreateAclsRequest(creations=creations), 3, CreateAclsResponse)
    with BrokerProcess(directory, AUTHORIZER) as broker:
        assert isinstance(broker, BrokerProcess)
        yield broker


def test_the_page_shows_the_topics_that_acls_allow_to_anonymous(guarded: BrokerProcess) -> None:
    assert ask(guarded, "/api/records?topic=public")[0] == 200
    assert ask(guarded, "/api/topic?name=public")[0] == 200
    hidden = ("records?topic=secret", "partition?topic=secret", "topic?name=secret", "records?topic=missing")
    for path in (f"/api/{view}" for view in hidden):
        status, text = ask(guarded, path)
        assert (status, code_of(text)) == (403, "TOPIC_AUTHORIZATION_FAILED"), path
    assert ask(guarded, "/api/topics")[0] == 200  # ALTER on the cluster implies DESCRIBE.
    status, text = ask(guarded, "/api/group?id=billing")
    assert (status, code_of(text)) == (403, "GROUP_AUTHORIZATION_FAILED")
    status, text = ask(guarded, "/api/transaction?id=pay")
    assert (status, code_of(text)) == (403, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
    assert "Principal = User:ANONYMOUS is Denied operation = READ" in guarded.log_text()
    assert "for request = Fetch" in guarded.log_text()


def test_metrics_require_describe_on_the_cluster_because_they_name_topics(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", AUTHORIZER) as broker:
        assert isinstance(broker, BrokerProcess)
        status, text = ask(broker, "/metrics")
        assert (status, code_of(text)) == (403, "CLUSTER_AUTHORIZATION_FAILED")
        assert ask(broker, "/healthz")[0] == 200


def test_a_client_with_the_token_sees_all_pages(tmp_path: Path) -> None:
    settings = AUTHORIZER | {"odradek.http.token": TOKEN}
    with BrokerProcess(tmp_path / "data", settings) as broker:
        assert isinstance(broker, BrokerProcess)
        for path in ("/", "/metrics", "/api/overview", "/api/actions"):
            assert ask(broker, path)[0] == 401, path
        for path in ("/api/overview", "/api/topics", "/api/connections", "/metrics"):
            assert ask(broker, path, {"Authorization": f"Bearer {TOKEN}"})[0] == 200, path
        named = {"Authorization": f"Bearer {TOKEN}", "Host": "broker:9644"}  # Prometheus in another container
        assert ask(broker, "/metrics", named)[0] == 200
        assert TOKEN not in broker.log_text()
