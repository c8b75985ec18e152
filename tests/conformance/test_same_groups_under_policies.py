"""Tests that groups of both protocols get the same responses from Odradek as from Kafka, under each
`group.consumer.migration.policy` except the default.

tests/conformance/test_same_answers_as_kafka.py covers the default, which is bidirectional.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conformance.differential import consumer_groups_script, group_types_script
from tests.conformance.differential.conversation import Place, differences
from tests.conformance.differential.differences import reason_for
from tests.conformance.test_same_answers_as_kafka import SETTINGS, Script, place, trace_of
from tests.support.broker_process import EMULATED, KafkaProcess, new_broker
from tests.support.oracle import needs_kafka

pytestmark = needs_kafka

SCRIPTS: dict[Script, int] = {  # version at which each script runs
    consumer_groups_script.upgrade: 1,
    consumer_groups_script.classic_joins: 1,
    group_types_script.offset_commit: 9,
    group_types_script.offset_fetch: 9,
    group_types_script.txn_offset_commit: 5,
    group_types_script.classic_members: 9,
}


PAIRS = [(policy, release) for policy in ("disabled", "upgrade", "downgrade") for release in EMULATED]


@pytest.fixture(scope="module", params=PAIRS, ids=" ".join)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Place, Place]]:
    policy, release = request.param
    folder = tmp_path_factory.mktemp(policy)
    settings = SETTINGS | {"group.consumer.migration.policy": policy}
    kafka_itself = KafkaProcess(folder / "kafka", settings, version=release)
    with kafka_itself as kafka, new_broker(folder / "ours", settings, like=release) as ours:
        yield place(kafka), place(ours)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_odradek_and_kafka_answer_requests_of_groups_alike(pair: tuple[Place, Place], script: Script) -> None:
    with ThreadPoolExecutor(2) as both:
        kafka, ours = both.map(lambda where: trace_of(script, SCRIPTS[script], where), pair)
    assert kafka, "the script said nothing"
    found = [one for one in differences(kafka, ours) if reason_for(*one) is None]
    assert not found
