"""Tests that the fast path of Produce checks the client's rights, and that a request takes the general path if it might
be refused.

Source: docs/spec/security.md#s3-5.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from odradek.broker.api.context import ConnectionInfo
from odradek.broker.configuration.contradictions import STANDARD_AUTHORIZER
from odradek.broker.security.acl.acls import Acl
from odradek.broker.security.authorization import AUDIT_LOGGER
from odradek.protocol.acls import Operation, PatternType, Permission, ResourceType
from odradek.protocol.errors import ErrorCode
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.produce_request import ProduceRequest
from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.protocol.records import NewRecord, build_batch
from tests.support.batches import batch_by
from tests.support.in_process_broker import InProcessBroker
from tests.support.requests import produce_request

ADMIN, ALICE = "User:admin", "User:alice"
VERSION = 12
TOPIC, TXN_ID = ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class Producing:
    def __init__(self, broker: InProcessBroker) -> None:
        self.broker = broker
        self._acls = broker.broker.metadata.image.acls
        self._ids = 0

    def allow(
        self,
        name: str,
        resource: ResourceType = TOPIC,
        permission: Permission = Permission.ALLOW,
        principal: str = ALICE,
    ) -> bytes:
        self._ids += 1
        acl_id = self._ids.to_bytes(16)
        acl = Acl(resource, name, PatternType.LITERAL, principal, "*", Operation.WRITE, permission)
        self._acls.add(acl_id, acl)
        return acl_id

    def revoke(self, acl_id: bytes) -> None:
        self._acls.remove(acl_id)

    def code(self, topic: str = "t", principal: str = ALICE) -> ErrorCode:
        answer = self.broker.answer(self.broker.connection(principal), request(topic), VERSION, ProduceResponse)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    def takes_the_fast_path(
        self, topic: str = "t", principal: str = ALICE, transactional_id: str | None = None
    ) -> bool:
        """Returns whether the fast path accepts the request. If the request is transactional, the coordinator can still
        refuse it later."""
        frame = memoryview(bytearray(request_bytes(request(topic, transactional_id), VERSION, 1, "c")))[4:]
        fast_path = self.broker.dispatcher.find_route(frame, int.from_bytes(frame[:4])).fast_path
        assert fast_path is not None
        connection = ConnectionInfo(1, "127.0.0.1", 40_000, principal=principal)
        return fast_path.start_request(frame, 1, 1, connection) is not None


def request(topic: str, transactional_id: str | None = None) -> ProduceRequest:
    records = build_batch([NewRecord(b"k", b"v", 1_700_000_000_000)])
    return produce_request(topic, records, transactional_id=transactional_id)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": ADMIN}
    with InProcessBroker(tmp_path_factory.mktemp("produce"), settings) as broker:
        topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("t", "other")]
        broker.ask(broker.connection(ADMIN), CreateTopicsRequest(topics=topics, timeout_ms=1000), 7)
        yield broker


@pytest.fixture
def producing(broker: InProcessBroker) -> Iterator[Producing]:
    yield Producing(broker)
    acls = broker.broker.metadata.image.acls
    for acl_id, _ in list(acls.items()):
        acls.remove(acl_id)


def test_a_producer_with_write_permission_takes_the_fast_path(producing: Producing) -> None:
    producing.allow("t")
    assert producing.takes_the_fast_path()
    assert producing.code() is ErrorCode.NONE
    assert not producing.takes_the_fast_path("other")
    assert producing.code("other") is DENIED
    assert producing.code("missing") is DENIED
    assert producing.takes_the_fast_path(principal=ADMIN)
    assert not producing.takes_the_fast_path(principal="User:bob")


def test_a_right_that_is_taken_away_counts_from_the_next_request_on(producing: Producing) -> None:
    acl_id = producing.allow("t")
    connection = producing.broker.connection(ALICE)

    def code() -> int:
        answer = producing.broker.answer(connection, request("t"), VERSION, ProduceResponse)
        return answer.responses[0].partition_responses[0].error_code

    assert code() == 0
    producing.revoke(acl_id)
    assert code() == DENIED.value
    producing.allow("t")
    assert code() == 0
    producing.allow("*", permission=Permission.DENY, principal="User:*")
    assert code() == DENIED.value


def test_the_transactional_id_is_looked_at_before_the_coordinator_is_asked(producing: Producing) -> None:
    producing.allow("t")
    broker = producing.broker
    answer = broker.answer(broker.connection(ALICE), transactional("x"), VERSION, ProduceResponse)
    code = answer.responses[0].partition_responses[0].error_code
    assert code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED.value
    producing.allow("x", TXN_ID)
    answer = broker.answer(broker.connection(ALICE), transactional("x"), VERSION, ProduceResponse)
    code = answer.responses[0].partition_responses[0].error_code
    assert code not in (0, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED.value)


def transactional(transactional_id: str) -> ProduceRequest:
    records = batch_by((7, 0), 0, b"v", at_ms=1_700_000_000_000)
    return produce_request("t", records, transactional_id=transactional_id)


def test_the_general_path_is_taken_if_the_audit_log_contains_allowed_operations(
    producing: Producing, caplog: pytest.LogCaptureFixture
) -> None:
    producing.allow("t")
    with caplog.at_level(logging.DEBUG, AUDIT_LOGGER):
        assert not producing.takes_the_fast_path()
        assert producing.code() is ErrorCode.NONE
    assert [each.levelname for each in caplog.records if each.name == AUDIT_LOGGER] == ["DEBUG"]
    assert producing.takes_the_fast_path()
