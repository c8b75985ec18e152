"""Tests that Apache Kafka and Odradek give the same responses to transactional requests, at every version and every
transaction.version. Odradek emulates the Kafka release that it is compared with.

UpdateFeatures changes the level of both brokers at run time. If BROKER=kafka is set, a second Kafka replaces Odradek.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from tests.conformance.differential import (
    repeated_transactions_script,
    transactional_partitions_script,
    transactions_script,
)
from tests.conformance.differential.conversation import Place, Talk, Trace, differences
from tests.conformance.differential.differences import reason_for
from tests.conformance.differential.transactional_client import Client
from tests.conformance.differential.transactions_script import (
    SAFE_DOWNGRADE,
    UPGRADE,
    LevelScript,
    wait_for_coordinators,
)
from tests.conformance.test_same_answers_as_kafka import KAFKA_VERSIONS, SHOWN, place
from tests.support.broker_process import EMULATED, REFERENCE, KafkaProcess, new_broker
from tests.support.oracle import needs_kafka

pytestmark = needs_kafka

SETTINGS: dict[str, object] = {
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "log.retention.ms": -1,  # the records are dated 2023
}
LEVELS = (2, 1, 0)
SCRIPTS: dict[LevelScript, int] = {
    **transactions_script.SCRIPTS,
    **transactional_partitions_script.SCRIPTS,
    **repeated_transactions_script.SCRIPTS,
}
# By API key: the first version of the protocol for transaction.version 2. At level 0, Kafka cannot store the state that
# these versions require and leaves the transactional id blocked (docs/spec/transactions.md#s2-12). Odradek answers
# these versions like older ones.
NEW_PROTOCOL = {0: 12, 24: 4, 26: 5, 28: 5}
# The level does not affect partitions, so it is enough to run the first and the last version.
HARDLY_AT_LOWER_LEVELS = {0, 1, 2}


def versions_of(key: int, level: int) -> list[int]:
    first, last = KAFKA_VERSIONS[REFERENCE][key]
    first = max(first, transactional_partitions_script.FIRST_VERSION.get(key, 0))
    if level == 0:
        last = min(last, NEW_PROTOCOL.get(key, last + 1) - 1)
    if level < 2 and key in HARDLY_AT_LOWER_LEVELS:
        return [first, last]
    return list(range(first, last + 1))


CASES = [
    pytest.param(level, script, version, id=f"tv{level}-{script.__name__}-v{version}")
    for level in LEVELS
    for script, key in SCRIPTS.items()
    if key in KAFKA_VERSIONS[REFERENCE]
    for version in versions_of(key, level)
]


@pytest.fixture(scope="session", params=EMULATED)
def release(request: pytest.FixtureRequest) -> str:
    """Returns the release to compare with. The session scope makes pytest run all cases of one release first, instead
    of restarting the brokers for each case."""
    return str(request.param)


@pytest.fixture(scope="module")
def pair(release: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Place, Place]]:
    folder: Path = tmp_path_factory.mktemp("transactions")
    kafka_itself = KafkaProcess(folder / "kafka", SETTINGS, version=release)
    with kafka_itself as kafka, new_broker(folder / "ours", SETTINGS, like=release) as ours:
        yield place(kafka), place(ours)


@pytest.fixture(scope="module")
def level(request: pytest.FixtureRequest, pair: tuple[Place, Place]) -> int:
    for where in pair:
        set_transaction_version(where, request.param)
    return int(request.param)


def set_transaction_version(where: Place, level: int) -> None:
    talk = Talk(where)
    wait_for_coordinators(talk)
    Client(talk, "first").init()
    present = transaction_version(talk)
    if present != level:
        update = FeatureUpdateKey(
            feature="transaction.version",
            max_version_level=level,
            upgrade_type=UPGRADE if level > present else SAFE_DOWNGRADE,
        )
        answer = talk.quietly(UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[update]), 1)
        assert (answer.error_code, [one.error_code for one in answer.results]) == (0, [0]), answer
        deadline = time.monotonic() + 20
        while transaction_version(talk) != level:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    talk.close()


def transaction_version(talk: Talk) -> int:
    answer = talk.quietly(ApiVersionsRequest(client_software_name="talk", client_software_version="1"), 4)
    return next((one.max_version_level for one in answer.finalized_features if one.name == "transaction.version"), 0)


def trace_of(script: LevelScript, version: int, level: int, where: Place) -> Trace:
    talk = Talk(where)
    try:
        script(talk, version, level)
        return talk.trace()
    finally:
        talk.close()


@pytest.mark.parametrize(("level", "script", "version"), CASES, indirect=["level"], scope="module")
def test_odradek_and_kafka_answer_transactional_requests_alike(
    release: str, pair: tuple[Place, Place], level: int, script: LevelScript, version: int
) -> None:
    if version > KAFKA_VERSIONS[release][SCRIPTS[script]][1]:
        pytest.skip(f"Kafka {release} has no such version")
    with ThreadPoolExecutor(2) as both:
        kafka, ours = both.map(lambda where: trace_of(script, version, level, where), pair)
    assert kafka, "the script said nothing"
    found = [one for one in differences(kafka, ours) if reason_for(*one) is None]
    shown = [
        f"{asked}\n    {path}\n      Kafka: {theirs!r:.300}\n      ours:  {own!r:.300}"
        for asked, path, theirs, own in found
    ]
    assert not found, f"{len(found)} differences\n" + "\n".join(shown[:SHOWN])
