"""Tests that Odradek and kafka-python 3.0.12 can decode one another's messages in every API and version that
kafka-python supports."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.protocol.codec import decode, encode
from odradek.protocol.messages import message_class
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.protocol.schema import load
from tests.support.kafka_python import known_classes, shared_versions, to_theirs, values_of_ours, values_of_theirs
from tests.support.message_values import Choices, DrawnChoices, LargeChoices, RandomChoices, build_message

CLASSES = known_classes()


def assert_both_ways(module: str, version: int, choices: Choices) -> None:
    schema, their_class = load(module), CLASSES[module]
    message = build_message(module, version, choices)
    if isinstance(message, ApiVersionsResponse):
        # kafka-python decodes an error response as version 0, whatever the version of the request.
        message.error_code = 0
    values = values_of_ours(message, schema, version)
    read_by_them = their_class.decode(encode(message, version), version=version)
    assert values_of_theirs(read_by_them, their_class._struct, schema, version) == values
    written_by_them = to_theirs(message, their_class, schema, version).encode(version=version)
    assert decode(message_class(module), version, written_by_them) == message


def test_kafka_python_has_most_apis_that_clients_use() -> None:
    assert len(CLASSES) >= 90


@pytest.mark.parametrize("module", sorted(CLASSES))
def test_values_travel_both_ways(module: str) -> None:
    versions = shared_versions(CLASSES[module], load(module))
    assert versions
    for version in versions:
        travels_at(module, version)
        assert_both_ways(module, version, RandomChoices(Random(f"{module} {version}"), longest=4))
        assert_both_ways(module, version, RandomChoices(Random(0), longest=0))


def travels_at(module: str, version: int) -> None:
    @settings(max_examples=5, deadline=None, derandomize=True, database=None)
    @given(st.data())
    def travels(data: st.DataObject) -> None:
        assert_both_ways(module, version, DrawnChoices(data.draw))

    travels()


@pytest.mark.parametrize("module", sorted(CLASSES))
def test_large_arrays_travel_both_ways(module: str) -> None:
    for version in shared_versions(CLASSES[module], load(module)):
        assert_both_ways(module, version, LargeChoices(Random(version), longest=130))
