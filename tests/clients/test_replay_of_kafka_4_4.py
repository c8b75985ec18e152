"""Tests that requests that Kafka 4.4 changed get the same answers from Odradek as in a recording of Kafka 4.4.0. Does
not need Java."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.exchange import read_answer, read_request
from odradek.protocol.frames import LENGTH_BYTES, request_bytes, response_chunks
from odradek.protocol.recording import Kind, Recording, RecordingEntry
from tests.support.broker_process import IS_KAFKA
from tests.support.commands import command

pytestmark = pytest.mark.skipif(IS_KAFKA, reason="it starts brokers of its own")

RECORDED = Path(__file__).parents[1] / "support" / "recordings" / "kafka-4.4.0"
HAS_NO_LEADER = "Kafka names leader 0 at epoch 0 where it has no leader to name; docs/compatibility.md"
EXPLAINED = (
    "ApiVersions.apiKeys*=each serves APIs and versions that the other has not, or hides",
    "ApiVersions.supportedFeatures*=odradek.share.transactions",
    f"ShareFetch.*currentLeader.*={HAS_NO_LEADER}",
)
# The recording contains at least these requests, in the versions that Kafka 4.4 added or changed.
CHANGED = {
    (ApiKey.API_VERSIONS, 5),
    (ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0),
    (ApiKey.FETCH, 18),
    (ApiKey.TXN_OFFSET_COMMIT, 6),
    (ApiKey.DELETE_GROUPS, 3),
    (ApiKey.UNREGISTER_CONTROLLER, 0),
    (ApiKey.UPDATE_FEATURES, 2),
    (ApiKey.SHARE_FETCH, 2),
    (ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0),
    (ApiKey.READ_SHARE_GROUP_STATE, 0),
    (ApiKey.WRITE_SHARE_GROUP_STATE, 1),
    (ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 1),
}


def check_alike(recording: Path) -> None:
    explained = [word for each in EXPLAINED for word in ("--ignore", each)]
    done = command("replay", str(recording), "--no-pauses", "--exact", *explained)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) > 70


def entries() -> list[RecordingEntry]:
    with RECORDED.open("rb") as file:
        return list(Recording(file.read).entries())


def test_odradek_gives_the_recorded_responses_of_kafka_4_4_0() -> None:
    check_alike(RECORDED)


def test_the_recording_has_the_api_versions_that_kafka_4_4_changed() -> None:
    received = [each.body for each in entries() if each.kind is Kind.RECEIVED]
    versions = {(int.from_bytes(body[:2]), int.from_bytes(body[2:4])) for body in received}
    assert {(api.value, version) for api, version in CHANGED} <= versions


def test_its_frames_are_read_and_written_byte_for_byte() -> None:
    keys: dict[int, tuple[int, int]] = {}
    for entry in entries():
        if entry.kind is Kind.RECEIVED:
            read = read_request(memoryview(entry.body))
            header = read.header
            keys[entry.exchange] = header.api_key, header.api_version
            written = request_bytes(read.message, header.api_version, header.correlation_id, header.client_id)
            assert written[LENGTH_BYTES:] == entry.body
        elif entry.kind is Kind.ANSWERED:
            key, version = keys[entry.exchange]
            if key == ApiKey.API_VERSIONS.value:
                continue  # An error response is shorter than other responses: docs/spec/kafka-4.4.md#s1-2.
            answer = read_answer(key, version, memoryview(entry.body), has_length=False).message
            correlation_id = int.from_bytes(entry.body[:4], signed=True)
            assert b"".join(response_chunks(key, version, correlation_id, answer))[LENGTH_BYTES:] == entry.body
