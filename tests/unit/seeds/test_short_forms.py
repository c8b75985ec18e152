"""Tests that `--topic` and KAFKA_CREATE_TOPICS can describe a topic in a single word."""

import re

import pytest

from odradek.seeds.plan import DEFAULT, Place, SeedError, SeedPlan, SeedTopic
from odradek.seeds.short_forms import topic_of_option, topics_of_environment

COMPACT = (("cleanup.policy", "compact"),)


@pytest.mark.parametrize(
    ("text", "partitions", "settings"),
    [
        ("orders", DEFAULT, ()),
        ("orders:6", 6, ()),
        ("orders:6:cleanup.policy=compact", 6, COMPACT),
        ("orders:cleanup.policy=compact", DEFAULT, COMPACT),
        (
            "orders:1:cleanup.policy=compact,delete:retention.ms=5",
            1,
            (("cleanup.policy", "compact,delete"), ("retention.ms", "5")),
        ),
    ],
)
def test_an_option_names_a_topic(text: str, partitions: int, settings: tuple[tuple[str, str], ...]) -> None:
    assert topic_of_option(text) == SeedTopic("orders", partitions, settings=settings, place=Place(f"--topic {text}"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (":6", "--topic :6: the name is missing"),
        ("a:0", "--topic a:0: the number of partitions must be a whole number of at least 1, not '0'"),
        ("a:six", "the number of partitions must be a whole number of at least 1, not 'six'"),
        ("a:6:compact", "'compact' must have the form SETTING=VALUE"),
        ("a:6:x=1:x=2", "x is given twice"),
    ],
)
def test_an_option_that_is_wrong_is_named(text: str, complaint: str) -> None:
    with pytest.raises(SeedError, match=re.escape(complaint)):
        topic_of_option(text)


@pytest.mark.parametrize("separator", [None, ";", "\n", "$'\\n'"])
def test_the_variable_names_topics(separator: str | None) -> None:
    between = {None: ",", "$'\\n'": "\n"}.get(separator, separator)
    environment = {"KAFKA_CREATE_TOPICS": f"one:1:1{between} two:3:1:compact {between}"}
    if separator is not None:
        environment["KAFKA_CREATE_TOPICS_SEPARATOR"] = separator
    assert topics_of_environment(environment) == (
        SeedTopic("one", 1, 1, place=Place("KAFKA_CREATE_TOPICS, one:1:1")),
        SeedTopic("two", 3, 1, COMPACT, place=Place("KAFKA_CREATE_TOPICS, two:3:1:compact")),
    )
    assert topics_of_environment({}) == ()


@pytest.mark.parametrize("text", ["one", "one:1", ":1:1", "one:1:1:compact:more"])
def test_a_topic_of_the_variable_that_is_wrong_is_named(text: str) -> None:
    with pytest.raises(SeedError, match=f"^KAFKA_CREATE_TOPICS, {text}: write NAME:PARTITIONS:REPLICAS"):
        topics_of_environment({"KAFKA_CREATE_TOPICS": text})


def test_a_topic_is_seeded_once() -> None:
    plan = SeedPlan().with_topics((topic_of_option("a"),))
    with pytest.raises(SeedError, match="--topic a:2: the topic a is seeded twice"):
        plan.with_topics((topic_of_option("a:2"),))
