"""Kafka's scripts in health checks and start-up jobs, and the commands that replace them."""

import shlex
from pathlib import Path

import pytest

from odradek.tools.commands.tree import parser
from odradek.tools.container.kafka_tools import TOOLS, Unsupported, translated

SCRIPTS = Path(__file__).resolve().parents[4] / "docker/rootfs/opt/kafka/bin"
B = "--bootstrap-server broker:9092"
b = "-b broker:9092"


@pytest.mark.parametrize(
    ("script", "command"),
    [
        (f"kafka-topics {B} --list", f"topics list --internal {b}"),
        (f"kafka-topics --list --exclude-internal {B}", f"topics list {b}"),
        ("kafka-topics --bootstrap-server=broker:9092 --describe --topic orders", f"topics describe orders {b}"),
        (
            (
                f"kafka-topics --create --if-not-exists --topic orders {B} --partitions 3 --replication-factor 1"
                " --config retention.ms=-1 --config cleanup.policy=compact"
            ),
            (
                "topics create orders --partitions 3 --replication-factor 1 --config retention.ms=-1"
                f" --config cleanup.policy=compact --if-not-exists {b}"
            ),
        ),
        (f"kafka-topics --alter --topic orders --partitions 6 {B}", f"topics alter orders --partitions 6 {b}"),
        (f"kafka-topics --delete --topic a,c --if-exists {B}", f"topics delete a c --if-exists {b}"),
        (f"kafka-broker-api-versions {B}", f"cluster describe {b}"),
        (f"kafka-cluster cluster-id {B}", f"cluster describe {b}"),
        (f"kafka-metadata-quorum {B} describe --status", f"cluster describe {b}"),
        (f"kafka-consumer-groups {B} --list", f"groups list {b}"),
        (f"kafka-consumer-groups {B} --describe --group g", f"groups describe g {b}"),
        (f"kafka-console-producer {B} --topic t", f"produce -t t {b}"),
        (
            f"kafka-console-producer {B} --topic t --property parse.key=true --property key.separator=:",
            f"produce -t t -K : {b}",
        ),
        (
            f"kafka-console-consumer {B} --topic t --from-beginning --max-messages 1",
            f"consume -t t -c 1 --isolation-level read_uncommitted -o beginning {b}",
        ),
        (
            f"kafka-console-consumer {B} --topic t --group g --timeout-ms 500 --isolation-level read_committed",
            f"consume -t t -G g --isolation-level read_committed -e {b}",
        ),
        (f"kafka-console-consumer {B} --topic t", f"consume -t t --isolation-level read_uncommitted -o end {b}"),
    ],
)
def test_a_script_is_a_command(script: str, command: str) -> None:
    tool, *words = shlex.split(script)
    found = translated(tool, words)
    assert found == shlex.split(command)
    parser(found[0]).parse_args(found)  # Such a command exists, and has these options.


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("kafka-topics --bootstrap-server broker:9092", "give one of --list"),
        ("kafka-topics --list --zookeeper z:2181", "--zookeeper is not supported here"),
        ("kafka-topics --list --bootstrap-server", "--bootstrap-server needs a value"),
        ("kafka-topics list", "list is not supported here"),
        ("kafka-consumer-groups --reset-offsets", "--reset-offsets is not supported here"),
        ("kafka-consumer-groups --describe", "give --list, or"),
        ("kafka-console-consumer --topic t --consumer.config f", "--consumer.config is not supported here"),
    ],
)
def test_what_no_command_does_is_refused(script: str, why: str) -> None:
    tool, *words = script.split()
    with pytest.raises(Unsupported, match=why):
        translated(tool, words)


def test_the_image_has_a_script_for_each_of_them() -> None:
    for tool in TOOLS:
        script = SCRIPTS / f"{tool}.sh"
        assert script.stat().st_mode & 0o111
        assert f"odradek.tools.container.kafka_tools {tool} " in script.read_text()
    assert len(list(SCRIPTS.iterdir())) == len(TOOLS)
