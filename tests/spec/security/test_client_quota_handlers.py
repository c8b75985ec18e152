"""Tests requests about client quotas, and their records in the metadata log (docs/spec/security.md#s4-1)."""

from types import SimpleNamespace
from typing import Any

from odradek.broker.api.context import AllowAll, ConnectionInfo, RequestContext
from odradek.broker.api.error_replies import error_reply
from odradek.broker.handlers.security.quotas import alter_client_quotas, describe_client_quotas
from odradek.broker.runtime.waiting import start_deferred
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode as E
from odradek.protocol.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from odradek.protocol.messages.describe_client_quotas_request import ComponentData, DescribeClientQuotasRequest
from tests.support.fake_disk import FakeDisk
from tests.support.metadata import Running
from tests.support.workers_here import WorkersHere

ANN = EntityData(entity_type="user", entity_name="ann")


def context(api_key: ApiKey) -> RequestContext:
    return RequestContext(api_key, 1, 1, "a-client", 0, ConnectionInfo(1, "127.0.0.1", 50_000), AllowAll())


def entry(entity: EntityData, key: str, value: float) -> EntryData:
    return EntryData(entity=[entity], ops=[OpData(key=key, value=value)])


def alter(running: Running, *entries: EntryData, validate_only: bool = False) -> list[tuple[int, bool]]:
    """Alters quotas. For each entry, returns the error code and whether there is an error message."""
    broker: Any = SimpleNamespace(metadata=running.metadata, workers=WorkersHere(), host_addresses={})
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    answer = start_deferred(alter_client_quotas(request, context(ApiKey.ALTER_CLIENT_QUOTAS), broker)).outcome()
    return [(each.error_code, each.error_message is not None) for each in answer.entries]


def described(running: Running) -> list[tuple[list[tuple[str, str | None]], dict[str, float]]]:
    broker: Any = SimpleNamespace(metadata=running.metadata)
    answer = describe_client_quotas(DescribeClientQuotasRequest(), context(ApiKey.DESCRIBE_CLIENT_QUOTAS), broker)
    assert (answer.error_code, answer.error_message) == (0, "")
    return [
        ([(each.entity_type, each.entity_name) for each in one.entity], {each.key: each.value for each in one.values})
        for one in answer.entries or ()
    ]


def test_limits_are_in_force_when_they_are_answered_and_after_a_restart() -> None:
    disk = FakeDisk()
    running = Running(disk)
    good, bad = entry(ANN, "producer_byte_rate", 1024), entry(ANN, "producer_byte_rate", -1)
    assert alter(running, bad) == [(E.INVALID_REQUEST.value, True)]
    assert alter(running, good) == [(0, False)]
    assert described(running) == [([("user", "ann")], {"producer_byte_rate": 1024.0})]
    running.stop()
    assert described(Running(disk)) == [([("user", "ann")], {"producer_byte_rate": 1024.0})]


def test_limits_survive_a_power_cut_right_after_the_answer() -> None:
    disk = FakeDisk()
    running = Running(disk)
    assert alter(running, entry(ANN, "request_percentage", 50)) == [(0, False)]
    for state in disk.after_power_failure(seed=1):
        assert described(Running(state.disk)) == [([("user", "ann")], {"request_percentage": 50.0})], state


def test_scenario_138_a_validation_records_nothing() -> None:
    running = Running(FakeDisk())
    wishes = entry(ANN, "producer_byte_rate", 1), entry(EntityData(entity_type="x"), "producer_byte_rate", 1)
    assert alter(running, *wishes, validate_only=True) == [(0, False), (E.INVALID_REQUEST.value, True)]
    assert described(running) == []


def test_scenario_139_a_name_of_a_host_is_looked_up() -> None:
    host = EntityData(entity_type="ip", entity_name="localhost")
    nowhere = EntityData(entity_type="ip", entity_name="nowhere.invalid")
    running = Running(FakeDisk())
    rate = "connection_creation_rate"
    assert alter(running, entry(host, rate, 5), entry(nowhere, rate, 5)) == [
        (0, False),
        (E.INVALID_REQUEST.value, True),
    ]
    assert described(running) == [([("ip", "localhost")], {rate: 5.0})]


def test_scenario_141_a_request_that_is_refused_as_a_whole_is_answered_without_entries() -> None:
    request = DescribeClientQuotasRequest(components=[ComponentData(entity_type="", match_type=0)])
    code = E.INVALID_REQUEST
    answer: Any = error_reply(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, request, code, "why")
    assert (answer.error_code, answer.error_message, answer.entries) == (code.value, "why", None)
