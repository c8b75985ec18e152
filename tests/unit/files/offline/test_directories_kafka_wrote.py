"""Tests that a reader without a broker finds exactly the offsets in Apache Kafka's directories that Kafka serves."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from odradek.files.offline.survey import survey
from odradek.spark.files.options import FileOptions
from odradek.spark.files.plan import chosen_logs, plan
from odradek.spark.files.views import record_tables
from tests.support.oracle import directories, needs_oracle, served, unpack

pytestmark = needs_oracle


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Returns a function that unpacks a recorded directory. Each directory is unpacked only once, because the tests
    only read it."""
    return cache(lambda name: unpack(name, tmp_path_factory.mktemp("oracle")))


def partitions_of(facts: dict[str, Any]) -> dict[tuple[str, int], dict[str, Any]]:
    return {
        (topic, number): partition
        for topic, described in facts["topics"].items()
        for number, partition in enumerate(described["partitions"])
    }


def ranges(offsets: list[int]) -> list[list[int]]:
    """Returns ascending offsets as ranges in the form [[first, last], …]."""
    found: list[list[int]] = []
    for offset in offsets:
        if found and found[-1][1] == offset - 1:
            found[-1][1] = offset
        else:
            found.append([offset, offset])
    return found


def offsets_read(options: FileOptions) -> dict[tuple[str, int], list[int]]:
    found: dict[tuple[str, int], list[int]] = {}
    for task in plan(options):
        for table in record_tables(task, options, {"offset"}):
            found.setdefault((task.range.topic, task.range.partition), []).extend(table["offset"].to_pylist())
    return found


@pytest.mark.slow
@pytest.mark.parametrize("how", ["scan", "index", "small parts"])
@pytest.mark.parametrize("name", directories())
def test_the_offsets_that_kafka_serves_are_read(name: str, how: str, unpacked: Callable[[str], Path]) -> None:
    directory = unpacked(name)
    partitions = partitions_of(served(name))
    options = {"path": str(directory), "subscribePattern": ".*"}
    options |= {"small parts": {"maxBytesPerPartition": "300"}}.get(how, {"transactions": how})
    for level, key in (("read_committed", "readCommitted"), ("read_uncommitted", "readUncommitted")):
        read = offsets_read(FileOptions.read(options | {"kafka.isolation.level": level}))
        read = {each: offsets for each, offsets in read.items() if each in partitions}
        expected = {each: facts[key] for each, facts in partitions.items() if facts[key]}
        assert {each: ranges(offsets) for each, offsets in read.items()} == expected


@pytest.mark.parametrize("name", directories())
def test_the_bounds_of_partitions_are_those_that_kafka_answers(name: str, unpacked: Callable[[str], Path]) -> None:
    partitions = partitions_of(served(name))
    options = FileOptions.read({"path": str(unpacked(name)), "subscribePattern": ".*"})
    for log in chosen_logs(options):
        if (log.topic, log.partition) not in partitions:
            continue
        facts, found = partitions[log.topic, log.partition], survey(log, cut_bytes=1 << 20)
        bounds = (found.start_offset, found.last_stable_offset, found.end_offset)
        assert bounds == (facts["earliest"], facts["lastStableOffset"], facts["latest"]), log
