"""Fixtures: a broker for the whole suite, a separate topic for every test, and clusters with the control interface."""

from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path

import pytest

from odradek.testing.sync import Cluster, Odradek
from tests.clients.admin import create_topic
from tests.clients.speakers import SPEAKERS, Speaker
from tests.support.broker_process import Broker, new_broker

SETTINGS: dict[str, object] = {"group.min.session.timeout.ms": 500, "offsets.topic.num.partitions": 4}
# Settings for the shared broker. With the default settings, members of KIP-848 groups would notice a rebalance only
# after five seconds.
QUICK: dict[str, object] = SETTINGS | {
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 100,
}
StartBroker = Callable[[Mapping[str, object]], Broker]

_RUNNING: list[Broker] = []


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with new_broker(tmp_path_factory.mktemp("broker") / "data", QUICK) as running:
        _RUNNING.append(running)
        yield running
        _RUNNING.remove(running)


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Yields `start_broker(settings)`, for tests that stop or kill a broker or need special settings."""
    started: list[Broker] = []

    def start(settings: Mapping[str, object]) -> Broker:
        own = new_broker(tmp_path / f"data-{len(started)}", SETTINGS | dict(settings)).start()
        started.append(own)
        _RUNNING.append(own)
        return own

    yield start
    for own in started:
        _RUNNING.remove(own)
        if own.is_running():
            own.stop()


@pytest.fixture(scope="module")
def odradek() -> Iterator[Odradek]:
    """Starts a process with the control interface for each module. Replaces the pytest plugin's fixture, whose process
    lasts for the whole session."""
    with Odradek.start() as started:
        yield started


@pytest.fixture
def kafka(odradek: Odradek) -> Iterator[Cluster]:
    """Yields a new cluster. Test modules that need other clusters define their own fixture."""
    with odradek.cluster() as cluster:
        yield cluster


@pytest.fixture
def bootstrap(broker: Broker) -> str:
    return broker.bootstrap


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    """Creates a topic with one partition, named after the test."""
    return create_topic(broker.bootstrap, request.node.name)


@pytest.fixture(params=SPEAKERS)
def speaker(request: pytest.FixtureRequest) -> Speaker:
    return SPEAKERS[request.param]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for running in _RUNNING:
            text = running.log_text()[-6000:]
            item.add_report_section(call.when, f"{running.name} at {running.bootstrap}", text)
    return report
