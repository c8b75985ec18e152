"""Tests that, if a partition of `__transaction_state` is unreadable, only the transactional ids in this partition have
no coordinator."""

import logging

import pytest

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.topic_partition import TRANSACTION_STATE
from tests.support.broker_scene import answer_of
from tests.support.transaction_broker import TransactionBroker


def init(scene: TransactionBroker, transactional_id: str) -> ErrorCode:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    try:
        answer = answer_of(scene.transactions.init_producer_id(request))
    except KafkaError as refusal:
        return refusal.code
    return ErrorCode(answer.error_code)


@pytest.mark.parametrize("how", ["a length that cannot be", "a file cut short"])
def test_a_damaged_log_is_not_served_and_the_others_are(how: str, caplog: pytest.LogCaptureFixture) -> None:
    scene = TransactionBroker()
    scene.topic(TRANSACTION_STATE, 3)
    by_partition = {scene.transactions.partition_for(f"id-{number}"): f"id-{number}" for number in range(20)}
    for transactional_id in by_partition.values():
        assert init(scene, transactional_id) is ErrorCode.NONE
    damaged = min(by_partition)
    path = f"{scene.partition(TRANSACTION_STATE, damaged).log.directory}/{0:020}.log"
    data = bytearray(scene.disk.read_bytes(path))
    if how == "a file cut short":
        del data[30:]
    else:
        data[8:12] = b"\xff\xff\xff\xf0"
    scene.disk.write_bytes(path, data)
    with caplog.at_level(logging.ERROR):
        scene.restart_coordinator()
    assert f"{TRANSACTION_STATE}-{damaged}" in caplog.text
    codes = {partition: init(scene, transactional_id) for partition, transactional_id in by_partition.items()}
    assert codes.pop(damaged) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert set(codes.values()) == {ErrorCode.NONE}
