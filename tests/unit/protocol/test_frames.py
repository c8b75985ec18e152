"""Tests the headers in request and response frames."""

import pytest

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.frames import LENGTH_BYTES, RequestHeader, read_request_header, request_bytes, response_chunks
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.protocol.primitives import varint

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


@pytest.mark.parametrize("client_id", [None, "", "größe"])
@pytest.mark.parametrize("version", [0, 4])
def test_a_request_can_be_read_back(client_id: str | None, version: int) -> None:
    framed = request_bytes(HEARTBEAT, version, 77, client_id)
    frame = framed[LENGTH_BYTES:]
    assert int.from_bytes(framed[:LENGTH_BYTES], "big") == len(frame)
    header, position = read_request_header(frame)
    assert header == RequestHeader(ApiKey.HEARTBEAT.value, version, 77, client_id)
    assert decode(HeartbeatRequest, version, frame, position) == HEARTBEAT


def test_the_client_id_keeps_its_two_byte_length_in_flexible_versions() -> None:
    assert request_bytes(HEARTBEAT, 4, 1, "me")[LENGTH_BYTES:] == (
        bytes.fromhex("000c 0004 00000001 0002") + b"me" + b"\0" + encode(HEARTBEAT, 4)
    )


def test_tagged_fields_in_a_request_header_are_skipped() -> None:
    frame = request_bytes(HEARTBEAT, 4, 1, None)[LENGTH_BYTES:]
    tagged = frame[:10] + b"\2\0\1x\x09\0" + frame[11:]
    header, position = read_request_header(tagged)
    assert header.client_id is None
    assert decode(HeartbeatRequest, 4, tagged, position) == HEARTBEAT


@pytest.mark.parametrize("count", [10_001, 40_000_000])
def test_more_tagged_fields_than_anybody_sends_are_refused_unread(count: int) -> None:
    frame = request_bytes(HEARTBEAT, 4, 1, None)[LENGTH_BYTES:]
    with pytest.raises(MalformedMessage, match=f"{count} unknown tagged fields"):
        read_request_header(frame[:10] + varint(count))


def test_a_response_has_tagged_fields_in_its_header_when_its_body_is_flexible() -> None:
    response = HeartbeatResponse(throttle_time_ms=5)
    for version, header in ((3, bytes.fromhex("0000000a 0000004d")), (4, bytes.fromhex("0000000c 0000004d 00"))):
        assert b"".join(response_chunks(ApiKey.HEARTBEAT.value, version, 77, response)) == (
            header + encode(response, version)
        )


@pytest.mark.parametrize("version", [0, 3, 4])
def test_api_versions_is_answered_without_tagged_fields_in_the_header(version: int) -> None:
    framed = b"".join(response_chunks(ApiKey.API_VERSIONS.value, version, 77, ApiVersionsResponse()))
    assert framed[LENGTH_BYTES:] == (77).to_bytes(4, "big") + encode(ApiVersionsResponse(), version)


def test_the_header_of_an_unknown_api_versions_version_can_still_be_read() -> None:
    frame = bytearray(request_bytes(ApiVersionsRequest(client_software_name="c"), 4, 9, "me")[LENGTH_BYTES:])
    frame[2:4] = (32767).to_bytes(2, "big")
    header, position = read_request_header(frame)
    assert (header.api_version, header.correlation_id, header.client_id) == (32767, 9, "me")
    assert position == 13


def test_large_records_travel_in_a_part_of_their_own_and_the_length_counts_them() -> None:
    records = memoryview(bytes(1 << 20))
    partition = PartitionData(partition_index=1, records=records)
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
    chunks = response_chunks(ApiKey.FETCH.value, 12, 1, response)
    assert any(chunk is records for chunk in chunks)
    assert int.from_bytes(chunks[0][:LENGTH_BYTES], "big") == sum(map(len, chunks)) - LENGTH_BYTES


def test_an_unknown_api_is_malformed() -> None:
    for api_key in (-1, 4, 7, 999):
        with pytest.raises(MalformedMessage, match="unknown API key"):
            read_request_header(api_key.to_bytes(2, "big", signed=True) + bytes(20))


def test_a_client_id_longer_than_its_frame_is_malformed() -> None:
    with pytest.raises(MalformedMessage, match="client id"):
        read_request_header(bytes.fromhex("000c 0000 00000001 7fff") + b"me")
