"""Lawful but rare answers: what they change stays decodable, and the same seed does the same."""

import pytest

from odradek.broker.clusters.odd import PERCENT, Odd, ends_in_tag_count
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.fetch_request import FetchRequest
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.protocol.messages.produce_request import ProduceRequest


def always(seed: int = 0) -> Odd:
    return Odd.of(seed, dict.fromkeys(PERCENT, 100))


def test_an_unknown_tag_is_read_over() -> None:
    body = encode(HeartbeatResponse(throttle_time_ms=7, error_code=27), 4)
    tagged = always().tag(ApiKey.HEARTBEAT, 4, body)
    assert len(tagged) > len(body)
    assert decode(HeartbeatResponse, 4, tagged).error_code == 27


@pytest.mark.parametrize(("api", "version"), [(ApiKey.HEARTBEAT, 3), (ApiKey.PRODUCE, 10), (ApiKey.FETCH, 16)])
def test_answers_that_end_otherwise_get_no_tag(api: ApiKey, version: int) -> None:
    assert not ends_in_tag_count(api, version)


def metadata() -> MetadataResponse:
    partitions = [MetadataResponsePartition(partition_index=index) for index in range(5)]
    topics = [MetadataResponseTopic(name=name, partitions=list(partitions)) for name in "abcde"]
    return MetadataResponse(brokers=[MetadataResponseBroker(node_id=each) for each in range(5)], topics=topics)


def test_order_changes_and_nothing_else() -> None:
    plain, odd = metadata(), metadata()
    always().reshape(odd)
    assert [each.name for each in odd.topics] != [each.name for each in plain.topics]
    assert sorted(each.name or "" for each in odd.topics) == [each.name for each in plain.topics]
    assert all(sorted(one.partition_index for one in each.partitions) == [*range(5)] for each in odd.topics)
    assert 1 <= odd.throttle_time_ms <= 5


def test_a_seed_repeats_what_it_does() -> None:
    def codes(seed: int) -> list[ErrorCode | None]:
        odd = Odd.of(seed)
        return [odd.passing_error(ApiKey.END_TXN, EndTxnRequest()) for _ in range(1000)]

    assert codes(5) == codes(5) != codes(6)
    assert 20 < sum(each is not None for each in codes(5)) < 90  # 5 %


def test_nothing_is_refused_where_nobody_is_told() -> None:
    assert always().passing_error(ApiKey.PRODUCE, ProduceRequest(acks=0)) is None
    assert always().passing_error(ApiKey.PRODUCE, ProduceRequest(acks=1)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert always().passing_error(ApiKey.CREATE_TOPICS, EndTxnRequest()) is None


def test_a_fetch_is_hurried_once() -> None:
    request = FetchRequest(max_wait_ms=500)
    odd = always()
    assert odd.hurry(request)
    assert request.max_wait_ms == 0
    assert not odd.hurry(request)
    assert odd.told()["oddities"] == [
        {"name": name, "percent": 100, "done": int(name == "early fetch")} for name in PERCENT
    ]
