"""Tests that emulated releases offer the same APIs, features and settings as the real ones and give the same answers to
requests whose answers depend on the release.

Each exception must be listed in `ABSENT` or `ANSWERED_DIFFERENTLY`.
"""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages import request_class
from odradek.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from odradek.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.delete_groups_request import DeleteGroupsRequest
from odradek.protocol.messages.describe_groups_request import DescribeGroupsRequest
from odradek.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.sync_group_request import SyncGroupRequest
from odradek.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.protocol.struct import Message, Struct
from odradek.testing.sync import Cluster, Odradek
from tests.clients.admin import create_topic
from tests.clients.speakers import SPEAKERS
from tests.clients.speakers import Message as Sent
from tests.conformance.releases import RECORDED, RELEASES, api_versions, reported_versions, running, text_of
from tests.support.oracle import needs_kafka
from tests.support.wire import ClosedByBroker, Wire

GO = Path(__file__).parent / "go"
PARTITIONS = 6
SETTINGS: Mapping[str, object] = {
    "offsets.topic.num.partitions": 4,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 100,
}
# APIs that Odradek does not support; see docs/compatibility.md.
ABSENT = frozenset(
    {
        *("AddRaftVoter", "RemoveRaftVoter", "UnregisterBroker", "AssignReplicasToDirs"),
        *("LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown"),
    }
)
# 3.9 refuses each feature update separately. 4.0 refuses the complete request, and so does an emulated 3.9.
ANSWERED_DIFFERENTLY: Mapping[str, frozenset[str]] = {"3.9": frozenset({"UpdateFeatures"})}


@dataclass(frozen=True, slots=True)
class Pair:
    """A running release of Kafka, and a cluster that emulates it."""

    name: str
    kafka: str
    ours: str

    def ranges(self, bootstrap: str) -> Mapping[str, list[int]]:
        found: Mapping[str, list[int]] = reported_versions(api_versions(int(bootstrap.rpartition(":")[2])))["apis"]
        return found


@pytest.fixture(scope="module")
def odradek() -> Iterator[Odradek]:
    with Odradek.start() as started:
        yield started


@pytest.fixture(scope="module", params=sorted(RELEASES))
def pair(request: pytest.FixtureRequest, odradek: Odradek) -> Iterator[Pair]:
    version, features = RELEASES[request.param]
    starting = running(version, features)
    try:
        port = starting.__enter__()
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"Kafka {version} cannot be had: {error}")
    try:
        with odradek.cluster(emulate=request.param, settings={"group.initial.rebalance.delay.ms": 0}) as cluster:
            yield Pair(request.param, f"127.0.0.1:{port}", cluster.bootstrap)
    finally:
        starting.__exit__(None, None, None)


@needs_kafka
def test_a_release_offers_its_recorded_api_versions(pair: Pair) -> None:
    recorded = json.loads(RECORDED.read_text())[pair.name]
    reported = reported_versions(api_versions(int(pair.kafka.rpartition(":")[2])))
    assert text_of({name: recorded[name] for name in reported}) == text_of(reported)


@needs_kafka
def test_apis_and_versions_are_those_of_the_release_but_for_the_known_differences(pair: Pair) -> None:
    of_kafka, of_ours = pair.ranges(pair.kafka), pair.ranges(pair.ours)
    assert of_ours.keys() - of_kafka.keys() == set()
    assert of_kafka.keys() - of_ours.keys() <= ABSENT
    differing = {api: (of_kafka[api], found) for api, found in of_ours.items() if found != of_kafka[api]}
    assert all(least >= lowest and most == highest for (lowest, highest), (least, most) in differing.values()), (
        differing
    )
    # The only versions missing are those that 4.0 removed (KIP-896).
    assert not differing or pair.name == "3.9", differing


@needs_kafka
def test_features_are_those_of_the_release(pair: Pair) -> None:
    of_kafka, of_ours = (
        reported_versions(api_versions(int(each.rpartition(":")[2]))) for each in (pair.kafka, pair.ours)
    )
    for part in ("supported", "finalized"):
        assert of_kafka[part] == of_ours[part]


def outcome_of(bootstrap: str, frame: bytes, api: ApiKey, version: int) -> object:
    """Sends a frame. Returns the error codes of the response, or `closed` if the broker closes the connection."""
    with Wire(bootstrap) as wire:
        wire.send_bytes(frame)
        try:
            return codes(wire.receive(api.value, version))
        except ClosedByBroker:
            return "closed"


def codes(answer: object) -> list[int]:
    """Returns the error codes of a response, in order of appearance."""
    found: list[int] = []
    if isinstance(answer, list):
        for each in answer:
            found += codes(each)
    elif isinstance(answer, Struct):
        for name in answer.__slots__:
            value = getattr(answer, name)
            found += [value] if name.endswith("error_code") else codes(value)
    return found


@needs_kafka
def test_a_version_beyond_the_range_is_met_as_by_the_release(pair: Pair) -> None:
    """For each API, the release and its emulation give the same answer to the first version that they do not support.
    The request's body is encoded at the highest supported version."""
    both = pair.ranges(pair.ours)
    differing = {}
    for api in ApiKey:
        if api.kafka_name not in both:
            continue
        version = both[api.kafka_name][1] + 1
        frame = bytearray(request_bytes(request_class(api.value)(), version - 1, 7, "edge"))
        frame[6:8] = version.to_bytes(2)
        found = [outcome_of(each, bytes(frame), api, version) for each in (pair.kafka, pair.ours)]
        if found[0] != found[1]:
            differing[api.kafka_name] = found
    assert differing == {}


def questions() -> Iterator[Message]:
    """Yields requests whose answers depend on the release or on feature levels."""
    yield ConsumerGroupHeartbeatRequest(group_id="modern", member_epoch=0, rebalance_timeout_ms=1_000)
    yield ConsumerGroupDescribeRequest(group_ids=["missing"])
    yield DescribeGroupsRequest(groups=["missing"])
    yield DeleteGroupsRequest(groups_names=["missing"])
    yield DescribeTransactionsRequest(transactional_ids=["missing"])
    yield FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    yield FindCoordinatorRequest(key_type=9, coordinator_keys=["g"])
    yield HeartbeatRequest(group_id="g", generation_id=1, member_id="nobody")
    yield JoinGroupRequest(
        group_id="g",
        session_timeout_ms=1,
        rebalance_timeout_ms=1_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    yield SyncGroupRequest(group_id="g", generation_id=1, member_id="nobody")
    yield LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="nobody")])
    yield ListGroupsRequest()
    yield MetadataRequest(topics=[MetadataRequestTopic(name="missing")], allow_auto_topic_creation=False)
    yield InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1_000)
    yield InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1_000_000_000)
    yield EndTxnRequest(transactional_id="nobody", producer_id=99, producer_epoch=0, committed=True)
    yield AddOffsetsToTxnRequest(transactional_id="nobody", producer_id=99, producer_epoch=0, group_id="g")
    for feature in ("transaction.version", "group.version", "share.version", "metadata.version", "unknown.version"):
        update = FeatureUpdateKey(feature=feature, max_version_level=99, upgrade_type=1)
        yield UpdateFeaturesRequest(feature_updates=[update], validate_only=True)


@needs_kafka
def test_requests_at_the_edge_of_the_release_have_its_answers(pair: Pair) -> None:
    both = pair.ranges(pair.ours)
    for bootstrap in (pair.kafka, pair.ours):  # This creates the coordinators' internal topics.
        for name, kind in (("group-1", "group"), ("t", "transaction")):
            settle_coordinator(bootstrap, name, kind)
    differing: dict[str, Any] = {}
    known = ANSWERED_DIFFERENTLY.get(pair.name, frozenset())
    for question in questions():
        api = ApiKey(question.API_KEY)
        if api.kafka_name not in both:
            continue
        version = both[api.kafka_name][1]
        frame = request_bytes(question, version, 7, "edge")
        found = [settled(each, frame, api, version) for each in (pair.kafka, pair.ours)]
        assert api.kafka_name not in known or found[0] != found[1], "it is no difference any more"
        if found[0] != found[1] and api.kafka_name not in known:
            differing[repr(question)[:200]] = found
    assert differing == {}


PASSING = {14, 15, 16}  # The coordinator is loading, not available, or on another broker.
PATIENCE_S = 60
POLL_INTERVAL_S = 0.05


def settled(bootstrap: str, frame: bytes, api: ApiKey, version: int) -> object:
    """Resends a frame until the response no longer reports a loading coordinator. Returns the outcome."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        found = outcome_of(bootstrap, frame, api, version)
        if not isinstance(found, list) or not PASSING & set(found) or time.monotonic() > until_s:
            return found
        time.sleep(POLL_INTERVAL_S)


def settle_coordinator(bootstrap: str, key: str, kind: str) -> None:
    version = 4
    request = FindCoordinatorRequest(key_type=0 if kind == "group" else 1, coordinator_keys=[key])
    frame = request_bytes(request, version, 7, "edge")
    assert settled(bootstrap, frame, ApiKey.FIND_COORDINATOR, version) == [0, 0]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("go") is None:
        pytest.skip("needs Go")
    built = tmp_path_factory.mktemp("go") / "consumers"
    done = subprocess.run(["go", "build", "-o", str(built), "."], cwd=GO, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return built


def beyond(kafka: Cluster, ranges: Mapping[str, list[int]]) -> set[tuple[str, int]]:
    """Returns the API and version of each request that the release does not support."""
    versions = {(each["api"], each["version"]) for each in kafka.requests()}
    return {
        (api, version)
        for api, version in versions
        if api != "ApiVersions" and not ranges[api][0] <= version <= ranges[api][1]
    }


@pytest.mark.parametrize("name", sorted(RELEASES))
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_franz_go_agrees_on_the_versions_of_the_release(
    odradek: Odradek, program: Path, name: str, protocol: str
) -> None:
    with odradek.cluster(emulate=name, settings=SETTINGS) as kafka:
        ranges: Mapping[str, list[int]] = reported_versions(api_versions(int(kafka.bootstrap.rpartition(":")[2])))[
            "apis"
        ]
        topic = create_topic(kafka.bootstrap, protocol, PARTITIONS)
        sent = [Sent(b"%d" % index, partition=index) for index in range(PARTITIONS)]
        SPEAKERS["confluent-kafka"].produce(kafka.bootstrap, topic, sent)
        ran = subprocess.run(
            [program, kafka.bootstrap, topic, "g", protocol], capture_output=True, text=True, timeout=120
        )
        # Without group.version, franz-go falls back to the classic protocol without an error.
        assert ran.stdout.splitlines()[-1:] == ["read again: 0"], ran.stderr
        assert beyond(kafka, ranges) == set()
        if protocol == "consumer" and name != "3.9":
            assert kafka.requests(api="ConsumerGroupHeartbeat")
