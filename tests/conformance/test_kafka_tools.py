"""Tests that the command line tools of Kafka 4.3.1 work with our broker and print the same output as they do with
Kafka."""

import json
import re
from pathlib import Path

import pytest

from tests.clients.admin import create_topic
from tests.clients.speakers import SPEAKERS, Message, wait_for
from tests.conformance.tools import Tools
from tests.support.broker_process import Broker
from tests.support.oracle import needs_kafka

pytestmark = needs_kafka

CONFLUENT = SPEAKERS["confluent-kafka"]


@pytest.fixture
def at(broker: Broker) -> tuple[str, str]:
    return ("--bootstrap-server", broker.bootstrap)


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    return create_topic(broker.bootstrap, request.node.name, partitions=2)


# --- topics


def test_topics_creates_lists_describes_alters_and_deletes(tools: Tools, at: tuple[str, str]) -> None:
    create = ("--create", "--topic", "by-tool", "--partitions", 2, "--config", "retention.ms=-1")
    assert "Created topic by-tool." in tools.run("topics", *at, *create).stdout
    assert "by-tool" in tools.run("topics", *at, "--list").lines
    head, *partitions = tools.run("topics", *at, "--describe", "--topic", "by-tool").lines
    assert re.match(r"Topic: by-tool\tTopicId: [\w-]{22}\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: .*", head)
    assert "retention.ms=-1" in head
    expected = "\tTopic: by-tool\tPartition: {}\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: "
    assert partitions == [expected.format(number) for number in (0, 1)]
    tools.run("topics", *at, "--alter", "--topic", "by-tool", "--partitions", 3)
    wait_for("the third partition", lambda: describes(tools, at, "by-tool", 3))
    tools.run("topics", *at, "--delete", "--topic", "by-tool")
    wait_for("the deletion", lambda: "by-tool" not in tools.run("topics", *at, "--list").lines)


def describes(tools: Tools, at: tuple[str, str], topic: str, partitions: int) -> bool:
    return len(tools.run("topics", *at, "--describe", "--topic", topic).lines) == 1 + partitions


def test_topics_says_why_it_cannot(tools: Tools, at: tuple[str, str], topic: str) -> None:
    def complaint(*words: object) -> str:
        return tools.run("topics", *at, *words, status=1).stdout

    assert f"Topic '{topic}' already exists." in complaint("--create", "--topic", topic)
    assert "does not exist as expected" in complaint("--describe", "--topic", "nobody-made-this")
    assert "Replication factor: 3 larger than available brokers: 1" in complaint(
        "--create", "--topic", "three", "--replication-factor", 3
    ) or "Unable to replicate the partition 3 time(s)" in complaint(
        "--create", "--topic", "three", "--replication-factor", 3
    )
    fewer = complaint("--alter", "--topic", topic, "--partitions", 1)
    assert "would not be an increase" in fewer


# --- records


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_console_producer_and_consumer_pass_keys_values_and_headers(
    tools: Tools, at: tuple[str, str], topic: str, codec: str
) -> None:
    typed = "".join(f"h1:{n},h2:x\tkey {n}\tvälue {n}\n" for n in range(50))
    reading = ("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true")
    tools.run("console-producer", *at, "--topic", topic, *reading, "--compression-codec", codec, stdin=typed)
    printing = [word for what in ("key", "headers") for word in ("--formatter-property", f"print.{what}=true")]
    limits = ("--from-beginning", "--max-messages", 50, "--timeout-ms", 20_000)
    ran = tools.run("console-consumer", *at, "--topic", topic, *limits, *printing)
    assert sorted(ran.lines) == sorted(typed.splitlines())


def test_two_console_consumers_share_a_group(tools: Tools, at: tuple[str, str], topic: str) -> None:
    tools.run("console-producer", *at, "--topic", topic, stdin="".join(f"{n}\n" for n in range(20)))
    reading = ("--topic", topic, "--group", f"{topic}-g", "--from-beginning", "--timeout-ms", 4_000)
    both = [tools.start("console-consumer", *at, *reading) for _ in range(2)]
    # A consumer that gets no records before its timeout exits with an error. Because this can happen to one of the two
    # consumers, their exit status is not checked.
    lines = [line for one in both for line in one.result(40).lines]
    assert sorted(lines) == sorted(str(n) for n in range(20))


def test_producer_perf_and_consumer_perf_measure(tools: Tools, at: tuple[str, str], topic: str) -> None:
    settings = ("--command-property", f"bootstrap.servers={at[1]}")
    words = ("--topic", topic, "--num-records", 20_000, "--record-size", 100, "--throughput", -1)
    written = tools.run("producer-perf", *words, *settings)
    assert re.match(r"20000 records sent, [\d.]+ records/sec", written.lines[-1])
    read = tools.run("consumer-perf", *at, "--topic", topic, "--num-records", 20_000, "--timeout", 20_000)
    assert read.lines[-1].split(", ")[4] == "20000"


def test_e2e_latency_gets_its_records_back(tools: Tools, at: tuple[str, str], topic: str) -> None:
    words = ("--topic", topic, "--num-records", 200, "--producer-acks", "all", "--record-size", 20)
    assert "Percentiles: 50th = " in tools.run("e2e-latency", *at, *words).stdout


def test_the_verifiable_clients_agree(tools: Tools, at: tuple[str, str], topic: str) -> None:
    tools.run("verifiable-producer", *at, "--topic", topic, "--max-messages", 500)
    words = ("--topic", topic, "--group-id", f"{topic}-g", "--max-messages", 500, "--reset-policy", "earliest")
    events = [json.loads(line) for line in tools.run("verifiable-consumer", *at, *words).lines]
    consumed = [event for event in events if event["name"] == "records_consumed"]
    assert sum(event["count"] for event in consumed) == 500
    committed = [event for event in events if event["name"] == "offsets_committed"]
    assert committed
    assert all(event["success"] for event in committed)
    assert sum(one["offset"] for one in {o["partition"]: o for e in committed for o in e["offsets"]}.values()) == 500


def test_delete_records_moves_the_log_start(tools: Tools, at: tuple[str, str], topic: str, tmp_path: Path) -> None:
    CONFLUENT.produce(at[1], topic, [Message(b"%d" % n) for n in range(10)])
    offsets_file = tmp_path / "wanted.json"
    offsets_file.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 4}], "version": 1}))
    ran = tools.run("delete-records", *at, "--offset-json-file", offsets_file)
    assert ran.lines[-1] == f"partition: {topic}-0\tlow_watermark: 4"
    assert f"{topic}:0:4" in tools.run("get-offsets", *at, "--topic", topic, "--time", "earliest").lines


def test_get_offsets_knows_every_kind_of_time(tools: Tools, at: tuple[str, str], topic: str) -> None:
    times = [1_700_000_000_000 + at_ms for at_ms in (5, 9, 7)]
    CONFLUENT.produce(at[1], topic, [Message(b"v", timestamp_ms=at_ms) for at_ms in times])

    def offsets(time: object) -> list[str]:
        return tools.run("get-offsets", *at, "--topic", topic, "--time", time).lines

    assert offsets("earliest") == [f"{topic}:0:0", f"{topic}:1:0"]
    assert offsets(-1) == [f"{topic}:0:3", f"{topic}:1:0"]
    assert offsets("max-timestamp") == [f"{topic}:0:1"]
    assert offsets(times[0] + 1) == [f"{topic}:0:1"]
    assert offsets(-4) == [f"{topic}:0:0", f"{topic}:1:0"]  # the earliest local offset


def test_log_dirs_shows_sizes(tools: Tools, at: tuple[str, str], topic: str, broker: Broker) -> None:
    CONFLUENT.produce(at[1], topic, [Message(bytes(1000))])
    ran = tools.run("log-dirs", *at, "--describe", "--topic-list", topic)
    (described,) = json.loads(ran.lines[-1])["brokers"]
    (directory,) = described["logDirs"]
    assert (described["broker"], directory["error"], directory["logDir"]) == (1, None, str(broker.data_dir))
    sizes = {one["partition"]: one["size"] for one in directory["partitions"]}
    assert sizes[f"{topic}-0"] == (broker.data_dir / f"{topic}-0" / f"{0:020}.log").stat().st_size > 1000
    assert sizes[f"{topic}-1"] == 0


# --- settings


def test_configs_alters_and_describes_a_topic(tools: Tools, at: tuple[str, str], topic: str) -> None:
    entity = ("--entity-type", "topics", "--entity-name", topic)
    tools.run(
        "configs", *at, *entity, "--alter", "--add-config", "segment.bytes=2000000,cleanup.policy=[compact,delete]"
    )
    wait_for("the setting", lambda: "segment.bytes" in tools.run("configs", *at, *entity, "--describe").stdout)
    lines = tools.run("configs", *at, *entity, "--describe").lines
    assert (
        "  segment.bytes=2000000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:segment.bytes=2000000, "
        "DEFAULT_CONFIG:log.segment.bytes=1073741824}" in lines
    )
    assert any(line.startswith("  cleanup.policy=compact,delete ") for line in lines)
    tools.run("configs", *at, *entity, "--alter", "--delete-config", "segment.bytes")
    wait_for("the default", lambda: "segment.bytes" not in tools.run("configs", *at, *entity, "--describe").stdout)
    refused = tools.run("configs", *at, *entity, "--alter", "--add-config", "retention.ms=soon", status=1)
    assert "Invalid value soon for configuration retention.ms" in refused.stdout + refused.stderr


def test_configs_describes_and_alters_the_broker(tools: Tools, at: tuple[str, str]) -> None:
    one, every = ("--entity-type", "brokers", "--entity-name", "1"), ("--entity-type", "brokers", "--entity-default")
    everything = tools.run("configs", *at, *one, "--describe", "--all").lines
    assert "  num.partitions=1 sensitive=false synonyms={DEFAULT_CONFIG:num.partitions=1}" in everything
    tools.run("configs", *at, *every, "--alter", "--add-config", "log.retention.ms=7000000")
    expected = (
        "  log.retention.ms=7000000 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=7000000}"
    )
    wait_for("the setting", lambda: expected in tools.run("configs", *at, *every, "--describe").lines)
    tools.run("configs", *at, *every, "--alter", "--delete-config", "log.retention.ms")


# --- groups


def test_consumer_groups_lists_describes_resets_and_deletes(tools: Tools, at: tuple[str, str], topic: str) -> None:
    CONFLUENT.produce(at[1], topic, [Message(b"%d" % n, partition=n % 2) for n in range(20)])
    group = f"{topic}-g"
    reading = ("--topic", topic, "--group", group, "--from-beginning", "--max-messages", 20, "--timeout-ms", 20_000)
    tools.run("console-consumer", *at, *reading)
    assert group in tools.run("consumer-groups", *at, "--list").lines
    states = {row["GROUP"]: row["STATE"] for row in tools.run("consumer-groups", *at, "--list", "--state").rows}
    assert states[group] == "Empty"

    def offsets() -> list[tuple[str, str, str, str]]:
        described = tools.run("consumer-groups", *at, "--describe", "--group", group).rows
        columns = ("PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
        return [tuple(row[name] for name in columns) for row in described]  # type: ignore[misc]

    assert offsets() == [("0", "10", "10", "0"), ("1", "10", "10", "0")]
    back = ("--reset-offsets", "--group", group, "--topic", topic, "--to-offset", 4, "--execute")
    tools.run("consumer-groups", *at, *back)
    assert offsets() == [("0", "4", "10", "6"), ("1", "4", "10", "6")]
    deleted = tools.run("consumer-groups", *at, "--delete-offsets", "--group", group, "--topic", topic)
    assert deleted.stdout.count("Successful") == 2
    ended = tools.run("consumer-groups", *at, "--delete", "--group", group)
    assert f"Deletion of requested consumer groups ('{group}') was successful." in ended.stdout
    gone = tools.run("consumer-groups", *at, "--describe", "--group", group).stdout
    assert f"Group {group} not found." in gone


def test_consumer_groups_shows_the_members_of_a_living_group(tools: Tools, at: tuple[str, str], topic: str) -> None:
    group = f"{topic}-g"
    member = CONFLUENT.join(at[1], topic, group, instance="here")
    wait_for("the assignment", lambda: member.poll() or member.assignment())
    described = tools.run("consumer-groups", *at, "--describe", "--group", group, "--members", "--verbose").stdout
    assert re.search(rf"^{group}\s+here-\S+\s+here\s+/127\.0\.0\.1\s+rdkafka\s+2\s+", described, re.MULTILINE)
    assert f"{topic}:0,1" in described
    state = tools.run("consumer-groups", *at, "--describe", "--group", group, "--state").stdout
    assert re.search(rf"^{group}\s+{re.escape(at[1])}\s+\(1\)\s+range\s+Stable\s+1$", state, re.MULTILINE)
    member.close()


def test_groups_lists_the_type_of_each(tools: Tools, at: tuple[str, str], topic: str) -> None:
    member = CONFLUENT.join(at[1], topic, f"{topic}-g")
    wait_for("the assignment", lambda: member.poll() or member.assignment())
    listed = {row["GROUP"]: (row["TYPE"], row.get("PROTOCOL")) for row in tools.run("groups", *at, "--list").rows}
    assert listed[f"{topic}-g"] == ("Classic", "consumer")
    member.close()


# --- the broker


def test_broker_api_versions_lists_the_versions_that_we_advertise(tools: Tools, at: tuple[str, str]) -> None:
    lines = tools.run("broker-api-versions", *at).lines
    assert lines[0] == f"{at[1]} (id: 1 rack: null isFenced: false) -> ("
    served = {line.split("(")[0].strip(): line for line in lines[1:-1] if "UNSUPPORTED" not in line}
    assert served["Produce"].strip() == "Produce(0): 0 to 13 [usable: 13],"
    assert served["Fetch"].strip() == "Fetch(1): 4 to 18 [usable: 18],"
    assert "ApiVersions" in served


def test_features_describes_the_finalised_levels(tools: Tools, at: tuple[str, str]) -> None:
    text = tools.run("features", *at, "describe").stdout
    # Kafka 4.3.1's tool has no name for Kafka 4.4's level.
    assert re.search(r"Feature: metadata.version\s.*FinalizedVersionLevel: UNKNOWN 33", text), text
    assert re.search(r"Feature: transaction.version\s.*FinalizedVersionLevel: 2", text)


def test_cluster_names_its_id_and_endpoint(tools: Tools, at: tuple[str, str], broker: Broker) -> None:
    assert re.match(r"Cluster ID: [\w-]{22}$", tools.run("cluster", "cluster-id", *at).lines[0])
    (row,) = tools.run("cluster", "list-endpoints", *at).rows
    assert (row["ID"], f"{row['HOST']}:{row['PORT']}", row["STATE"]) == ("1", broker.bootstrap, "unfenced")
