"""Tests that the examples in README.md, and those on the pages it links to, run as printed."""

import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.clients.conftest import StartBroker
from tests.clients.transactions import READERS
from tests.support.oracle import REPOSITORY

ADDRESS = "localhost:9092"
TIMEOUT_S = 120
ADDRESS_OF_ANY_PORT = r"""until test -f ready.json; do sleep 0.05; done
address=$(sed -n 's/.*"port": \([0-9]*\).*/localhost:\1/p' ready.json)"""


def example(section: str, page: str = "README.md") -> str:
    """Returns the first Python example below this heading."""
    (text,) = re.findall(
        rf"^## {section}\n(?:(?!^## ).)*?^```python\n(.*?)^```$",
        (REPOSITORY / page).read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert isinstance(text, str)
    return text


def shell_lines(section: str, page: str) -> list[str]:
    """Returns the commands below this heading, as printed."""
    (text,) = re.findall(rf"^## {section}\n(.*?)^## ", (REPOSITORY / page).read_text(), re.MULTILINE | re.DOTALL)
    return re.findall(r"^    (.+)$", text, re.MULTILINE)


def run(example: str, bootstrap: str) -> list[str]:
    """Runs an example and returns the lines that it prints."""
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
    transaction = example("First transaction", "docs/using-transactions.md")
    assert run(transaction, broker.bootstrap) == ["shouted 10 greetings, each exactly once"]
    shouts = READERS["confluent-kafka"](broker.bootstrap, "shouts", committed=True)
    assert sorted(shouts) == [f"HELLO {number}".encode() for number in range(10)]


def test_the_example_of_our_own_client_does_what_it_says(bootstrap: str) -> None:
    assert run(example("In one program", "docs/client.md"), bootstrap) == [
        "b'table 4' b'two teas' at offset 0",
        "b'table 4' b'a scone' at offset 1",
    ]


def test_the_first_examples_of_the_clients_page_do_what_they_say(start_broker: StartBroker) -> None:
    """The first examples on the page are complete programs."""
    broker = start_broker({})
    for offset, section in enumerate(["Producing", "Without an event loop"]):
        (acknowledgement,) = run(example(section, "docs/client.md"), broker.bootstrap)
        assert re.fullmatch(
            rf"RecordMetadata\(topic='orders', partition=0, offset={offset}, timestamp_ms=\d+\)", acknowledgement
        )


def test_a_secured_broker_is_ten_lines(tmp_path: Path) -> None:
    """The last command must be refused, because alice may not delete topics."""
    lines = shell_lines("In ten lines", "docs/using-security.md")
    assert len(lines) == 10
    certs, serve, *asking, refused = [line.replace("$as_", "-b $address $as_") for line in lines]
    serve = serve.replace("--config", "--port 0 --data-dir data --ready-file ready.json --config")
    script = "\n".join(["set -e", certs, serve, ADDRESS_OF_ANY_PORT, *asking, "set +e", refused, "echo status $?"])
    shutil.copytree(REPOSITORY / "examples" / "secure", tmp_path / "examples" / "secure")
    with subprocess.Popen(
        ["bash", "-c", f"{script}\nkill %1\nwait"],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as bash:
        try:
            out, err = bash.communicate(timeout=TIMEOUT_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(bash.pid, signal.SIGKILL)
    assert "two teas" in out, out + err
    assert "status 5" in out, out + err
    assert "TOPIC_AUTHORIZATION_FAILED" in err


def test_the_failing_example_test_fails_for_the_documented_reason(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(example("A test that fails, and why"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--color=no", "test_orders.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "FAILED test_orders.py::test_an_order_is_stored_once[default]" in done.stdout
    assert "assert 2 == 1" in done.stdout
    assert "rule rule-1: 1 matched, 1 hits" in done.stdout
