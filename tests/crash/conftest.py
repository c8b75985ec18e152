"""Fixtures: the proxy for storms, and the workers and the watcher of an exactly-once queue. Each test module defines
`broker`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.exactly_once_queue import RESULTS
from tests.crash.copying import Watcher
from tests.crash.queueing import PARTITIONS, Workers
from tests.support.broker_process import Broker
from tests.support.flaky_proxy import FlakyProxy


@pytest.fixture
def proxy() -> Iterator[FlakyProxy]:
    with FlakyProxy() as made:
        yield made


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    made = Workers(tmp_path)
    yield made
    made.close()


@pytest.fixture
def watcher(broker: Broker) -> Iterator[Watcher]:
    made = Watcher(broker.bootstrap, RESULTS, PARTITIONS, "watcher")
    made.start()
    yield made
    made.finish(reached_end=False)
