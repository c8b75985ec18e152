"""Tests that a profile's page has the right contents and needs no other file."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.spark.jobs.profile_facts import (
    Distribution,
    KeyFacts,
    LogFacts,
    PartitionFacts,
    Profile,
    TimeFacts,
    bucket_bounds,
    bucket_of,
)
from odradek.spark.jobs.profile_page import page

MADE = datetime(2026, 11, 22, 9, 0, tzinfo=UTC)
START_MS = 1_800_000_000_000


def a_profile() -> Profile:
    return Profile(
        source="data/orders",
        topic="orders",
        records=10_000,
        key_bytes=80_000,
        value_bytes=1_000_000,
        null_keys=10,
        null_values=3,
        distinct_keys=900,
        first_ms=START_MS,
        last_ms=START_MS + 60_000,
        record_bytes=Distribution({bucket_of(100): 9_000, bucket_of(3_000): 1_000}),
        partitions=[PartitionFacts(0, 8_000, 900_000, 300_000, 80), PartitionFacts(1, 2_000, 180_000, 60_000, 20)],
        top_keys=[KeyFacts("order-1", 4_000), KeyFacts(None, 10)],
        over_time=[TimeFacts(START_MS, 5_000, 180_000), TimeFacts(START_MS + 3_000, 5_000, 180_000)],
        log=LogFacts(
            batches=100,
            size_bytes=360_000,
            producers=3,
            codecs={"zstd": 300_000, "none": 60_000},
            batch_records=Distribution({bucket_of(100): 100}),
            batch_bytes=Distribution({bucket_of(3_600): 100}),
            span=Distribution({-1: 50, bucket_of(20): 50}),
            committed=80,
            aborted=20,
            still_open=1,
            open_for=Distribution({bucket_of(150): 80}),
        ),
    )


class Reader(HTMLParser):
    """Collects opening and closing tags, attributes, and the text outside of styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.update(name for name, _ in attrs)
        if tag != "meta":
            self.opened.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.opened and self.opened[-1] != "style":
            self.text += data


@pytest.mark.parametrize("profile", [a_profile(), Profile("kafka://one:9092/t", "t"), Profile("t", "t", records=1)])
def test_a_page_is_whole_and_needs_nothing_but_itself(profile: Profile) -> None:
    written = page(profile, MADE)
    read = Reader(written)
    assert read.opened == []
    assert not {"script", "link", "img", "iframe"} & set(read.tags)
    assert not re.search(r"https?:|url\(|@import|//", written.replace("kafka://one", ""))
    assert "prefers-color-scheme: dark" in written


def test_a_page_tells_what_was_measured() -> None:
    text = Reader(page(a_profile(), MADE)).text
    for words in ("10,000", "3.00×", "1.60×", "2027-01-15 08:00:00 UTC", "40.0%", "80", "293.0 KiB"):
        assert words in text, words


def test_markup_in_keys_is_shown_as_text() -> None:
    profile = a_profile()
    profile.top_keys = [KeyFacts("<script>alert(1)</script>", 1), KeyFacts('" onload="x', 1)]
    profile.topic = "<b>"
    read = Reader(page(profile, MADE))
    assert "script" not in read.tags
    assert "<b>" in read.text
    assert "onload" not in read.attributes
    assert read.opened == []


def test_drawing_charts_leaves_the_finders_of_modules_alone() -> None:
    assert all(hasattr(each, "find_spec") for each in sys.meta_path)


def test_each_bar_tells_its_number_to_a_pointer() -> None:
    text = Reader(page(a_profile(), MADE)).text
    for words in ("08:00:03: 5,000 records", "order-1: 4,000 · 40.0%", "partition 0: 8,000", "zstd: 293.0 KiB"):
        assert words in text, words


def test_findings_name_what_a_person_should_look_at() -> None:
    findings = "\n".join(a_profile().findings())
    assert "The key 'order-1' has 40% of all records" in findings
    assert "58.6 KiB of the log is uncompressed" in findings
    assert "20% of the transactions were aborted" in findings
    assert "1 transactions are open" in findings
    assert "times as many records as the average partition" not in findings
    even = Profile("t", "t", records=10, partitions=[PartitionFacts(0, 9, 0), PartitionFacts(1, 1, 0)], null_keys=10)
    assert "No record has a key" in even.findings()[0]
    skewed = Profile("t", "t", records=30, partitions=[PartitionFacts(n, 28 if n == 1 else 1, 0) for n in range(3)])
    assert skewed.findings()[0].startswith("Partition 1 has 2.8 times")


@given(st.floats(0, 1e15))
def test_a_value_lies_within_the_bounds_of_its_bucket(value: float) -> None:
    start, end = bucket_bounds(bucket_of(value))
    assert start * 0.999 <= value <= end * 1.001


@given(st.lists(st.integers(0, 10**9), min_size=1))
def test_quantiles_are_right_to_the_width_of_a_bucket(values: list[int]) -> None:
    counts: dict[int, int] = {}
    for value in values:
        counts[bucket_of(value)] = counts.get(bucket_of(value), 0) + 1
    distribution = Distribution(counts)
    assert max(values) <= distribution.quantile(1) * 1.001
    assert distribution.quantile(1) <= max(1, max(values)) * 1.1
    assert sum(each.values for each in distribution.by_doubling()) == len(values)
