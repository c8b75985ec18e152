"""Tests the encoding and decoding of messages, and the refusal of invalid bytes."""

import pytest

from odradek.protocol.codec import decode, decode_from, encode, encode_chunks
from odradek.protocol.errors import MalformedMessage, UnsupportedVersion
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse, FinalizedFeatureKey
from odradek.protocol.messages.consumer_group_heartbeat_response import Assignment, ConsumerGroupHeartbeatResponse
from odradek.protocol.messages.consumer_group_member_metadata_value import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
)
from odradek.protocol.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from odradek.protocol.messages.fetch_request import FetchRequest
from odradek.protocol.messages.fetch_response import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.produce_request import ProduceRequest
from odradek.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from tests.support.requests import produce_request

HEARTBEAT = HeartbeatRequest(group_id="pay", generation_id=7, member_id="m-1")
HEARTBEAT_V0 = bytes.fromhex("0003 706179 00000007 0003 6d2d31")
HEARTBEAT_V4 = bytes.fromhex("04 706179 00000007 04 6d2d31 00 00")


def produce(records: bytes | None) -> ProduceRequest:
    return produce_request("t", records, partition=1)


def fetched(records: bytes | memoryview | list[bytes | bytearray | memoryview] | None) -> FetchResponse:
    return FetchResponse(
        responses=[FetchableTopicResponse(topic="t", partitions=[PartitionData(partition_index=1, records=records)])]
    )


def test_strings_have_two_byte_lengths_before_flexible_versions_and_varints_in_them() -> None:
    assert encode(HEARTBEAT, 0) == HEARTBEAT_V0
    assert encode(HEARTBEAT, 4) == HEARTBEAT_V4
    assert decode(HeartbeatRequest, 0, HEARTBEAT_V0) == HEARTBEAT
    assert decode(HeartbeatRequest, 4, HEARTBEAT_V4) == HEARTBEAT


def test_bytes_behind_a_message_are_ignored() -> None:
    assert decode_from(HeartbeatRequest, 4, HEARTBEAT_V4 + b"\1\2\3") == (HEARTBEAT, len(HEARTBEAT_V4))


def test_a_version_without_a_field_leaves_it_at_its_default() -> None:
    request = decode(InitProducerIdRequest, 0, bytes.fromhex("ffff 0000ea60"))
    assert request.transactional_id is None
    assert request.transaction_timeout_ms == 60_000
    assert (request.producer_id, request.producer_epoch) == (-1, -1)


def test_a_value_that_the_version_has_no_field_for_is_refused() -> None:
    with pytest.raises(UnsupportedVersion, match="GroupInstanceId"):
        encode(HeartbeatRequest(group_id="pay", member_id="m", group_instance_id="static"), 2)


def test_a_value_that_may_be_ignored_is_left_out() -> None:
    result = CreateTopicsResponse(topics=[CreatableTopicResult(name="t", topic_id=b"0123456789abcdef")])
    assert decode(CreateTopicsResponse, 2, encode(result, 2)).topics[0].topic_id == bytes(16)
    assert decode(CreateTopicsResponse, 7, encode(result, 7)).topics[0].topic_id == b"0123456789abcdef"


def test_null_is_refused_where_the_version_knows_none() -> None:
    everything = MetadataRequest(topics=None)
    assert encode(everything, 1)[:4] == b"\xff\xff\xff\xff"
    with pytest.raises(UnsupportedVersion):
        encode(everything, 0)
    with pytest.raises(MalformedMessage, match="Topics is null"):
        decode(MetadataRequest, 0, b"\xff\xff\xff\xff")


def test_every_negative_length_means_null() -> None:
    assert decode(MetadataRequest, 1, b"\xff\xff\xff\xfe").topics is None


def test_numbers_outside_their_type_are_refused() -> None:
    with pytest.raises(UnsupportedVersion):
        encode(HeartbeatRequest(group_id="pay", generation_id=2**31, member_id="m"), 0)


@pytest.mark.parametrize("version", [0, 4])
def test_strings_above_32767_bytes_are_refused_both_ways(version: int) -> None:
    longest = HeartbeatRequest(group_id="g" * 32767, member_id="m")
    assert decode(HeartbeatRequest, version, encode(longest, version)) == longest
    with pytest.raises(UnsupportedVersion):
        encode(HeartbeatRequest(group_id="g" * 32768, member_id="m"), version)
    if version == 4:
        with pytest.raises(MalformedMessage):
            decode(HeartbeatRequest, 4, b"\x81\x80\x02" + b"g" * 32768 + HEARTBEAT_V4[4:])


def test_versions_that_never_were_are_refused() -> None:
    for version in (-1, 5):
        with pytest.raises(UnsupportedVersion):
            encode(HEARTBEAT, version)
        with pytest.raises(UnsupportedVersion):
            decode(HeartbeatRequest, version, HEARTBEAT_V4)


def test_invalid_utf_8_is_malformed() -> None:
    with pytest.raises(MalformedMessage):
        decode(HeartbeatRequest, 0, HEARTBEAT_V0.replace(b"pay", b"p\xffy"))


def test_an_announced_count_is_held_against_the_bytes_left() -> None:
    with pytest.raises(MalformedMessage, match="2147483647 elements"):
        decode(MetadataRequest, 0, b"\x7f\xff\xff\xff" + bytes(100))


def test_a_list_of_empty_strings_is_fine() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="")] * 3)
    assert decode(MetadataRequest, 0, encode(request, 0)) == request


def test_varints_of_six_bytes_or_above_31_bits_are_malformed() -> None:
    for length in (b"\x80\x80\x80\x80\x80\x01", b"\xff\xff\xff\xff\x7f"):
        with pytest.raises(MalformedMessage):
            decode(HeartbeatRequest, 4, length + bytes(100))


def test_a_varint_may_be_longer_than_need_be() -> None:
    assert decode(HeartbeatRequest, 4, b"\x84\x80\x00" + HEARTBEAT_V4[1:]) == HEARTBEAT


def test_tagged_fields_are_written_only_where_they_are_set() -> None:
    assert encode(FetchRequest(), 17)[-1] == 0
    with_cluster = FetchRequest(cluster_id="c")
    assert encode(with_cluster, 17)[-5:] == b"\1\0\2\2c"
    assert decode(FetchRequest, 17, encode(with_cluster, 17)) == with_cluster


def test_a_tagged_struct_is_none_where_it_is_absent() -> None:
    response = fetched(b"")
    assert decode(FetchResponse, 12, encode(response, 12)) == response
    partition = response.responses[0].partitions[0]
    assert partition.diverging_epoch is None
    partition.diverging_epoch = EpochEndOffset(epoch=3, end_offset=40)
    assert decode(FetchResponse, 12, encode(response, 12)) == response


def test_unknown_tagged_fields_are_skipped() -> None:
    unknown = b"\2" + b"\x63\3abc" + b"\x80\x01\0"  # tags 99 (three bytes) and 128 (empty)
    assert decode_from(HeartbeatRequest, 4, HEARTBEAT_V4[:-1] + unknown) == (HEARTBEAT, len(HEARTBEAT_V4) + 8)


def test_known_and_unknown_tagged_fields_may_be_mixed() -> None:
    response = ApiVersionsResponse(
        finalized_features_epoch=5,
        finalized_features=[FinalizedFeatureKey(name="f", max_version_level=1, min_version_level=1)],
    )
    written = encode(response, 3)
    start = len(encode(ApiVersionsResponse(), 3)) - 1
    mixed = written[:start] + b"\3" + b"\x63\1x" + written[start + 1 :]
    assert decode(ApiVersionsResponse, 3, mixed) == response


def test_a_nullable_struct_has_a_byte_before_it() -> None:
    absent = ConsumerGroupHeartbeatResponse(assignment=None)
    present = ConsumerGroupHeartbeatResponse(assignment=Assignment(topic_partitions=[]))
    assert len(encode(present, 0)) == len(encode(absent, 0)) + 2
    for response in (absent, present):
        assert decode(ConsumerGroupHeartbeatResponse, 0, encode(response, 0)) == response


def test_a_nullable_struct_behind_a_tag_has_another_byte_for_null() -> None:
    member = ConsumerGroupMemberMetadataValue(
        client_id="c",
        client_host="h",
        server_assignor=None,
        rack_id=None,
        instance_id=None,
        subscribed_topic_regex=None,
        classic_member_metadata=ClassicMemberMetadata(session_timeout_ms=5),
    )
    written = bytes.fromhex("000002630268 01 00 ffffffff 00 01 00 07 01 00000005 01 00")  # encoded by Kafka 4.3.1
    assert encode(member, 0) == written
    assert decode(ConsumerGroupMemberMetadataValue, 0, written) == member
    member.classic_member_metadata = None
    null = bytes.fromhex("000002630268 01 00 ffffffff 00 01 00 01 00")  # also encoded by Kafka 4.3.1
    assert encode(member, 0) == null
    assert decode(ConsumerGroupMemberMetadataValue, 0, null) == member


def test_a_tagged_struct_of_defaults_is_not_written() -> None:
    response = fetched(b"")
    absent = encode(response, 12)
    response.responses[0].partitions[0].diverging_epoch = EpochEndOffset()
    assert encode(response, 12) == absent


@pytest.mark.parametrize("version", [7, 9])
def test_records_are_views_into_the_frame(version: int) -> None:
    frame = bytearray(encode(produce(b"batch"), version))
    records = decode(ProduceRequest, version, frame).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert bytes(records) == b"batch"
    records[:1] = b"B"
    assert b"Batch" in frame


def test_other_bytes_are_copies() -> None:
    frame = bytearray(encode(SaslAuthenticateRequest(auth_bytes=b"secret"), 2))
    request = decode(SaslAuthenticateRequest, 2, memoryview(frame))
    frame[:] = bytes(len(frame))
    assert request.auth_bytes == b"secret"


@pytest.mark.parametrize("version", [4, 12])
def test_large_records_are_handed_on_and_not_copied(version: int) -> None:
    large = memoryview(bytes(100_000))
    chunks = encode_chunks(fetched(large), version)
    assert any(chunk is large for chunk in chunks)
    assert b"".join(chunks) == encode(fetched(bytes(100_000)), version)


@pytest.mark.parametrize("version", [4, 12])
def test_records_may_come_in_parts(version: int) -> None:
    parts = fetched([b"a" * 10, memoryview(b"b" * 10_000), b"", bytearray(b"c")])
    assert encode(parts, version) == encode(fetched(b"a" * 10 + b"b" * 10_000 + b"c"), version)


@pytest.mark.parametrize("version", [7, 9])
def test_null_and_empty_records_differ(version: int) -> None:
    for records in (None, b""):
        request = decode(ProduceRequest, version, encode(produce(records), version))
        assert request.topic_data[0].partition_data[0].records == records
