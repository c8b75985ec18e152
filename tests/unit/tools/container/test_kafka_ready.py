"""Tests `cub kafka-ready`, which start-up jobs for Confluent's images call before anything else."""

import pytest

from odradek.tools.commands.tree import parser
from odradek.tools.container.kafka_ready import translated
from odradek.tools.container.kafka_tools import Unsupported


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("kafka-ready -b kafka:9092 1 20", "cluster cluster-id -b kafka:9092 --timeout 20"),
        (
            "kafka-ready -b a:1,b:2 -c /client.properties 1 40",
            "cluster cluster-id -b a:1,b:2 --command-config /client.properties --timeout 40",
        ),
    ],
)
def test_kafka_ready_becomes_a_command_that_waits_for_the_broker(words: str, command: str) -> None:
    found = translated(words.split())
    assert found == command.split()
    parser(found[0]).parse_args(found)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("sr-ready schema-registry 8081 40", "only kafka-ready is supported here"),
        ("kafka-ready -z zookeeper:2181 1 20", "-z is not supported here"),
        ("kafka-ready -b kafka:9092 3 20", "so BROKERS must be 1"),
        ("kafka-ready 1 20", "usage: cub kafka-ready"),
    ],
)
def test_an_option_that_the_wait_does_not_support_is_refused(words: str, why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        translated(words.split())
