"""Tests that rare but permitted responses can still be decoded, and that the same seed always makes the same
changes."""

import pytest

from odradek.broker.control.odd.odd import PERCENT, Odd, ends_in_tag_count
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from odradek.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.fetch_request import FetchRequest
from odradek.protocol.messages.fetch_response import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from odradek.protocol.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.protocol.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from odradek.protocol.messages.produce_request import ProduceRequest
from odradek.protocol.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from odradek.protocol.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest
from odradek.protocol.messages.streams_group_heartbeat_response import (
    Status,
    StreamsGroupHeartbeatResponse,
    TaskIds,
)
from odradek.protocol.records import NewRecord, build_batch


def always(seed: int = 0) -> Odd:
    return Odd.of(seed, dict.fromkeys(PERCENT, 100))


def test_decoders_skip_the_unknown_tag() -> None:
    body = encode(HeartbeatResponse(throttle_time_ms=7, error_code=27), 4)
    tagged = always().tag(ApiKey.HEARTBEAT, 4, body)
    assert len(tagged) > len(body)
    assert decode(HeartbeatResponse, 4, tagged).error_code == 27


@pytest.mark.parametrize(("api", "version"), [(ApiKey.HEARTBEAT, 3), (ApiKey.PRODUCE, 10), (ApiKey.FETCH, 16)])
def test_responses_that_do_not_end_in_tagged_fields_get_no_tag(api: ApiKey, version: int) -> None:
    assert not ends_in_tag_count(api, version)


def test_empty_offset_metadata_becomes_null() -> None:
    notes = ("", "kept")
    older = OffsetFetchResponseTopic(partitions=[OffsetFetchResponsePartition(metadata=each) for each in notes])
    topic = OffsetFetchResponseTopics(partitions=[OffsetFetchResponsePartitions(metadata=each) for each in notes])
    groups = [OffsetFetchResponseGroup(topics=[topic])]
    for answer, version in ((OffsetFetchResponse(topics=[older]), 7), (OffsetFetchResponse(groups=groups), 9)):
        always().reshape(answer)
        assert decode(OffsetFetchResponse, version, encode(answer, version)) == answer
    assert [each.metadata for each in older.partitions] == [None, "kept"]
    assert [each.metadata for each in topic.partitions] == [None, "kept"]


def metadata() -> MetadataResponse:
    partitions = [MetadataResponsePartition(partition_index=index) for index in range(5)]
    topics = [MetadataResponseTopic(name=name, partitions=list(partitions)) for name in "abcde"]
    return MetadataResponse(brokers=[MetadataResponseBroker(node_id=each) for each in range(5)], topics=topics)


def test_only_the_order_of_topics_and_partitions_changes() -> None:
    plain, odd = metadata(), metadata()
    always().reshape(odd)
    assert [each.name for each in odd.topics] != [each.name for each in plain.topics]
    assert sorted(each.name or "" for each in odd.topics) == [each.name for each in plain.topics]
    assert all(sorted(one.partition_index for one in each.partitions) == [*range(5)] for each in odd.topics)
    assert 1 <= odd.throttle_time_ms <= 5


def test_a_partition_has_no_leader_for_one_answer() -> None:
    odd = metadata()
    always().reshape(odd)
    led = [each.leader_id for topic in odd.topics for each in topic.partitions if each.error_code]
    assert led == [-1] * len(led)
    assert led


def test_brokers_have_another_address_of_the_same_machine() -> None:
    odd = MetadataResponse(brokers=[MetadataResponseBroker(host=host) for host in ("localhost", "kafka.example")])
    always().reshape(odd)
    assert sorted(each.host for each in odd.brokers) == ["127.0.0.1", "kafka.example"]


def test_api_versions_lists_an_unknown_api() -> None:
    odd = ApiVersionsResponse(api_keys=[ApiVersion(api_key=0, max_version=13)])
    always().reshape(odd)
    assert min(each.api_key for each in odd.api_keys) == 0
    assert max(each.api_key for each in odd.api_keys) not in {each.value for each in ApiKey}


@pytest.mark.parametrize(
    "kind", [ConsumerGroupHeartbeatResponse, ShareGroupHeartbeatResponse, StreamsGroupHeartbeatResponse]
)
def test_a_heartbeat_interval_becomes_shorter(
    kind: type[ConsumerGroupHeartbeatResponse | ShareGroupHeartbeatResponse | StreamsGroupHeartbeatResponse],
) -> None:
    odd = kind(heartbeat_interval_ms=5_000)
    always().reshape(odd)
    assert 2_500 <= odd.heartbeat_interval_ms < 5_000


def streams(epoch: int, member: str = "m") -> StreamsGroupHeartbeatRequest:
    return StreamsGroupHeartbeatRequest(group_id="g", member_id=member, member_epoch=epoch)


def assigned(*partitions: int) -> StreamsGroupHeartbeatResponse:
    tasks = [TaskIds(subtopology_id="0", partitions=list(partitions))]
    return StreamsGroupHeartbeatResponse(active_tasks=tasks, standby_tasks=[], warmup_tasks=[])


def test_a_member_of_a_streams_group_gets_the_same_tasks_again() -> None:
    odd, again, of_another = always(), StreamsGroupHeartbeatResponse(), StreamsGroupHeartbeatResponse()
    odd.reshape(assigned(0, 1, 2), streams(0))
    odd.reshape(assigned(0, 1), streams(3))
    odd.reshape(again, streams(3))
    odd.reshape(of_another, streams(3, "n"))
    assert again.active_tasks == assigned(0, 1).active_tasks
    assert (again.standby_tasks, again.warmup_tasks, again.status) == ([], [], [])
    assert of_another.active_tasks is None


@pytest.mark.parametrize("ends", [(-1, 0), (3, 110)], ids=["left", "fenced"])
def test_a_member_that_has_lost_its_tasks_does_not_get_them_again(ends: tuple[int, int]) -> None:
    odd, later = always(), StreamsGroupHeartbeatResponse()
    epoch, error = ends
    odd.reshape(assigned(0), streams(0))
    odd.reshape(StreamsGroupHeartbeatResponse(error_code=error), streams(epoch))
    odd.reshape(later, streams(4))
    assert later.active_tasks is None


def test_an_answer_without_tasks_says_that_the_assignment_is_delayed() -> None:
    odd, plain, other = always(), StreamsGroupHeartbeatResponse(), [Status(status_code=3, status_detail="missing")]
    stale = StreamsGroupHeartbeatResponse(status=[Status(status_code=0, status_detail="stale")])
    missing, complete = StreamsGroupHeartbeatResponse(status=list(other)), assigned(0)
    for answer in (plain, stale, missing):
        odd.reshape(answer, streams(3))
    odd.reshape(complete, streams(3))
    assert [[each.status_code for each in answer.status or ()] for answer in (plain, stale)] == [[5], [0, 5]]
    assert (missing.status, complete.status) == (other, [])


def test_tasks_change_the_order_of_their_subtopologies_and_nothing_else() -> None:
    tasks = [TaskIds(subtopology_id=str(each), partitions=[0, 1]) for each in range(9)]
    odd = StreamsGroupHeartbeatResponse(active_tasks=list(tasks), standby_tasks=[], warmup_tasks=[])
    always().reshape(odd, streams(0))
    found = odd.active_tasks or []
    assert found != tasks
    assert sorted(found, key=lambda each: each.subtopology_id) == tasks


def fetched(records: bytes, aborted: list[AbortedTransaction]) -> PartitionData:
    partition = PartitionData(records=records, aborted_transactions=aborted)
    only = {name: 0 if name == "empty fetch" else 100 for name in PERCENT}
    answer = FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])
    Odd.of(1, only).reshape(answer)
    return partition


def test_only_the_last_of_several_batches_is_cut() -> None:
    batch = bytes(build_batch([NewRecord(None, b"value", 0)]))
    cut = fetched(batch * 2, []).records
    assert isinstance(cut, bytes)
    assert len(batch) < len(cut) < 2 * len(batch)
    assert cut == (batch * 2)[: len(cut)]
    assert fetched(batch, []).records == batch


def test_aborted_transactions_change_their_order_and_none_are_null() -> None:
    aborted = [AbortedTransaction(producer_id=each) for each in range(8)]
    found = fetched(b"", list(aborted)).aborted_transactions or []
    assert found != aborted
    assert sorted(each.producer_id for each in found) == [*range(8)]
    assert fetched(b"", []).aborted_transactions is None


def test_an_emptied_fetch_keeps_its_high_watermark() -> None:
    partition = PartitionData(records=b"records", high_watermark=7)
    always().reshape(FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])]))
    assert (partition.records, partition.high_watermark) == (b"", 7)


def test_the_same_seed_repeats_the_same_errors() -> None:
    def codes(seed: int) -> list[ErrorCode | None]:
        odd = Odd.of(seed)
        return [odd.passing_error(ApiKey.END_TXN, EndTxnRequest()) for _ in range(1000)]

    assert codes(5) == codes(5) != codes(6)
    assert 20 < sum(each is not None for each in codes(5)) < 90  # about 5 % of 1,000


def test_a_produce_with_acks_0_is_never_refused() -> None:
    assert always().passing_error(ApiKey.PRODUCE, ProduceRequest(acks=0)) is None
    assert always().passing_error(ApiKey.PRODUCE, ProduceRequest(acks=1)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert always().passing_error(ApiKey.CREATE_TOPICS, EndTxnRequest()) is None


def test_the_wait_of_a_fetch_is_removed_once() -> None:
    request = FetchRequest(max_wait_ms=500)
    odd = always()
    assert odd.remove_wait(request)
    assert request.max_wait_ms == 0
    assert not odd.remove_wait(request)
    assert odd.as_json()["oddities"] == [
        {"name": name, "percent": 100, "done": int(name == "early fetch")} for name in PERCENT
    ]


def test_versions_are_raised_beyond_all_that_are_known_but_not_those_of_an_older_release() -> None:
    heartbeat = ApiKey.HEARTBEAT.value
    for newest, found in ((4, range(5, 8)), (3, range(3, 4))):
        odd = ApiVersionsResponse(api_keys=[ApiVersion(api_key=heartbeat, max_version=newest)])
        always().reshape(odd)
        assert [each.max_version in found for each in odd.api_keys if each.api_key == heartbeat] == [True]


def test_a_new_producer_begins_near_the_last_epoch_but_one_with_a_transactional_id() -> None:
    for transactional_id, least in ((None, 32_700), ("t", 0)):
        odd = InitProducerIdResponse(producer_id=7)
        always().reshape(odd, InitProducerIdRequest(transactional_id=transactional_id))
        assert least <= odd.producer_epoch <= (32_766 if least else 0)


def test_an_empty_error_message_of_a_coordinator_becomes_null() -> None:
    odd = FindCoordinatorResponse(error_message="NONE", coordinators=[Coordinator(error_message="")])
    always().reshape(odd)
    assert [odd.error_message, odd.coordinators[0].error_message] == [None, None]


def test_metadata_is_one_change_behind() -> None:
    odd = always()
    responses = [odd.metadata_before(b"all", each) for each in (b"first", b"first", b"second", b"second", b"third")]
    assert responses == [b"first", b"first", b"first", b"first", b"second"]
    assert odd.metadata_before(b"one topic", b"third") == b"third"


def drawn(odd: Odd, *requests: tuple[str, ApiKey]) -> dict[str, list[ErrorCode | None]]:
    """Returns the errors that replaced responses, keyed by the client id of the requests. None means that the response
    was not replaced."""
    found: dict[str, list[ErrorCode | None]] = {}
    for number, (client_id, api) in enumerate(requests):
        odd.begin_request(api, client_id, number)
        found.setdefault(client_id, []).append(odd.passing_error(api, EndTxnRequest()))
    return found


def test_a_seed_repeats_for_one_client_whatever_other_clients_send() -> None:
    alone = [("one", ApiKey.END_TXN)] * 50
    others = (("two", ApiKey.END_TXN), ("one", ApiKey.JOIN_GROUP), ("one", ApiKey.END_TXN))
    among = [each for _ in alone for each in others]
    often = {"passing error": 50}
    expected = drawn(Odd.of(7, often), *alone)["one"]
    assert drawn(Odd.of(7, often), *among)["one"][1::2] == expected
    assert len(set(expected)) > 2
    assert drawn(Odd.of(8, often), *alone)["one"] != expected


def test_the_last_oddities_are_reported_with_their_requests() -> None:
    odd = always()
    first = odd.begin_request(ApiKey.END_TXN, "one", 41)
    odd.begin_request(ApiKey.HEARTBEAT, "two", 42)
    odd.resume(first)
    odd.passing_error(ApiKey.END_TXN, EndTxnRequest())
    assert odd.as_json()["recent"] == [
        {"name": "passing error", "api": "EndTxn", "client_id": "one", "correlation_id": 41}
    ]
