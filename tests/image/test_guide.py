"""Tests that the commands in docs/docker.md run as a reader would paste them, in containers that need no engine.

docs/docker.md#how-it-is-tested lists the parts of the page that do not run, with the reasons.
"""

import json
import re
import shlex
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from signal import SIGKILL

import pytest
import yaml

from tests.image.clients import consume, produce
from tests.image.conftest import Run
from tests.image.engine import Engine, Service
from tests.image.machine import Container
from tests.support.guides import Block, blocks, commands
from tests.support.oracle import REPOSITORY

PAGE = blocks("docs/docker.md")
ELSEWHERE = {"prometheus", "grafana"}  # services that do not run here, because their images are missing
SPARK = "docker/compose.spark.yaml"  # does not run here, because its image contains Spark (1 GB)
STOPS_WITHIN_S = 10  # After this time, `docker stop` kills a container.
SHELL = [block for block in PAGE if block.language == "sh"]
INLINE = re.findall(r"`(docker (?:tag|run|exec)\s[^`…]+)`", (REPOSITORY / "docs/docker.md").read_text())


def words_of(block: Block) -> Iterator[list[str]]:
    for command in commands(block):
        docker, *words = shlex.split(command, comments=True)
        assert docker == "docker", f"{block.place}: the test cannot play {command}"
        yield words


def wait_until(is_true: Callable[[], bool], container: Container) -> None:
    deadline = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < deadline, container.log
        time.sleep(0.1)


def check_broker(broker: Container) -> None:
    """Checks that the broker becomes healthy, and that a client on the host can write and read."""
    broker.wait_until_healthy()
    produce("localhost:9092", "from-the-host", ["1"])
    assert consume("localhost:9092", "from-the-host", 1) == ["1"]


def check_services(services: list[Service]) -> None:
    """Checks that each service with Odradek's image is running or has succeeded, and that the consumer prints
    records."""
    assert {each.name for each in services if each.container is None} <= ELSEWHERE
    for consumer in [each.container for each in services if each.name == "consumer"]:
        assert consumer is not None
        wait_until(lambda: re.search(r"\d\d:\d\d:\d\d", consumer.log) is not None, consumer)  # noqa: B023
    for service in services:
        container = service.container
        assert container is None or container.is_running() or container.wait() == 0, container.log


def check_scraped(broker: Container) -> None:
    """Checks that the broker returns its metrics in response to a request like Prometheus's."""
    described = yaml.safe_load((REPOSITORY / "docker/observe/prometheus.yaml").read_text())
    (job,) = described["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"{broker.hostname}:9644"]}]
    connection = HTTPConnection("localhost", 9644, timeout=30)
    try:
        credentials = job["authorization"]["credentials"]
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {credentials}"})
        answer = connection.getresponse()
        assert answer.status == 200
        assert b"kafka_server" in answer.read()
    finally:
        connection.close()


def test_the_commands_of_the_page_run_from_top_to_bottom(start: Run, tmp_path: Path) -> None:
    engine = Engine(start, tmp_path)
    for block in SHELL:
        for action, *words in words_of(block):
            if action == "compose":
                continue  # The next test runs these commands, which need the same ports.
            if action != "run":
                done = getattr(engine, action)(words)
                assert done is None or done.split() == ["from-the-host"]
                continue
            container = engine.run(words)
            if "-d" in words:
                check_broker(container)
            elif "--override" in words:
                container.wait_for("accepts Kafka clients")
                shown = container.execute("odradek", "configs", "describe", "--broker", "1", "--all", "--json")
                values = {each["name"]: each["value"] for each in json.loads(shown.stdout)}
                name, _, value = words[words.index("--override") + 1].partition("=")
                assert values[name] == value
                assert container.stop() == 0  # a reader would press Ctrl-C
            else:
                assert container.wait() == 0, container.log
                assert "from-the-host\n" in container.log or "odradek\n" in container.log
    for command in INLINE:
        _, action, *words = shlex.split(command)
        getattr(engine, action)(words)
    assert {"odradek", "odradek:8.0.0"} == engine.images


@pytest.mark.parametrize(
    "words", [words for block in SHELL for words in words_of(block) if words[0] == "compose"], ids=" ".join
)
def test_a_compose_setup_of_the_page_comes_up(start: Run, tmp_path: Path, words: list[str]) -> None:
    if SPARK in words:
        pytest.skip("the image with Spark is not built here; test_files.py validates the file")
    engine = Engine(start, tmp_path)
    services = engine.compose(words[1:])
    check_services(services)
    broker = engine.containers["broker"]
    if any(each.name == "prometheus" for each in services):
        check_scraped(broker)
    for service in reversed(services):
        if service.container is not None and service.container.is_running():
            assert service.container.stop(STOPS_WITHIN_S) != -SIGKILL, f"docker stop has to kill {service.name}"
    assert "the broker has stopped; all acknowledged records are on the disk" in broker.log


def test_each_block_of_the_page_is_played_or_listed() -> None:
    """Tests that the page contains only shell commands and Java code. The Java code does not run, because it needs an
    engine."""
    assert {block.language for block in PAGE} == {"sh", "java"}
