"""Tests the everyday commands with a running broker. BROKER=kafka runs them with Apache Kafka."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek.client.sync import Consumer, Producer, ShareConsumer
from odradek.tools.commands.topics import TOPICS_PER_REQUEST
from tests.clients.admin import create_topic
from tests.support.broker_process import Broker, new_broker
from tests.support.commands import command

SETTINGS: dict[str, object] = {"offsets.topic.num.partitions": 4, "transaction.state.log.num.partitions": 4}
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with new_broker(tmp_path_factory.mktemp("broker") / "data", SETTINGS) as running:
        yield running


@pytest.fixture
def bootstrap(broker: Broker) -> str:
    return broker.bootstrap


@pytest.fixture
def at(bootstrap: str) -> Run:
    """Returns a function that runs a command against the broker. The function fails unless the exit status is
    `status`."""

    def run(*words: str, stdin: str = "", status: int = 0) -> subprocess.CompletedProcess[str]:
        done = command(*words, "-b", bootstrap, stdin=stdin)
        assert done.returncode == status, done.stdout + done.stderr
        return done

    return run


def parsed(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done.stdout)


def test_topics_are_created_extended_described_and_deleted(at: Run) -> None:
    at("topics", "create", "by-command", "--partitions", "2", "--config", "retention.ms=-1")
    again = at("topics", "create", "by-command", status=1)
    assert "TOPIC_ALREADY_EXISTS" in again.stderr
    at("topics", "create", "by-command", "--if-not-exists")
    at("wait", "-t", "by-command")
    at("topics", "alter", "--topic", "by-command", "--partitions", "3")
    assert "INVALID_PARTITIONS" in at("topics", "alter", "by-command", "--partitions", "1", status=1).stderr
    at("wait", "-t", "by-command")
    (topic,) = parsed(at("topics", "describe", "by-command", "--json"))
    assert (topic["topic"], len(topic["topic_id"]), topic["configs"]) == ("by-command", 22, {"retention.ms": "-1"})
    assert [each["partition"] for each in topic["partitions"]] == [0, 1, 2]
    assert "by-command" in at("topics", "list").stdout.splitlines()
    at("topics", "delete", "by-command")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in at("topics", "delete", "by-command", status=4).stderr
    at("topics", "delete", "by-command", "--if-exists")


def test_a_described_topic_has_its_offsets_records_and_size(at: Run, bootstrap: str) -> None:
    topic = create_topic(bootstrap, "sized", partitions=2)
    at("produce", "-t", topic, "-p", "0", stdin="1\n2\n3\n")
    at("records", "delete", "-t", topic, "-p", "0", "--before-offset", "1")
    (found,) = parsed(at("topics", "describe", topic, "--json"))
    first, second = found["partitions"]
    assert (first["log_start_offset"], first["high_watermark"], first["records"]) == (1, 3, 2)
    assert (second["records"], second["size_bytes"]) == (0, 0)
    assert first["size_bytes"] > 0
    head, columns, *_ = at("topics", "describe", topic).stdout.splitlines()
    assert head.startswith(f"{topic}: 2 partitions, 1 replica, 2 records, {first['size_bytes']} B, id ")
    assert columns.split()[-4:] == ["START", "END", "RECORDS", "SIZE"]


def test_many_topics_are_described_some_at_a_time(at: Run, bootstrap: str) -> None:
    first_topics = sorted(create_topic(bootstrap, f"many-{number}", partitions=2) for number in range(2))
    more = [f"of-many-{number:03}" for number in range(TOPICS_PER_REQUEST + 1)]
    at("topics", "create", *more, "--config", "retention.ms=77")
    described = parsed(at("topics", "describe", *first_topics, *more, more[0], "--json"))
    assert [(each["topic"], len(each["partitions"])) for each in described[:2]] == [(name, 2) for name in first_topics]
    assert [each["topic"] for each in described] == [*first_topics, *more]
    assert [each["configs"] for each in described] == [{}] * 2 + [{"retention.ms": "77"}] * len(more)
    lines = at("topics", "describe", *more).stdout.splitlines()
    assert lines[0].startswith(f"{more[0]}: 1 partition, 1 replica, 0 records, 0 B, ")
    assert lines.count("  retention.ms=77") == len(more)
    shown = parsed(at("records", "offsets", *(word for name in more for word in ("-t", name)), "--json"))
    assert [row["topic"] for row in shown] == more
    at("topics", "delete", *more)
    assert parsed(at("topics", "describe", first_topics[0], "--json")) == described[:1]
    assert "of-many-000" in at("topics", "describe", first_topics[0], more[0], status=4).stderr


def test_lines_are_produced_and_consumed_with_keys_headers_and_formats(at: Run, bootstrap: str) -> None:
    topic = create_topic(bootstrap, "lines")
    report = at("produce", "-t", topic, "-K", ":", "-H", "from=shop", "--report", stdin="a:1\nb:2\n:\nno key\n").stdout
    assert report.splitlines() == [f"{topic} 0 {offset}" for offset in range(4)]
    read = at("consume", "-t", topic, "-e", "-f", r"%o %k %s %h\n").stdout
    assert read == "0 a 1 from=shop\n1 b 2 from=shop\n2   from=shop\n3 NULL no key from=shop\n"
    assert at("consume", "-t", topic, "-o", "-2", "-c", "1", "-f", "%o").stdout == "2"
    assert at("consume", "-t", topic, "-o", "1", "-c", "1").stdout == "2\n"
    assert at("consume", "-t", topic, "-o", "end", "-e").stdout == ""
    first, *_ = at("consume", "-t", topic, "-e", "--json").stdout.splitlines()
    assert json.loads(first) | {"ts": 0} == {
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "ts": 0,
        "headers": [["from", "shop"]],
        "key": "a",
        "payload": "1",
    }
    assert at("consume", "-t", topic, "-e", "-q", "-K", "=", "-D", ";", "-Z", "nil").stdout == "a=1;b=2;=;nil=no key;"
    since = json.loads(first)["ts"]
    assert at("consume", "-t", topic, "-o", f"s@{since}", "-c", "1").stdout == "1\n"


def test_a_span_of_time_is_consumed_and_a_number_of_lines_is_produced(at: Run, bootstrap: str) -> None:
    topic = create_topic(bootstrap, "span")
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(5):
            producer.send(topic, b"%d" % number, timestamp_ms=1_000 + number)
    assert at("consume", "-t", topic, "-o", "s@1001", "-o", "e@1003").stdout == "1\n2\n"
    assert at("consume", "-t", topic, "-o", "e@9999").stdout == "0\n1\n2\n3\n4\n"
    at("produce", "-t", topic, "-p", "-1", "-c", "2", "-q", stdin="5\n6\n7\n")
    assert at("consume", "-t", topic, "-o", "5", "-e").stdout == "5\n6\n"


def test_a_file_can_be_one_record_and_an_empty_value_can_become_null(at: Run, bootstrap: str, tmp_path: Path) -> None:
    topic = create_topic(bootstrap, "files")
    (tmp_path / "one").write_text("two\nlines")
    at("produce", "-t", topic, str(tmp_path / "one"))
    at("produce", "-t", topic, "-K", ":", "-Z", "-z", "gzip", stdin="gone:\n")
    assert at("consume", "-t", topic, "-e", "-f", "[%k %s]").stdout == "[NULL two\nlines][gone NULL]"


@pytest.mark.parametrize(
    ("config", "size"),
    [({}, 2_000_000), ({"max.message.bytes": 500}, 1_000)],
    ids=["above max.request.size", "above max.message.bytes of the topic"],
)
def test_a_line_that_fails_is_named_by_its_number(
    at: Run, bootstrap: str, config: Mapping[str, object], size: int
) -> None:
    topic = create_topic(bootstrap, "lines-that-fail", config=config)
    refused = at("produce", "-t", topic, stdin=f"1\n2\n{'x' * size}\n4\n", status=1)
    assert "record 3: " in refused.stderr
    assert at("consume", "-t", topic, "-o", "0", "-c", "2").stdout == "1\n2\n"


def test_a_transaction_is_seen_when_it_is_committed(at: Run, bootstrap: str) -> None:
    topic = create_topic(bootstrap, "in-one")
    at("produce", "-t", topic, "--transactional-id", "by-command", stdin="1\n2\n")
    assert at("consume", "-t", topic, "-c", "2").stdout == "1\n2\n"
    (row,) = parsed(at("records", "offsets", "-t", topic, "--json"))
    assert (row["last_stable_offset"], row["high_watermark"]) == (3, 3)


def test_a_group_reads_is_described_reset_and_deleted(at: Run, bootstrap: str) -> None:
    topic = create_topic(bootstrap, "read", partitions=2)
    at("produce", "-t", topic, "-p", "0", stdin="1\n2\n3\n")
    assert at("consume", "-t", topic, "-G", "readers", "-c", "3").stdout == "1\n2\n3\n"
    listed = [row for row in parsed(at("groups", "list", "--json")) if row["group"] == "readers"]
    assert [(row["type"].lower(), row["state"]) for row in listed] == [("classic", "Empty")]

    def offsets() -> list[tuple[int, int | None, int | None]]:
        rows = parsed(at("groups", "describe", "readers", "--json"))
        return [(row["partition"], row["current_offset"], row["lag"]) for row in rows]

    assert offsets()[0] == (0, 3, 0)
    shown = at("groups", "reset-offsets", "readers", "-t", f"{topic}:0", "--to-earliest")
    assert "--execute" in shown.stdout
    assert offsets()[0] == (0, 3, 0), "it was only shown"
    at("groups", "reset-offsets", "readers", "-t", f"{topic}:0", "--shift-by", "-1", "--execute")
    assert offsets()[0] == (0, 2, 1)
    at("groups", "reset-offsets", "readers", "--all-topics", "--to-offset", "99", "--execute")
    assert offsets()[0] == (0, 3, 0), "no further than the end"
    at("groups", "delete-offsets", "readers", "-t", f"{topic}:0")
    assert offsets()[0] == (0, None, None), "it is shown without an offset"
    (listed,) = [row for row in parsed(at("groups", "list", "--json")) if row["group"] == "readers"]
    assert (listed["members"], listed["lag"], listed["uncommitted_partitions"]) == (0, 0, 1)
    at("groups", "delete", "readers")
    assert "GROUP_ID_NOT_FOUND" in at("groups", "describe", "readers", status=4).stderr


def test_a_group_with_members_shows_them_and_keeps_its_offsets(at: Run, bootstrap: str) -> None:
    topic = create_topic(bootstrap, "busy")
    at("produce", "-t", topic, stdin="1\n")
    for protocol in ("classic", "consumer"):
        group = f"busy-{protocol}"
        settings = {"group_id": group, "group_protocol": protocol}
        with Consumer(topic, bootstrap_servers=bootstrap, **settings) as consumer:  # type: ignore[arg-type]
            assert consumer.getone().value == b"1"
            consumer.commit()
            (member,) = parsed(at("groups", "describe", group, "--members", "--json"))
            assert (member["client"], member["partitions"]) == ("odradek", [f"{topic}-0"])
            (state,) = parsed(at("groups", "describe", group, "--state", "--json"))
            assert (state["type"].lower(), state["state"]) == (protocol, "Stable")
            refused = at("groups", "delete", group, status=1)
            assert "NON_EMPTY_GROUP" in refused.stderr
            assert "Stop its members first" in refused.stderr
            at("groups", "reset-offsets", group, "-t", topic, "--to-earliest", "--execute", status=1)


def test_settings_are_shown_with_their_sources_and_changed_one_by_one(at: Run, bootstrap: str) -> None:
    topic = create_topic(bootstrap, "set")

    def dynamic() -> dict[str, str]:
        rows = parsed(at("configs", "describe", "--topic", topic, "--json"))
        return {row["name"]: row["value"] for row in rows if row["source"] == "DYNAMIC_TOPIC_CONFIG"}

    at("configs", "alter", "-t", topic, "--add-config", "cleanup.policy=[compact,delete],retention.ms=5000")
    assert dynamic() == {"cleanup.policy": "compact,delete", "retention.ms": "5000"}
    at("configs", "alter", "-t", topic, "--delete-config", "retention.ms")
    assert dynamic() == {"cleanup.policy": "compact,delete"}
    assert "INVALID_CONFIG" in at("configs", "alter", "-t", topic, "--add-config", "retention.ms=x", status=1).stderr
    assert "num.partitions" in at("configs", "describe", "--broker", "1", "--all").stdout
    at("configs", "describe", "--entity-type", "topics", "--entity-name", topic)


def test_records_are_deleted_and_the_offsets_are_listed(at: Run, bootstrap: str) -> None:
    topic = create_topic(bootstrap, "cut")
    at("produce", "-t", topic, stdin="1\n2\n3\n")
    (cut,) = parsed(at("records", "delete", "-t", topic, "-p", "0", "--before-offset", "2", "--json"))
    assert cut["log_start_offset"] == 2
    (row,) = parsed(at("records", "offsets", "-t", topic, "--json"))
    assert (row["log_start_offset"], row["high_watermark"]) == (2, 3)
    assert "OFFSET_OUT_OF_RANGE" in at("records", "delete", "-t", topic, "--before-offset", "9", status=1).stderr


def test_features_are_described_raised_and_lowered(at: Run) -> None:
    def level() -> object:
        return {each["feature"]: each for each in parsed(at("features", "describe", "--json"))}["transaction.version"]

    assert level() == {"feature": "transaction.version", "lowest": 0, "highest": 2, "level": 2}
    change = ("--feature", "transaction.version=1")
    assert "without setting the upgrade type" in at("features", "upgrade", *change, status=1).stderr
    assert "can be set to level 1" in at("features", "downgrade", *change, "--dry-run").stdout
    assert "2" in at("features", "describe").stdout
    assert at("features", "downgrade", *change).stdout == "transaction.version is at level 1.\n"
    assert level() == {"feature": "transaction.version", "lowest": 0, "highest": 2, "level": 1}
    at("features", "upgrade", "--feature", "transaction.version=2")
    assert "does not support this feature" in at("features", "upgrade", "--feature", "no.such=1", status=1).stderr


def test_quotas_are_set_listed_and_removed_by_user_client_and_address(at: Run) -> None:
    at("quotas", "set", "--user", "alice", "--client-defaults", "producer_byte_rate=1048576", "request_percentage=12.5")
    at("quotas", "set", "--user", "alice", "consumer_byte_rate=2e6")
    at("quotas", "set", "--ip", "192.0.2.7", "connection_creation_rate=100")
    of_alice = {"entity": {"user": "alice"}, "quotas": {"consumer_byte_rate": 2e6}}
    of_her_clients = {
        "entity": {"user": "alice", "client-id": None},
        "quotas": {"producer_byte_rate": 1048576.0, "request_percentage": 12.5},
    }
    assert parsed(at("quotas", "list", "--user", "alice", "--json")) == [of_alice, of_her_clients]
    assert len(parsed(at("quotas", "list", "--json"))) == 3
    assert "user alice, client-id <default>  producer_byte_rate        1048576" in at("quotas", "list").stdout
    at("quotas", "unset", "--user", "alice", "--client-defaults", "request_percentage")
    at("quotas", "unset", "--user", "alice")
    assert parsed(at("quotas", "list", "--user", "alice", "--json")) == [
        of_her_clients | {"quotas": {"producer_byte_rate": 1048576.0}}
    ]
    for whose in (["--user", "alice", "--client-defaults"], ["--ip", "192.0.2.7"]):
        at("quotas", "unset", *whose)
    assert "No quotas are set." in at("quotas", "list").stdout
    assert "no quotas of ip 192.0.2.7" in at("quotas", "unset", "--ip", "192.0.2.7").stdout


@pytest.mark.parametrize(
    ("words", "complaint", "status"),
    [
        (["set", "producer_byte_rate=1"], "no user, client or address is given: add --user", 2),
        (["set", "--user", "a", "producer_byte_rate=much"], "'much' is not a number", 2),
        (["set", "--user", "a", "no_such_rate=1"], "INVALID_REQUEST", 1),
        (["set", "--user", "a", "--ip", "192.0.2.7", "connection_creation_rate=1"], "INVALID_REQUEST", 1),
        (["unset"], "no user, client or address is given: add --user", 2),
    ],
)
def test_quotas_that_cannot_be_are_refused(at: Run, words: list[str], complaint: str, status: int) -> None:
    assert complaint in at("quotas", *words, status=status).stderr


def test_the_cluster_is_described_with_the_address_that_clients_are_given(at: Run, broker: Broker) -> None:
    found = parsed(at("cluster", "describe", "--json"))
    assert [(row["id"], row["port"]) for row in found["brokers"]] == [(1, broker.port)]
    assert "transaction.version" in found["features"]
    assert at("cluster", "cluster-id").stdout.strip() == found["cluster_id"]


# ---- Common mistakes.


@contextmanager
def answering(content: bytes) -> Iterator[str]:
    """Yields the address of a port that sends `content` after it has received some bytes, and then closes the
    connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def run() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(content)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(10)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"\x15\x03\x03\x00\x02\x02\x46", "its listener requires TLS. Set -X security.protocol to SSL or SASL_SSL"),
        (b"HTTP/1.1 400 Bad Request\r\n", "the port serves HTTP"),
        (b"", "may require TLS or SASL"),
    ],
)
def test_a_port_that_speaks_something_else_is_recognised(content: bytes, complaint: str) -> None:
    with answering(content) as bootstrap:
        done = command("topics", "list", "-b", bootstrap)
    assert done.returncode == 3
    assert complaint in done.stderr


@pytest.mark.parametrize(
    ("bootstrap", "complaint", "status"),
    [
        ("127.0.0.1:1", "no broker can be reached at 127.0.0.1:1: Connection refused", 3),
        ("no-such-host.invalid:9092", "no broker can be reached at no-such-host.invalid:9092", 3),
        ("localhost:kafka", "write host:port", 2),
    ],
)
def test_an_address_that_leads_nowhere_is_named(bootstrap: str, complaint: str, status: int) -> None:
    done = command("topics", "list", "-b", bootstrap)
    assert done.returncode == status
    assert complaint in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["produce", "-t", "here"],
        ["consume", "-t", "here", "-e"],
        ["records", "offsets", "-t", "here"],
        ["groups", "list"],
        ["wait"],
        ["wait", "-t", "here"],
    ],
)
def test_the_error_message_names_an_advertised_address_that_cannot_be_reached(
    broker_elsewhere: str, words: list[str]
) -> None:
    done = command(*words, "-b", broker_elsewhere, "--timeout", "1", stdin="1\n")
    assert done.returncode == 3
    assert "127.0.0.1:1" in done.stderr
    assert "advertised.listeners" in done.stderr


@pytest.fixture(scope="module")
def broker_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = SETTINGS | {"advertised.listeners": "PLAINTEXT://127.0.0.1:1"}
    with new_broker(tmp_path_factory.mktemp("elsewhere") / "data", settings) as broker:
        command("topics", "create", "here", "-b", broker.bootstrap)
        yield broker.bootstrap


def test_a_port_that_is_silent_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = command("topics", "list", "-b", f"127.0.0.1:{server.getsockname()[1]}", "--timeout", "0.3")
    assert done.returncode == 3
    assert "did not answer" in done.stderr


@pytest.mark.parametrize(
    ("words", "complaint", "status"),
    [
        (["topics", "describe", "nowhere"], "the topic 'nowhere': UNKNOWN_TOPIC_OR_PARTITION", 4),
        (["consume", "-t", "nowhere", "-e"], "the topic 'nowhere': UNKNOWN_TOPIC_OR_PARTITION", 4),
        (["topics", "create", "no such name!"], "INVALID_TOPIC_EXCEPTION", 1),
        (["topics", "create", "many", "--replication-factor", "7"], "fewer brokers than requested replicas", 1),
        (["groups", "delete", "nobody"], "GROUP_ID_NOT_FOUND", 4),
    ],
)
def test_a_command_explains_why_the_broker_refused_the_request(
    at: Run, words: list[str], complaint: str, status: int
) -> None:
    assert complaint in at(*words, status=status).stderr


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["topics", "describe", "meant-topc"], "UNKNOWN_TOPIC_OR_PARTITION. Did you mean 'meant-topic'?"),
        (["consume", "-t", "Meant-topic", "-e"], "Did you mean 'meant-topic'?"),
        (["groups", "describe", "meant-grop"], "Did you mean 'meant-group'?"),
        (["configs", "alter", "-t", "meant-topic", "--add-config", "retenton.ms=1"], "Did you mean 'retention.ms'?"),
        (["topics", "create", "other", "--config", "cleanup.polcy=compact"], "Did you mean 'cleanup.policy'?"),
    ],
)
def test_a_name_that_does_not_exist_is_answered_with_a_similar_one_that_does(
    at: Run, bootstrap: str, words: list[str], hint: str
) -> None:
    at("topics", "create", "meant-topic", "--if-not-exists")
    at("groups", "reset-offsets", "meant-group", "-t", "meant-topic", "--to-earliest", "--execute")
    refused = command(*words, "-b", bootstrap)
    assert refused.returncode in (1, 4)
    assert hint in refused.stderr
    if "list" in refused.stderr:
        assert f"list -b {bootstrap}`" in refused.stderr  # Users can paste the command from the hint.


def test_the_address_comes_from_the_environment_or_a_profile_or_stands_in_front(bootstrap: str, tmp_path: Path) -> None:
    (tmp_path / "odradek").mkdir()
    (tmp_path / "odradek/profiles").write_text(f"[here]\nbootstrap.servers={bootstrap}\n")
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    expected = command("cluster", "cluster-id", "-b", bootstrap).stdout
    assert expected
    assert command("cluster", "cluster-id", environment={"ODRADEK_BOOTSTRAP": bootstrap}).stdout == expected
    assert command("cluster", "cluster-id", environment={"KAFKA_BOOTSTRAP_SERVERS": bootstrap}).stdout == expected
    assert command("--profile", "here", "clusters", "cluster-id", environment=environment).stdout == expected
    assert command("-b", bootstrap, "cluster", "cluster-id").stdout == expected


@pytest.mark.parametrize(
    ("properties", "complaint"),
    [
        (
            ["security.protocol=SSL", "ssl.ca.location=nope.pem"],
            "-X ssl.ca.location=nope.pem: No such file or directory",
        ),
        (["security.protocol=SSL"], "closed the connection during the TLS handshake: its listener may not use TLS"),
        (["security.protocol=TLS"], "-X security.protocol must be one of PLAINTEXT, SSL"),
        (["security.protocol=SASL_PLAINTEXT"], "sasl.mechanism is missing"),
    ],
)
def test_a_wrong_property_is_answered_in_one_line_that_names_it_as_it_was_typed(
    bootstrap: str, properties: list[str], complaint: str
) -> None:
    refused = command(
        "topics", "list", "-b", bootstrap, "--timeout", "5", *(word for each in properties for word in ("-X", each))
    )
    assert complaint in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_the_doctor_finds_nothing_wrong_with_a_broker_that_serves(at: Run) -> None:
    findings = parsed(at("doctor", "--json"))
    assert {each["level"] for each in findings if each["about"].startswith(("port", "advertised"))} == {"ok"}


def test_the_doctor_says_what_is_wrong_with_an_advertised_address(tmp_path: Path) -> None:
    settings = SETTINGS | {"advertised.listeners": "PLAINTEXT://no-such-host.invalid:9092"}
    with new_broker(tmp_path / "data", settings) as broker:
        done = command("doctor", "-b", broker.bootstrap)
    assert done.returncode == 1
    assert "PROBLEM advertised address no-such-host.invalid:9092: is where clients are sent" in done.stdout
    assert "set advertised.listeners" in done.stdout


def test_a_share_group_is_listed_described_reset_and_deleted(at: Run, bootstrap: str) -> None:
    create_topic(bootstrap, "shared-by-command")
    at("configs", "alter", "--group", "sharers", "--add-config", "share.auto.offset.reset=earliest")
    at("produce", "-t", "shared-by-command", stdin="a\nb\n")
    with ShareConsumer("shared-by-command", bootstrap_servers=bootstrap, group_id="sharers") as consumer:
        read: list[object] = []
        while len(read) < 2:
            for records in consumer.getmany(timeout_ms=1000).values():
                read += records
        consumer.commit()
    (listed,) = [row for row in parsed(at("share-groups", "list", "--json")) if row["group"] == "sharers"]
    assert (listed["members"], listed["lag"]) == (0, 0)
    (row,) = parsed(at("share-groups", "describe", "sharers", "--json"))
    assert (row["topic"], row["lag"]) == ("shared-by-command", 0)
    at("share-groups", "reset-offsets", "sharers", "-t", "shared-by-command", "--to-earliest", "--execute")
    at("share-groups", "delete", "sharers")
    assert "sharers" not in at("share-groups", "list").stdout
