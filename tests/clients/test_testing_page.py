"""The examples of docs/testing.md run as printed."""

import json
import re
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from odradek.testing.sync import Odradek

PAGE = Path(__file__).resolve().parents[2] / "docs/testing.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
RULES = re.findall(r"`(\{.*?\})`", PAGE.read_text(encoding="utf-8").split("### Coming from another tool")[1])


def make_topic(bootstrap: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(name, partitions)]).values():
        made.result(10)


def test_the_page_has_its_examples() -> None:
    assert len(EXAMPLES) == 4


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_runs(example: str) -> None:
    clients = {each.__name__: each for each in (Consumer, Producer, TopicPartition)}
    exec(example, {"Odradek": Odradek, "make_topic": make_topic, **clients})


def test_the_rules_that_other_tools_become_are_rules() -> None:
    with Odradek.start() as odradek, odradek.cluster() as kafka:
        for rule in RULES:
            kafka.fault({**json.loads(rule), "unused": "ok"})
        assert len(kafka.faults()) == len(RULES) == 7
