"""Tests that the facts about APIs agree with the messages."""

import pytest

from odradek.broker.api.served import SERVED
from odradek.protocol.api_facts import API_OF_KEY, Coordinator, client_waits, facts_of
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages import request_class, response_class
from odradek.protocol.schema import Field, load

COORDINATED_IDS = {
    "group_id": Coordinator.GROUP,
    "group_ids": Coordinator.GROUP,
    "groups": Coordinator.GROUP,
    "groups_names": Coordinator.GROUP,
    "transactional_id": Coordinator.TRANSACTION,
    "transactional_ids": Coordinator.TRANSACTION,
    "transactions": Coordinator.TRANSACTION,
}
# requests that name a group or a transactional id, but go to a partition leader
TO_LEADERS = {ApiKey.PRODUCE, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE, ApiKey.TXN_SHARE_ACKNOWLEDGE}


def request_fields(api: ApiKey) -> tuple[Field, ...]:
    return load(request_class(api.value).__module__.rpartition(".")[2]).fields


def test_a_request_that_names_groups_or_transactions_goes_to_a_coordinator_or_a_leader() -> None:
    named = {
        api: {COORDINATED_IDS[each.attribute] for each in request_fields(api) if each.attribute in COORDINATED_IDS}
        for api in SERVED
    }
    for api, coordinators in named.items():
        coordinator = facts_of(api).coordinator
        match coordinator:
            case None:
                assert not coordinators or api in TO_LEADERS, api
            # the share coordinator of a share partition, which is identified by a group and a topic
            case Coordinator.SHARE:
                assert coordinators == {Coordinator.GROUP}, api
                assert "topics" in {each.attribute for each in request_fields(api)}, api
            case _:
                assert coordinator in coordinators, api


def test_only_an_answer_with_a_throttle_time_is_waited_out() -> None:
    throttled = [api for api in ApiKey if facts_of(api).throttled_from is not None and api in SERVED]
    assert [api for api in throttled if "throttle_time_ms" not in response_class(api.value).__slots__] == []


@pytest.mark.parametrize("api", [api for api in ApiKey if facts_of(api).absent_values], ids=lambda api: api.name)
def test_a_value_that_says_none_belongs_to_a_field_of_the_answer(api: ApiKey) -> None:
    source = __import__(response_class(api.value).__module__, fromlist=["*"])
    fields = {name for each in vars(source).values() if hasattr(each, "__slots__") for name in each.__slots__}
    assert facts_of(api).absent_values.keys() <= fields


@pytest.mark.parametrize(("version", "waits"), [(5, False), (6, True), (13, True)])
def test_a_client_waits_from_a_version_on(version: int, waits: bool) -> None:
    assert client_waits(ApiKey.PRODUCE.value, version) is waits


def test_a_client_does_not_wait_for_an_api_that_nobody_knows() -> None:
    assert 20_000 not in API_OF_KEY
    assert not client_waits(20_000, 99)


def test_an_answer_that_names_brokers_has_their_addresses() -> None:
    named = [api for api in ApiKey if facts_of(api).names_brokers]
    assert named == [ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_CLUSTER]
    for api in named:
        source = __import__(response_class(api.value).__module__, fromlist=["*"])
        fields = {name for each in vars(source).values() if hasattr(each, "__slots__") for name in each.__slots__}
        assert {"host", "port"} <= fields
