"""Kafka's tools in one JVM, and one broker for the tests that only need some broker."""

from collections.abc import Iterator

import pytest

from tests.conformance.tools import Tools
from tests.support.broker_process import Broker, new_broker


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    jvm = Tools(tmp_path_factory.mktemp("tools"))
    yield jvm
    jvm.close()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with new_broker(tmp_path_factory.mktemp("broker") / "data", {"offsets.topic.num.partitions": 4}) as running:
        yield running
