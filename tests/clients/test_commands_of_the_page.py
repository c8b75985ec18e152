"""Tests that the commands shown in the page's empty views and behind its buttons work."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from tests.clients.own_share_consumers import first_of, share_group, worker
from tests.support.broker_process import IS_KAFKA, BrokerProcess
from tests.support.commands import command
from tests.unit.tools.test_commands_of_the_page import with_values

pytestmark = pytest.mark.skipif(IS_KAFKA, reason="Kafka has no such page")

# The commands in the order of the test; some need the results of earlier ones. A row contains the command, the values
# that the page fills in, additional arguments that make the command end in a test, and the standard input.
STEPS = (
    ("odradek topics create orders --partitions 3", (), (), ""),
    ("odradek topics alter ${quoted(name)} --partitions ${total + 1}", ("orders", "4"), (), ""),
    ("odradek configs alter -t ${quoted(name)} --add-config retention.ms=3600000", ("orders",), (), ""),
    ("odradek produce -t ${quoted(topic)}", ("orders",), (), "one\ntwo\n"),
    ("odradek consume -G mygroup -t orders", (), ("--max-messages", "2"), ""),
    ("odradek groups reset-offsets ${quoted(view.id)} -t orders --to-earliest --execute", ("mygroup",), (), ""),
    ("odradek share-groups reset-offsets ${quoted(view.id)} -t orders --to-earliest --execute", ("workers",), (), ""),
    ("odradek records delete -t ${quoted(name)} -p 0 --before-offset 1000", ("full",), (), ""),
    ("odradek acls add --allow-principal User:alice --operation Read --topic orders", (), (), ""),
    (
        "odradek acls remove ${whom} --operation ${operation} ${what}",
        ("--allow-principal User:alice", "READ", "--topic orders"),
        (),
        "",
    ),
    ("odradek users set-password alice", (), ("--password-file", "-"), "secret\n"),
    ("odradek users set-password ${quoted(user)}", ("alice",), ("--password-file", "-"), "another\n"),
    (
        "odradek users delete-password ${quoted(user)} --mechanism ${mechanism}",
        ("alice", "SCRAM-SHA-512"),
        (),
        "",
    ),
    ("odradek quotas set --user alice producer_byte_rate=1048576", (), (), ""),
    ("odradek quotas unset ${entities} ${limit}", ("--user alice", "producer_byte_rate"), (), ""),
    ("odradek transactions find-hanging", (), (), ""),
    ("odradek transactions abort --transactional-id ${quoted(id)}", ("open-one",), (), ""),
    ("odradek transactions force-terminate --transactional-id ${quoted(id)}", ("open-two",), (), ""),
    ("odradek topics delete ${quoted(name)}", ("orders",), (), ""),
)
ELSEWHERE = {"odradek control fault -C ${quoted(view.id)} @RULE.json"}  # tests/clients/test_control_command.py runs it.


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings) as running:
        assert isinstance(running, BrokerProcess)
        producer = Producer({"bootstrap.servers": running.bootstrap})
        for _ in range(1000):
            producer.produce("full", b"1")
        producer.produce("jobs", b"1")
        assert producer.flush(30) == 0
        with worker(running.bootstrap, "jobs", share_group(running.bootstrap, "workers")) as consumer:
            assert first_of(consumer)
        yield running


def test_every_command_of_the_page_is_run_here() -> None:
    assert set(with_values(lambda name: name)) == {each[0] for each in STEPS} | ELSEWHERE


def test_the_commands_do_what_the_page_promises(broker: BrokerProcess) -> None:
    producers = []
    for name in ("open-one", "open-two"):
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("full", b"open")
        assert producer.flush(30) == 0
        producers.append(producer)
    for text, values, more, stdin in STEPS:
        words = filled(text, values).split()[1:]
        done = command(*words, *more, "-b", broker.bootstrap, stdin=stdin)
        assert done.returncode == 0, f"{text}: {done.stdout}{done.stderr}"


def filled(text: str, values: tuple[str, ...]) -> str:
    left = iter(values)
    parts = [part.partition("}") for part in text.split("${")[1:]]
    return text.split("${")[0] + "".join(next(left) + rest for _, _, rest in parts)
