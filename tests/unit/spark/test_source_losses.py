"""Tests all ways in which a stream's input can shrink between two batches. Odradek's source reports them like Spark's
own source. The tests also cover options that are refused or ignored."""

import pytest

from odradek.client import TopicPartition
from odradek.spark.offsets import OffsetReader, Offsets, StreamPosition, TopicIds, losses
from odradek.spark.options import OptionError, SourceOptions

A, B, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
READ: Offsets = {A: 10, B: 20}
IDS: TopicIds = {"t": "aa"}


@pytest.mark.parametrize(
    ("latest", "ids", "earliest", "log_ends", "messages"),
    [
        (READ, IDS, {}, {}, []),
        ({A: 11, B: 25}, IDS, {}, {}, []),
        ({A: 4, B: 20}, IDS, {}, {A: 10}, []),
        ({A: 4, B: 20}, IDS, {}, {A: 4}, ["t-0 ends at 4, before the offset 10"]),
        ({A: 4, B: 2}, {"t": "bb"}, {}, {A: 4, B: 2}, ["t was deleted and created again"]),
        ({A: 40, B: 50}, {"t": "bb"}, {}, {}, ["t was deleted and created again"]),
        ({A: 10}, IDS, {}, {}, ["t-1 no longer exists; the checkpoint has its offset 20"]),
        ({OTHER: 3}, {"u": "cc"}, {OTHER: 0}, {}, ["t-0 no longer exists", "t-1 no longer exists"]),
        (READ | {OTHER: 9}, IDS, {OTHER: 0}, {}, []),
        (READ | {OTHER: 9}, IDS, {OTHER: 5}, {}, ["u-0 is new and begins at 5 instead of 0"]),
        ({A: 40, B: 50}, {}, {}, {}, []),
    ],
    ids=[
        "nothing new",
        "grown",
        "kept back by an open transaction",
        "shorter: made anew, or an older copy",
        "made anew, shorter",
        "made anew, and longer by now",
        "a partition deleted",
        "a topic of a pattern deleted",
        "a new topic",
        "a new partition without its first records",
        "a broker that tells no ids",
    ],
)
def test_lost_records_are_reported(
    latest: Offsets, ids: TopicIds, earliest: Offsets, log_ends: Offsets, messages: list[str]
) -> None:
    found = losses(StreamPosition(READ, IDS), latest, ids, earliest, log_ends)
    assert len(found) == len(messages)
    assert all(each.startswith(words) for each, words in zip(found, messages, strict=True))


def test_a_checkpoint_of_sparks_own_source_without_ids_is_accepted() -> None:
    position = StreamPosition.read({"t": {"0": 10, "1": 20}})
    assert position == StreamPosition(READ, {})
    assert losses(position, READ, {"t": "bb"}, {}, {}) == []


def test_of_a_topic_that_was_made_anew_no_offset_is_kept() -> None:
    position = StreamPosition(READ | {OTHER: 5}, IDS | {"u": "cc"})
    assert position.retained({"t": "bb", "u": "cc"}) == {OTHER: 5}
    assert position.retained({}) == READ | {OTHER: 5}


def test_a_checkpoint_keeps_the_ids_of_its_topics_beside_the_offsets() -> None:
    written = StreamPosition(READ, IDS | {"u": "cc"}).json()
    assert written == {"t": {"0": 10, "1": 20}, "#topicIds": {"t": "aa"}}
    assert StreamPosition.read(written) == StreamPosition(READ, IDS)


SERVERS = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t"}


@pytest.mark.parametrize("is_stream", [True, False], ids=["stream", "batch"])
@pytest.mark.parametrize(
    "name", ["startingOffsets", "startingOffsetsByTimestamp", "endingOffsets", "endingOffsetsByTimestamp"]
)
def test_an_option_that_names_some_partitions_only_is_refused(name: str, is_stream: bool) -> None:
    if is_stream and name.startswith("ending"):
        pytest.skip("a stream has no end")
    options = SourceOptions.read(SERVERS | {name: '{"t": {"0": 5}}'}, is_stream=is_stream)
    bound = options.starting if name.startswith("starting") else options.ending
    with pytest.raises(OptionError, match=r"missing.*partition=1"):  # the error is raised before any request is sent
        OffsetReader(options).resolve(bound, [A, B])


def test_offsets_of_all_partitions_are_taken_as_they_are() -> None:
    options = SourceOptions.read(SERVERS | {"startingOffsets": '{"t": {"0": 10, "1": 20}}'}, is_stream=True)
    assert OffsetReader(options).resolve(options.starting, [A, B]) == READ


def test_no_records_per_trigger_is_no_limit_that_means_anything() -> None:
    options = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", "maxOffsetsPerTrigger": "0"}
    with pytest.raises(OptionError, match="maxOffsetsPerTrigger"):
        SourceOptions.read(options, is_stream=True)
