"""Tests that Odradek serves the same contents as Kafka from directories written by Apache Kafka."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.observe import Observer
from tests.support.broker_process import Broker, new_broker
from tests.support.oracle import IS_THERE, acknowledged, directories, needs_oracle, served, unpack

pytestmark = needs_oracle

NAMES = directories() if IS_THERE else []
DAY_MS = 86_400_000


def settings(recorded: dict[str, Any]) -> dict[str, object]:
    """Returns the recorded settings, with all expiry times extended by the age of the recording."""
    age_ms = int(time.time() * 1000) - recorded["recordedAtMs"]
    return {
        **recorded["settings"],
        "producer.id.expiration.ms": DAY_MS + age_ms,
        "offsets.retention.minutes": 7 * 24 * 60 + age_ms // 60_000 + 1,
        "transactional.id.expiration.ms": 7 * DAY_MS + age_ms,
        "log.cleaner.enable": "false",  # keeps the compacted topics as they were recorded
    }


class ServedDirectory:
    def __init__(self, name: str, broker: Broker, observer: Observer) -> None:
        self.name, self.broker, self.observer, self.expected = name, broker, observer, served(name)


@pytest.fixture(scope="module", params=NAMES)
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedDirectory]:
    path = unpack(request.param, tmp_path_factory.mktemp("recorded"))
    with new_broker(path, settings(served(request.param))) as broker:
        observer = Observer(broker.bootstrap)
        yield ServedDirectory(request.param, broker, observer)
        observer.close()


def test_topics_have_the_same_ids_settings_offsets_records_and_producers(directory: ServedDirectory) -> None:
    found = directory.observer.topics()
    assert set(found) == set(directory.expected["topics"])
    for name, expected in directory.expected["topics"].items():
        topic = found[name]
        assert (topic["topicId"], topic["configs"]) == (expected["topicId"], expected["configs"]), name
        assert len(topic["partitions"]) == len(expected["partitions"]), name
        for index, (one, other) in enumerate(zip(topic["partitions"], expected["partitions"], strict=True)):
            other["producers"].sort(key=lambda producer: producer["producerId"])
            assert one == other, f"{name}-{index}"


def test_groups_have_the_same_state_and_offsets(directory: ServedDirectory) -> None:
    found = directory.observer.groups()
    expected = directory.expected["groups"]
    assert set(found) == set(expected)
    for name, group in expected.items():
        group.pop("described", None)  # tests/unit/broker/groups/test_kafka_wrote.py compares the members.
        if group["type"] == "Share":  # A share group has no committed offsets to compare.
            del found[name]["offsets"], group["offsets"]
        assert found[name] == group, name


def test_finalised_features_are_those_of_the_directory(directory: ServedDirectory) -> None:
    found = directory.observer.features()
    assert found
    assert found == {name: level for name, level in directory.expected["finalizedFeatures"].items() if name in found}


def test_nothing_that_was_acknowledged_is_missing_after_kill_9(tmp_path: Path) -> None:
    if not IS_THERE:
        pytest.skip("no oracle kit")
    path = unpack("unclean", tmp_path)
    with new_broker(path, settings(served("unclean"))) as broker:
        observer = Observer(broker.bootstrap)
        values = {
            (partition, offset): value
            for partition in (0, 1)
            for offset, value in observer.records_read("flood", partition, "read_uncommitted")
        }
        observer.close()
    acknowledgements = acknowledged("unclean")
    assert acknowledgements
    for one in acknowledgements:
        value = values.get((one["partition"], one["offset"]))
        assert value is not None, f"{one} is missing"
        assert re.search(rf"(?<!\d){one['n']}(?!\d)".encode(), value), f"{one}: {value[:50]!r}"


@pytest.mark.parametrize("name", ["plain-4.3.1", "plain-4.4.0"])
def test_a_served_directory_is_served_again_after_clean_stop_and_kill(name: str, tmp_path: Path) -> None:
    """Checks that the directory is served with the same contents after a clean stop and after a kill."""
    if not IS_THERE:
        pytest.skip("no oracle kit")
    recorded = served(name)
    broker = new_broker(unpack(name, tmp_path), settings(recorded))
    seen = []
    for end in (broker.stop, broker.kill9, broker.stop):
        broker.start()
        observer = Observer(broker.bootstrap)
        seen.append(observer.topics())
        observer.close()
        end()
    assert seen[0] == seen[1] == seen[2]
