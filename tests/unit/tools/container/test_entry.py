"""Tests that the image's entry point interprets the words after the image's name in `docker run`, checks the broker's
health, and runs start scripts."""

import os
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from odradek.cli import main as cli
from odradek.tools.commands.tree import COMMANDS
from odradek.tools.container.entry import (
    READY_NOTE,
    SHELL_NOT_FOUND,
    Invocation,
    StartScriptFailed,
    kind_of,
    run_start_scripts,
)
from odradek.tools.container.health import check, ports
from tests.support.broker_process import BrokerProcess

REPOSITORY = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize(
    ("words", "kind", "rest"),
    [
        ("", Invocation.SERVE, ""),
        ("--override num.partitions=3", Invocation.SERVE, "--override num.partitions=3"),
        ("serve --port 9092", Invocation.SERVE, "--port 9092"),
        ("odradek serve --port 9092", Invocation.SERVE, "--port 9092"),
        ("odradek", Invocation.SERVE, ""),
        ("topics list", Invocation.COMMAND, "topics list"),
        ("odradek topics list", Invocation.COMMAND, "topics list"),
        ("--help", Invocation.COMMAND, "--help"),
        ("-h", Invocation.COMMAND, "-h"),
        ("serve --help", Invocation.COMMAND, "serve --help"),
        ("sh -c true", Invocation.PROGRAM, "sh -c true"),
        ("/etc/kafka/docker/run", Invocation.PROGRAM, "/etc/kafka/docker/run"),
        ("topcis list", Invocation.PROGRAM, "topcis list"),
    ],
)
def test_words_are_options_of_serve_a_command_or_a_program(words: str, kind: Invocation, rest: str) -> None:
    assert kind_of(words.split(), tuple(COMMANDS)) == (kind, rest.split())


def run(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "odradek.tools.container", *words],
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_program_takes_the_place_of_the_entry_point() -> None:
    assert run("sh", "-c", "echo $0 is $PPID; exit 7", "x").returncode == 7


def test_an_unknown_word_is_explained() -> None:
    done = run("topcis", "list")
    assert done.returncode == SHELL_NOT_FOUND
    assert (
        "topcis is not a command of odradek (`--help` lists them), and cannot be run as a program: No such file"
        in done.stderr
    )


def test_a_command_of_odradek_runs() -> None:
    assert run("version").stdout.startswith("odradek ")


def test_a_missing_secret_is_refused_with_the_place_where_it_is_looked_for() -> None:
    done = run(KAFKA_SSL_KEY_CREDENTIALS="nowhere")
    assert done.returncode == 1
    assert "/etc/kafka/secrets/nowhere: No such file or directory; mount the folder" in done.stderr


@pytest.mark.parametrize(
    "awaited",
    [
        r".*Transitioning from RECOVERY to RUNNING.*",  # Testcontainers for Java and Go wait for this line
        r".*\[KafkaServer id=\d+\] started.*",  # Testcontainers for Python waits for this line with ZooKeeper
        r".*Kafka Server started.*",  # Testcontainers for Python waits for this line with KRaft
    ],
)
def test_the_log_has_the_line_that_testcontainers_wait_for(awaited: str) -> None:
    import re

    assert re.match(awaited, READY_NOTE.format(node_id=1))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"listeners": "PLAINTEXT://:9092"}, (9644, 9092)),
        ({"listeners": "CONTROLLER://:29093,IN://[::1]:19092,OUT://:9092"}, (9644, 19092)),
        ({"listeners": "c://:1,a://:2", "controller.listener.names": "C"}, (9644, 2)),
        ({"listeners": "PLAINTEXT://:9092", "odradek.http.port": "9999"}, (9999, 9092)),
        ({"listeners": "PLAINTEXT://:9092", "odradek.http.port": "-1"}, (None, 9092)),
        ({"listeners": "PLAINTEXT://:9092", "odradek.http.security.protocol": "SSL"}, (None, 9092)),
    ],
)
def test_the_health_check_knows_the_ports(settings: dict[str, str], expected: tuple[int | None, int]) -> None:
    assert ports(settings) == expected


def test_a_broker_that_is_not_there_is_not_healthy() -> None:
    with pytest.raises(ConnectionRefusedError):
        check(1, 1)
    with pytest.raises(ConnectionRefusedError):
        check(None, 1)


def test_the_command_says_whether_the_broker_is_ready(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(["health", "--http-port", "1"]) == 1
    assert capsys.readouterr().err == (
        "odradek health: the broker is not ready: port 1 of 127.0.0.1: Connection refused\n"
    )
    with BrokerProcess(tmp_path / "data") as broker:
        assert isinstance(broker, BrokerProcess)
        port = broker.ready["http_port"]
        urlopen(f"http://127.0.0.1:{port}/readyz", timeout=60).close()  # the first request loads the HTTP server
        assert cli(["health", "--http-port", str(port)]) == 0
    assert run("health", KAFKA_ODRADEK_HTTP_PORT="1").returncode == 1


def test_scripts_run_once_before_the_first_start_in_the_order_of_their_names(tmp_path: Path) -> None:
    scripts, mark, said = tmp_path / "scripts", tmp_path / "mark", tmp_path / "said"
    scripts.mkdir()
    (scripts / "2.sh").write_text(f"#!/bin/sh\necho two >> {said}\n")
    (scripts / "2.sh").chmod(0o755)
    (scripts / "1.sh").write_text(f"[[ x == x ]] && echo one >> {said}\n")  # a bash script that is not executable
    (scripts / "README").write_text("")
    assert run_start_scripts(scripts, mark) == [
        f"{scripts}/1.sh was run",
        f"{scripts}/2.sh was run",
        f"{scripts}/README is ignored, because its name does not end with .sh",
    ]
    assert said.read_text() == "one\ntwo\n"
    assert run_start_scripts(scripts, mark) == []
    assert said.read_text() == "one\ntwo\n"


def test_a_script_that_fails_is_named_and_runs_again_at_the_next_start(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    (tmp_path / "1.sh").write_text("exit 3\n")
    for _ in range(2):
        with pytest.raises(StartScriptFailed, match=r"1\.sh failed with status 3, so the broker does not start"):
            run_start_scripts(tmp_path, mark)
    assert not mark.exists()


def test_without_scripts_nothing_is_marked(tmp_path: Path) -> None:
    assert run_start_scripts(tmp_path / "nowhere", tmp_path / "mark") == []
    assert not (tmp_path / "mark").exists()
