"""Provides one broker and one Spark cluster for all tests. Drivers and executors run in separate processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark comes with odradek[spark]")

from tests.clients.admin import create_topic
from tests.clients.own_producers import TWO_PHASE
from tests.spark_faults.drivers import Cluster, Query
from tests.support import spark_session
from tests.support.broker_process import Broker, new_broker

PARTITIONS = 2


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with new_broker(tmp_path_factory.mktemp("broker") / "data", TWO_PHASE) as running:
        yield running


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    return spark_session.environment(tmp_path_factory.mktemp("spark"))


@pytest.fixture
def output(broker: Broker, request: pytest.FixtureRequest) -> str:
    return create_topic(broker.bootstrap, request.node.name, partitions=PARTITIONS)


@pytest.fixture
def query(broker: Broker, output: str, tmp_path: Path, environment: Mapping[str, str]) -> Iterator[Query]:
    with closing(Query(broker, output, tmp_path, environment)) as made:
        yield made


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, environment: Mapping[str, str]) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"), environment)
    try:
        made.start()
        yield made
    finally:
        made.close()
