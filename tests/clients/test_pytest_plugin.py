"""Tests the pytest fixtures in another project, whose environment contains only the package."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.testing.pytest_plugin import errors_in
from odradek.testing.sync import Odradek

PAGE = Path(__file__).resolve().parents[2] / "docs/fixtures.md"
PROJECT = """
import asyncio
import pytest

from odradek.testing.pytest_plugin import errors_in
from confluent_kafka import Producer

RULE = {"name": "once", "match": {"api": "Produce"}, "do": {"error": "NOT_LEADER_OR_FOLLOWER"}, "times": 1}
NEVER = {"name": "never", "match": {"api": "EndTxn"}, "do": {"error": "NOT_COORDINATOR"}}

def send(kafka):
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "client.id": "payer"})
    producer.produce("payments", b"a")
    producer.flush()

@pytest.mark.parametrize("number", range(2))
def test_fresh(kafka, number):
    kafka.fault(RULE)
    send(kafka)
    assert kafka.faults()[0]["hits"] == 1
    assert kafka.wait(topic="payments", partition=0, log_end_offset=1)["log_start_offset"] == 0
    kafka.clock.advance(8 * 24 * 3_600_000)

@pytest.mark.kafka(settings={"num.partitions": "4"})
@pytest.mark.parametrize("kafka", [{"nodes": 1}, {"nodes": (1, 4, 9)}], indirect=True, ids=["one", "three"])
def test_options(kafka, request):
    assert len(kafka.nodes()) == {"one": 1, "three": 3}[request.node.callspec.id]
    send(kafka)
    kafka.wait(topic="payments", partition=3, log_end_offset=0)

@pytest.mark.kafka(preset=("open-transaction", {"topic": "orders"}))
def test_preset(kafka):
    facts = kafka.wait(topic="orders", partition=0, log_end_offset=1)
    assert facts["last_stable_offset"] < facts["log_end_offset"]

def test_on_asyncio(async_kafka):
    async def look():
        await async_kafka.clock.freeze()
        return await async_kafka.nodes()
    assert len(asyncio.run(look())) == 1

def test_fails(kafka):
    kafka.fault(RULE)
    kafka.fault(NEVER)
    send(kafka)
    assert False

def test_brings_nothing_about(kafka):
    kafka.fault(NEVER)
"""
WORKERS = """
import pytest

from odradek.testing.pytest_plugin import errors_in

@pytest.mark.parametrize("number", range(8))
def test_where(kafka, odradek, worker_id, number):
    with open("places", "a") as file:
        file.write(f"{worker_id} {odradek.port}\\n")
"""
ORDER = """
import pytest

from odradek.testing.pytest_plugin import errors_in

@pytest.fixture(scope="module")
def opened_early():
    yield

@pytest.fixture
def closed_last(request):
    clusters = []
    yield clusters
    for each in clusters:
        each.clock.now_ms  # raises Refused if the cluster is deleted
        print("the cluster was there for", request.node.name)

def test_a_fixture_before_it(closed_last, opened_early, kafka):
    closed_last.append(kafka)

def test_its_asyncio_form(closed_last, async_kafka):
    closed_last.append(async_kafka.plain)

@pytest.mark.usefixtures("kafka")
def test_a_finalizer_of_the_test(closed_last, request):
    closed_last.append(request.getfixturevalue("kafka"))
"""
TOKEN = "told to few"
ELSEWHERE = """
def test_where(kafka, odradek):
    print("served by port", odradek.port)
    assert len(kafka.nodes()) == 1
"""


def run(folder: Path, tests: str, *arguments: str, **more: str) -> str:
    """Runs tests in a folder and returns pytest's output.

    more  additional environment variables
    """
    (folder / "test_payments.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--color", "no", "-rA", *arguments]
    # tests/elsewhere has already imported part of the product.
    command += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"} | more
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)
    return ran.stdout + ran.stderr


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("project")
    example, *_ = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (folder / "test_page.py").write_text(example)
    return run(folder, PROJECT)


@pytest.mark.parametrize(
    "test",
    ["test_fresh[0]", "test_fresh[1]", "test_options[one]", "test_options[three]", "test_preset", "test_on_asyncio"],
)
def test_a_cluster_is_fresh_and_has_what_its_test_asks_for(report: str, test: str) -> None:
    assert f"PASSED test_payments.py::{test}\n" in report, report


def test_the_example_of_the_page_runs(report: str) -> None:
    assert "PASSED test_page.py::test_a_record_whose_partition_has_moved_is_sent_again\n" in report, report


def test_the_report_of_a_failed_test_shows_the_last_exchanges(report: str) -> None:
    assert "FAILED test_payments.py::test_fails" in report
    _, _, story = report.partition("Kafka: the last exchanges")
    assert "rule once: 1 matched, 1 hits" in story
    assert "payer Produce v" in story
    assert "NOT_LEADER_OR_FOLLOWER" in story


def test_a_rule_that_nothing_matched_is_an_error_of_a_test_that_passed_alone(report: str) -> None:
    assert "1 failed, 8 passed, 1 error in" in report
    assert "ERROR test_payments.py::test_brings_nothing_about" in report
    assert "no request matched never" in report


def test_a_cluster_outlives_the_fixtures_that_were_set_up_before_it(tmp_path: Path) -> None:
    report = run(tmp_path, ORDER)
    for test in ("test_a_fixture_before_it", "test_its_asyncio_form", "test_a_finalizer_of_the_test"):
        assert f"the cluster was there for {test}\n" in report, report
    assert "3 passed in" in report, report


@pytest.mark.slow
def test_the_workers_of_xdist_share_one_process(tmp_path: Path) -> None:
    report = run(tmp_path, WORKERS, "-n", "2")
    assert "8 passed" in report, report
    places = {tuple(line.split()) for line in (tmp_path / "places").read_text().splitlines()}
    assert {worker for worker, _ in places} == {"gw0", "gw1"}
    assert len({port for _, port in places}) == 1


@pytest.fixture(scope="module")
def guarded() -> Iterator[Odradek]:
    with Odradek.start(**{"odradek.http.token": TOKEN}) as started:
        yield started


@pytest.mark.parametrize("is_named_by", ["option", "environment"])
def test_the_token_of_the_environment_is_sent_to_a_process_that_requires_one(
    tmp_path: Path, guarded: Odradek, is_named_by: str
) -> None:
    address = f"{guarded.host}:{guarded.port}"
    if is_named_by == "option":
        report = run(tmp_path, ELSEWHERE, "--odradek", address, ODRADEK_TOKEN=TOKEN)
    else:
        report = run(tmp_path, ELSEWHERE, ODRADEK_CONTROL=address, ODRADEK_TOKEN=TOKEN)
    assert f"served by port {guarded.port}" in report
    assert "1 passed in" in report, report


def test_the_error_for_a_missing_token_has_the_message_of_the_process(tmp_path: Path, guarded: Odradek) -> None:
    report = run(tmp_path, ELSEWHERE, "--odradek", f"{guarded.host}:{guarded.port}")
    assert "Refused: 401: the request lacks the token of odradek.http.token, or the token is wrong" in report, report


@pytest.mark.linux  # On other systems, tests/elsewhere imports part of the product.
def test_a_run_that_needs_no_cluster_imports_the_plugin_alone(tmp_path: Path) -> None:
    imported = "import sys\n\ndef test_it(): print([n for n in sys.modules if n.startswith('odradek')])\n"
    report = run(tmp_path, imported)
    assert "['odradek', 'odradek.testing', 'odradek.testing.pytest_plugin']" in report, report


def test_an_invalid_address_is_refused_and_named(tmp_path: Path) -> None:
    report = run(tmp_path, "def test_it(kafka): pass\n", "--odradek", "nowhere")
    assert "--odradek nowhere is not HOST:PORT" in report


def test_an_error_code_that_kafka_lacks_is_reported_by_its_number() -> None:
    answer = {"responses": [{"errorCode": 0}, {"errorCode": 6}, {"errorCode": 999}]}
    assert errors_in(answer) == ["NOT_LEADER_OR_FOLLOWER", "999"]
