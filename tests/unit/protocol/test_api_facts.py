"""Facts about APIs that other tables must agree with."""

import pytest

from odradek.broker.api.served import SERVED
from odradek.protocol.api_facts import API_OF_KEY, client_waits, facts_of
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages import response_class


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
