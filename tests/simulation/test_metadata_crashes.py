"""Tests that the metadata log keeps acknowledged changes through a crash at any disk call, and that the broker starts
again."""

import os
from collections.abc import Callable
from contextlib import suppress

import pytest

from odradek.broker.configuration.resources import SettingChange
from odradek.broker.metadata.config_changes import ResourceChanges, alter_configs
from odradek.broker.metadata.image import MetadataImage
from odradek.broker.metadata.topics import delete_topics
from tests.support.fake_disk import FakeDisk, ProcessCrashed
from tests.support.metadata import FEATURES, Running

SEED = int(os.environ.get("SEED", "1"))


class Session:
    """A workload, and its acknowledged topics with their settings, by name. `doubt` contains the topic of the
    unanswered request."""

    def __init__(self) -> None:
        self.topics: dict[str, dict[str, str]] = {}
        self.next_producer_id = 0
        self.doubt: set[str] = set()

    def run(self, disk: FakeDisk) -> None:
        running = Running(disk)
        for name in ("a", "b"):
            self.doubt = {name}
            running.create(name)
            self.topics[name] = {}
        self.doubt = {"a"}
        running.metadata.submit(lambda image: delete_topics(image, [("a", bytes(16))])).outcome()
        del self.topics["a"]
        self.doubt = {"b"}
        resource = ResourceChanges(2, "b", [SettingChange("retention.ms", 0, "5")])
        running.metadata.submit(
            lambda image: alter_configs(image, running.config, [resource], node_id=1, is_incremental=True)
        ).outcome()
        self.topics["b"] = {"retention.ms": "5"}
        self.doubt = set()
        running.metadata.allocate_producer_ids(1000, self._take)
        running.stop()
        again = Running(disk)
        again.create("c")
        self.topics["c"] = {}
        again.stop()

    def _take(self, first: object) -> None:
        assert isinstance(first, int)
        assert first >= self.next_producer_id
        self.next_producer_id = first + 1000

    def holds_in(self, image: MetadataImage) -> None:
        found = {name: dict(image.topic_configs(name)) for name in image.topics}
        certain = {name: settings for name, settings in self.topics.items() if name not in self.doubt}
        if not self.doubt and len(self.topics) == 1:
            found.pop("c", None)  # This topic was requested but not acknowledged.
        assert {name: found[name] for name in certain} == certain
        assert found.keys() - certain.keys() <= self.doubt | {"c"}
        assert image.next_producer_id >= self.next_producer_id
        assert image.features == FEATURES
        assert all(partition.leader == 1 for topic in image.topics.values() for partition in topic.partitions)


def calls_of(workload: Callable[[FakeDisk], None]) -> int:
    disk = FakeDisk()
    workload(disk)
    return disk.calls


CALLS = calls_of(lambda disk: Session().run(disk))


@pytest.mark.parametrize("half_write", [False, True], ids=["before", "halfway"])
@pytest.mark.parametrize("call", range(1, CALLS + 1))
def test_acknowledged_changes_survive_a_crash_at_any_call(call: int, half_write: bool) -> None:
    disk, session = FakeDisk(), Session()
    disk.crash_before(call, half_write=half_write)
    with suppress(ProcessCrashed):
        session.run(disk)
    for state in disk.after_power_failure(SEED):
        again = Running(state.disk)
        session.holds_in(again.metadata.image)
        again.create("after")
        again.stop()
        assert "after" in Running(state.disk).metadata.image.topics, state.name
    session.holds_in(Running(disk.after_kill()).metadata.image)
