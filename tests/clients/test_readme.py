"""The examples of README.md, run as they stand there, one after the other, against one broker."""

import re
import subprocess
import sys

from tests.clients.conftest import StartBroker
from tests.clients.transactions import READERS
from tests.support.oracle import REPOSITORY

ADDRESS = "localhost:9092"
TIMEOUT_S = 120


def examples() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (REPOSITORY / "README.md").read_text(), re.MULTILINE | re.DOTALL)


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
    first, transaction = examples()
    greetings = run(first, broker.bootstrap)
    assert len(greetings) == 10
    assert greetings[0] == "b'0' b'hello 0' at offset 0"
    assert run(transaction, broker.bootstrap) == ["shouted 10 greetings, each exactly once"]
    shouts = READERS["confluent-kafka"](broker.bootstrap, "shouts", committed=True)
    assert sorted(shouts) == [f"HELLO {number}".encode() for number in range(10)]
