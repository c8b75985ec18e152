"""Tests that KafkaShareConsumer from kafka-clients 4.3.1 and 4.4.0 behaves as it does with Kafka. The tests cover every
way of acknowledging, renewal, both acquire modes, isolation from transactions, and rejection into a dead-letter queue.

If BROKER=kafka is set, the tests run against Kafka and expect the same results.
"""

from collections.abc import Iterator

import pytest

from tests.clients.admin import create_topic
from tests.clients.test_share_consumers import QUICK
from tests.conformance.tools import Tools
from tests.support.broker_process import Broker, new_broker
from tests.support.oracle import needs_kafka

pytestmark = needs_kafka

TEN = "0 1 2 3 4 5 6 7 8 9"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with new_broker(tmp_path_factory.mktemp("broker") / "data", {"offsets.topic.num.partitions": 4, **QUICK}) as broker:
        yield broker


STORIES = {
    "implicit": [
        f"polled: {TEN}",
        "one by one: IllegalStateException",
        "polled again: ",
        "the next: 10 11",
        "committed: done",
        "the last: 12",
        "told: [acknowledged]",
        "another member: 12 (2) 13",
    ],
    "explicit": [
        f"polled: {TEN}",
        "polled without acknowledgements: IllegalStateException",
        "of a record that was not polled: IllegalStateException",
        "committed: done",
        "released: 1 (2) 3 (2)",
        "released by the end: 1 (3) 3 (3)",
        "committed: done",
        "the next: 10",
        "told: [acknowledged]",
    ],
    "renew": [
        "lock: 1500",
        "renewed: done",
        f"kept: {TEN}",
        "accepted: done",
        "the next: 10",
        "told: [acknowledged]",
    ],
    "expiry": [
        f"the other: {TEN.replace(' ', ' (2) ')} (2)",
        "too late: InvalidRecordStateException",
        "in time: done",
    ],
    "recordLimit": ["three: 0 1 2", "the others: 3 4 5 6 7 8 9", "committed: done"],
    "batchOptimized": [f"a batch: {TEN}", "the others: 10 11", "committed: done"],
    "deadLetters": [
        "committed: done",
        "again: 3 (2) 4 (2) 5 (2)",
        "committed: done",
        *(f"{number}: {number}, 1, Offset rejected by client." for number in range(3)),
        *(f"{number}: {number}, 2, Offset delivery count exceeded the threshold." for number in range(3, 6)),
    ],
    "committed": ["while it is open: committed", "in the end: committed open last"],
    "uncommitted": ["while it is open: aborted committed open", "in the end: aborted committed open last"],
}


@pytest.mark.parametrize("name", STORIES)
def test_javas_share_consumers_see_the_expected_story(clients: Tools, broker: Broker, name: str) -> None:
    topic = create_topic(broker.bootstrap, name)
    assert clients.run("shared", broker.bootstrap, name, topic).lines == STORIES[name]
