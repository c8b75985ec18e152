"""Provides one Spark session and one broker for all tests. Each test has its own topics."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark comes with odradek[spark]")

from tests.clients.admin import create_topic
from tests.clients.own_producers import TWO_PHASE
from tests.spark.checks import Numbers
from tests.support.broker_process import Broker, new_broker
from tests.support.spark_session import AVRO_JARS, environment, new_session, standard_error_in

PARTITIONS = 2


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with new_broker(tmp_path_factory.mktemp("broker") / "data", TWO_PHASE) as running:
        yield running


@pytest.fixture(scope="session")
def workers_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the file that receives the standard error output of the driver and the workers."""
    return tmp_path_factory.mktemp("workers") / "log"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, workers_log: Path) -> Iterator[Any]:
    """Yields a session with the master `local[2,4]`, because plain `local[2]` never retries a task."""
    # The sink remembers failed writes in TMPDIR.
    os.environ.update(environment(tmp_path_factory.mktemp("spark")), TMPDIR=str(tmp_path_factory.mktemp("tmp")))
    with standard_error_in(workers_log):
        session = new_session("local[2,4]", {"spark.jars": ",".join(map(str, AVRO_JARS))})
    from tests.spark.faults import FaultySource

    session.dataSource.register(FaultySource)
    yield session
    session.stop()


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    return create_topic(broker.bootstrap, request.node.name, partitions=PARTITIONS)


@pytest.fixture
def output(broker: Broker, request: pytest.FixtureRequest) -> str:
    return create_topic(broker.bootstrap, f"{request.node.name}-out", partitions=PARTITIONS)


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")


@pytest.fixture
def marks(tmp_path: Path) -> str:
    (tmp_path / "marks").mkdir()
    return str(tmp_path / "marks")


@pytest.fixture
def numbers(spark: Any, broker: Broker, output: str, checkpoint: str) -> Iterator[Numbers]:
    made = Numbers(spark, broker, output, checkpoint)
    yield made
    made.stop()
