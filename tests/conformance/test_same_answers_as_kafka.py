"""Tests that Apache Kafka and Odradek give the same responses to the same valid and invalid requests, at every version.
Odradek emulates the Kafka release that it is compared with.

If BROKER=kafka is set, a second Kafka replaces Odradek. Any difference is then a fault in the comparison itself.
"""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.protocol.messages.describe_cluster_request import DescribeClusterRequest
from odradek.protocol.messages.describe_cluster_response import DescribeClusterResponse
from tests.conformance.differential import (
    admin_script,
    consumer_groups_script,
    created_again_script,
    frames_script,
    group_types_script,
    groups_script,
    kafka_4_4_script,
    quorum_script,
    records_script,
    repeated_script,
    replicas_script,
    settings_script,
    share_groups_script,
    share_offsets_script,
    share_state_script,
    topics_script,
)
from tests.conformance.differential.conversation import Place, Talk, Trace, differences
from tests.conformance.differential.differences import reason_for
from tests.support.broker_process import EMULATED, REFERENCE, Broker, KafkaProcess, new_broker
from tests.support.oracle import IS_THERE, ORACLE, needs_kafka
from tests.support.wire import Wire

pytestmark = needs_kafka

SETTINGS: dict[str, object] = {
    "offsets.topic.num.partitions": 4,
    "group.min.session.timeout.ms": 100,
    "group.consumer.assignment.interval.ms": 0,
    # The scripts write records that are years old. With the default settings, the broker would delete them and forget a
    # producer between two of its batches.
    "log.retention.ms": -1,
    "producer.id.expiration.check.interval.ms": 3_600_000,
}
SHOWN = 40  # number of differences that a failed test prints

Script = Callable[[Talk, int], None]
SCRIPTS: dict[Script, int] = {
    **records_script.SCRIPTS,
    **admin_script.SCRIPTS,
    **topics_script.SCRIPTS,
    **replicas_script.SCRIPTS,
    **quorum_script.SCRIPTS,
    **settings_script.SCRIPTS,
    **groups_script.SCRIPTS,
    **consumer_groups_script.SCRIPTS,
    **group_types_script.SCRIPTS,
    **share_groups_script.SCRIPTS,
    **share_offsets_script.SCRIPTS,
    **share_state_script.SCRIPTS,
    **frames_script.SCRIPTS,
    **kafka_4_4_script.SCRIPTS,
    **created_again_script.SCRIPTS,
    **repeated_script.SCRIPTS,  # last, because some of its groups remain in states that ListGroups would show
}

LOWEST = (
    kafka_4_4_script.LOWEST
    | created_again_script.LOWEST
    | groups_script.LOWEST
    | repeated_script.LOWEST
    | share_state_script.LOWEST
)


def advertised_by_kafka(release: str) -> dict[int, tuple[int, int]]:
    if not IS_THERE:
        return {}
    apis = json.loads((ORACLE / "exchanges" / f"api-versions-{release}.json").read_text())["apis"]
    return {api["key"]: (api["min"], api["max"]) for api in apis}


KAFKA_VERSIONS = {release: advertised_by_kafka(release) for release in EMULATED}


def place(broker: Broker) -> Place:
    with Wire(broker.bootstrap) as wire:
        described = wire.ask(DescribeClusterRequest(), 0, DescribeClusterResponse)
    return Place(broker.bootstrap, str(broker.data_dir), described.cluster_id)


@pytest.fixture(scope="session", params=EMULATED)
def release(request: pytest.FixtureRequest) -> str:
    """Returns the release to compare with. The session scope makes pytest run all cases of one release first, instead
    of restarting the brokers for each case."""
    return str(request.param)


@pytest.fixture(scope="module")
def pair(release: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Place, Place]]:
    folder = tmp_path_factory.mktemp("pair")
    kafka_itself = KafkaProcess(folder / "kafka", SETTINGS, version=release)
    with kafka_itself as kafka, new_broker(folder / "ours", SETTINGS, like=release) as ours:
        yield place(kafka), place(ours)


def trace_of(script: Script, version: int, where: Place) -> Trace:
    talk = Talk(where)
    try:
        script(talk, version)
        return talk.trace()
    finally:
        talk.close()


def lowest(script: Script, key: int) -> int:
    """Returns the lowest version to compare. Produce 0 to 2 are advertised only because librdkafka requires them, and
    are not supported."""
    return max(KAFKA_VERSIONS[REFERENCE][key][0], 3 if key == 0 else 0, LOWEST.get(script, 0))


CASES = [
    pytest.param(script, version, id=f"{script.__module__.split('.')[-1]}-{script.__name__}-v{version}")
    for script, key in SCRIPTS.items()
    if key in KAFKA_VERSIONS[REFERENCE]
    for version in range(lowest(script, key), KAFKA_VERSIONS[REFERENCE][key][1] + 1)
]


@pytest.mark.parametrize(("script", "version"), CASES)
def test_odradek_and_kafka_answer_alike(release: str, pair: tuple[Place, Place], script: Script, version: int) -> None:
    if version > KAFKA_VERSIONS[release].get(SCRIPTS[script], (0, -1))[1]:
        pytest.skip(f"Kafka {release} has no such version")
    with ThreadPoolExecutor(2) as both:
        kafka, ours = both.map(lambda where: trace_of(script, version, where), pair)
    assert kafka, "the script said nothing"
    found = [one for one in differences(kafka, ours) if reason_for(*one) is None]
    shown = [
        f"{asked}\n    {path}\n      Kafka: {theirs!r:.300}\n      ours:  {own!r:.300}"
        for asked, path, theirs, own in found
    ]
    assert not found, f"{len(found)} differences\n" + "\n".join(shown[:SHOWN])


def test_api_versions_are_advertised_as_by_kafka(release: str, pair: tuple[Place, Place]) -> None:
    with Wire(pair[1].bootstrap) as wire:
        request = ApiVersionsRequest(client_software_name="wire", client_software_version="1")
        answer = wire.ask(request, 4, ApiVersionsResponse)
    ours = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
    assert set(SCRIPTS.values()) & KAFKA_VERSIONS[release].keys() <= set(ours)
    ahead = {} if EMULATED[release] else {22: (0, 6)}  # not advertised by Kafka: docs/compatibility.md
    assert {key: versions for key, versions in ours.items() if KAFKA_VERSIONS[release].get(key) != versions} == ahead
