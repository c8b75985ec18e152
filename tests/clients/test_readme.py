"""The examples of README.md and docs/client.md, run as printed."""

import re
import subprocess
import sys

from tests.clients.conftest import StartBroker
from tests.clients.transactions import READERS
from tests.support.oracle import REPOSITORY

ADDRESS = "localhost:9092"
TIMEOUT_S = 120


def example(section: str, page: str = "README.md") -> str:
    """The first one below this heading."""
    (text,) = re.findall(
        rf"^## {section}\n(?:(?!^## ).)*?^```python\n(.*?)^```$",
        (REPOSITORY / page).read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert isinstance(text, str)
    return text


def run(example: str, bootstrap: str) -> list[str]:
    """The lines that it prints."""
    assert ADDRESS in example
    done = subprocess.run(
        [sys.executable, "-c", example.replace(ADDRESS, bootstrap)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_examples_do_what_they_say(start_broker: StartBroker) -> None:
    broker = start_broker({})
    greetings = run(example("First records"), broker.bootstrap)
    assert len(greetings) == 10
    assert greetings[0] == "b'0' b'hello 0' at offset 0"
    assert run(example("First transaction"), broker.bootstrap) == ["shouted 10 greetings, each exactly once"]
    shouts = READERS["confluent-kafka"](broker.bootstrap, "shouts", committed=True)
    assert sorted(shouts) == [f"HELLO {number}".encode() for number in range(10)]


def test_the_example_of_our_own_client_does_what_it_says(bootstrap: str) -> None:
    assert run(example("The client"), bootstrap) == [
        "b'table 4' b'two teas' at offset 0",
        "b'table 4' b'a scone' at offset 1",
    ]


def test_the_first_examples_of_the_clients_page_do_what_they_say(start_broker: StartBroker) -> None:
    """Those that are whole programs."""
    broker = start_broker({})
    for offset, section in enumerate(["Producing", "Without an event loop"]):
        (acknowledgement,) = run(example(section, "docs/client.md"), broker.bootstrap)
        assert re.fullmatch(
            rf"RecordMetadata\(topic='orders', partition=0, offset={offset}, timestamp_ms=\d+\)", acknowledgement
        )
