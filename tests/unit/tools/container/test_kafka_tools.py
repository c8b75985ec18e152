"""Tests the commands that replace Kafka's scripts in health checks and start-up jobs."""

import shlex
from pathlib import Path

import pytest

from odradek.tools.commands.tree import parser
from odradek.tools.container.kafka_tools import TOOLS, ToolCall, Unsupported, translated

ROOT = Path(__file__).resolve().parents[4] / "docker/rootfs"
SCRIPTS = ROOT / "opt/kafka/bin"
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
        (f"kafka-topics {B} --list --topic 'orders.*,audit'", f"topics list --internal 'orders.*' audit {b}"),
        (
            f"kafka-topics {B} --command-config /c.properties --list --exclude-internal",
            f"topics list {b} --command-config /c.properties",
        ),
        (
            f"kafka-configs {B} --describe --entity-type topics --entity-name t --all",
            f"configs describe --topic t --all {b}",
        ),
        (
            f"kafka-configs {B} --alter --topic t --add-config cleanup.policy=[compact,delete],retention.ms=1",
            f"configs alter --topic t --add-config cleanup.policy=[compact,delete],retention.ms=1 {b}",
        ),
        (
            f"kafka-configs {B} --entity-type brokers --entity-default --describe",
            f"configs describe --broker-defaults {b}",
        ),
        (
            f"kafka-configs {B} --alter --entity-type brokers --entity-name 1 --delete-config log.retention.ms",
            f"configs alter --broker 1 --delete-config log.retention.ms {b}",
        ),
        (f"kafka-configs {B} --describe --entity-type users --entity-name a", f"quotas list --user a {b}"),
        (
            (
                f"kafka-configs {B} --alter --entity-type users --entity-name a --entity-type clients --entity-default"
                " --add-config consumer_byte_rate=1"
            ),
            f"quotas set --user a --client-defaults consumer_byte_rate=1 {b}",
        ),
        (f"kafka-acls {B} --list --topic t", f"acls list --topic t {b}"),
        (
            f"kafka-acls {B} --add --allow-principal User:a --operation Read --operation Write --topic t --force",
            f"acls add --topic t --allow-principal User:a --operation Read --operation Write {b}",
        ),
        (
            f"kafka-acls {B} --command-config f --remove --allow-principal User:a --consumer --topic t --group '*'",
            f"acls remove --topic t --group '*' --allow-principal User:a --consumer {b} --command-config f",
        ),
        (f"kafka-broker-api-versions {B}", f"cluster describe {b}"),
        (f"kafka-cluster cluster-id {B}", f"cluster describe {b}"),
        (f"kafka-metadata-quorum {B} describe --status", f"cluster describe {b}"),
        (f"kafka-consumer-groups {B} --list", f"groups list {b}"),
        (f"kafka-consumer-groups {B} --describe --group g", f"groups describe g {b}"),
        (f"kafka-consumer-groups {B} --describe --all-groups --timeout 5000", f"groups describe {b} --timeout 5"),
        (
            f"kafka-consumer-groups {B} --reset-offsets --group g --topic t --to-earliest --execute",
            f"groups reset-offsets g -t t --to-earliest --execute {b}",
        ),
        (f"kafka-console-producer {B} --topic t", f"produce -t t {b}"),
        (
            (
                f"kafka-console-producer {B} --topic t --producer.config f --producer-property acks=1"
                " --compression-codec gzip --producer-property security.protocol=SSL"
            ),
            f"produce -t t -z gzip --acks 1 -X security.protocol=SSL {b} --command-config f",
        ),
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
        (
            (
                f"kafka-console-consumer {B} --topic t --consumer.config f --consumer-property group.id=g"
                " --consumer-property auto.offset.reset=earliest"
            ),
            f"consume -t t -G g --isolation-level read_uncommitted -o beginning {b} --command-config f",
        ),
        (
            (
                f"kafka-console-consumer {B} --topic t --partition 0 --offset earliest --property print.timestamp=true"
                " --property print.key=true --property key.separator='|'"
            ),
            f"consume -t t -p 0 --isolation-level read_uncommitted -o beginning -f 'CreateTime:%T|%k|%s\\n' {b}",
        ),
        (
            f"kafka-console-consumer {B} --topic t --formatter-property print.key=true",
            f"consume -t t --isolation-level read_uncommitted -o end -K '\\t' {b}",
        ),
        (f"kafka-console-consumer {B} --topic t", f"consume -t t --isolation-level read_uncommitted -o end {b}"),
    ],
)
def test_a_script_is_a_command(script: str, command: str) -> None:
    tool, *words = shlex.split(script)
    (call,) = translated(tool, words)
    assert (call.words, call.stdin) == (shlex.split(command), None)
    parser(call.words[0]).parse_args(call.words)  # the command exists and has these options


def test_a_password_goes_to_standard_input_and_quotas_are_another_command() -> None:
    setting = "SCRAM-SHA-256=[iterations=8192,password=a=b],SCRAM-SHA-512=[password=c],producer_byte_rate=1024"
    words = shlex.split(f"{B} --alter --entity-type users --entity-name alice --add-config '{setting}'")
    first, second, third = translated("kafka-configs", words)
    assert first == ToolCall(
        shlex.split(f"users set-password alice --mechanism SCRAM-SHA-256 --iterations 8192 --password-file - {b}"),
        "a=b\n",
    )
    assert second.stdin == "c\n"
    assert third == ToolCall(shlex.split(f"quotas set --user alice producer_byte_rate=1024 {b}"))
    for call in (first, second, third):
        parser(call.words[0]).parse_args(call.words)
    removing = shlex.split("--alter --user alice --delete-config SCRAM-SHA-512,producer_byte_rate")
    assert translated("kafka-configs", removing) == [
        ToolCall(shlex.split("users delete-password alice --mechanism SCRAM-SHA-512")),
        ToolCall(shlex.split("quotas unset --user alice producer_byte_rate")),
    ]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("kafka-topics --bootstrap-server broker:9092", "give one of --list"),
        ("kafka-topics --list --zookeeper z:2181", "--zookeeper is not supported here"),
        ("kafka-topics --list --bootstrap-server", "--bootstrap-server needs a value"),
        ("kafka-topics list", "list is not supported here"),
        ("kafka-topics --describe --topic t --if-exists", "--if-exists is not supported with --describe"),
        ("kafka-topics --list --describe", "give one of --list, --create"),
        ("kafka-consumer-groups --delete-offsets", "--delete-offsets is not supported here"),
        ("kafka-consumer-groups --describe", "give --group"),
        ("kafka-consumer-groups --list --timeout soon", "--timeout soon: write a number of milliseconds"),
        ("kafka-console-consumer --topic t --formatter f", "--formatter is not supported here"),
        ("kafka-console-consumer --topic t --property print.epoch=true", "the property print.epoch is not supported"),
        ("kafka-console-producer --topic t --producer-property linger.ms=5", "the property linger.ms is not supported"),
        ("kafka-configs --alter --topic t", "--add-config or --delete-config"),
        ("kafka-configs --describe", "give --entity-type with --entity-name"),
        ("kafka-configs --describe --entity-type topics", "each --entity-type needs an --entity-name"),
        ("kafka-configs --describe --entity-type queues --entity-name q", "--entity-type queues is not supported here"),
        ("kafka-configs --alter --client c --add-config SCRAM-SHA-512=[password=x]", "belongs to one user"),
        ("kafka-configs --alter --user u --add-config SCRAM-SHA-512=[iterations=5000]", "must contain a password"),
        ("kafka-acls --add --authorizer-properties zookeeper.connect=z", "--authorizer-properties is not supported"),
    ],
)
def test_options_without_a_counterpart_are_refused(script: str, why: str) -> None:
    tool, *words = script.split()
    with pytest.raises(Unsupported, match=why):
        translated(tool, words)


def test_the_image_has_a_script_for_each_tool() -> None:
    for tool in TOOLS:
        script = SCRIPTS / f"{tool}.sh"
        assert script.stat().st_mode & 0o111
        assert f"odradek.tools.container.kafka_tools {tool} " in script.read_text()
    assert len(list(SCRIPTS.iterdir())) == len(TOOLS)


def test_every_tool_accepts_a_file_with_the_settings_of_a_login() -> None:
    for tool, actions in TOOLS.items():
        words = [actions[0].option] if actions[0].option else []
        words += ["--topic", "t"] if tool == "kafka-configs" else []
        (call,) = translated(tool, [*words, "--command-config", "/client.properties"])
        assert call.words[-2:] == ["--command-config", "/client.properties"]
