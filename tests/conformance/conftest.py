"""Fixtures for Kafka's tools, which run in one JVM, for brokers shared by several tests, and for scenes with streams
groups."""

import itertools
from collections.abc import Iterator

import pytest

from tests.conformance import streams_scene
from tests.conformance.tools import Tools
from tests.support.broker_process import Broker, BrokerProcess, KafkaProcess, new_broker


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    jvm = Tools(tmp_path_factory.mktemp("tools"))
    yield jvm
    jvm.close()


@pytest.fixture(scope="session", params=["4.3.1", "4.4.0"])
def clients(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Tools]:
    """Yields a JVM that runs the Java programs in this directory, once with each release's clients."""
    jvm = Tools(tmp_path_factory.mktemp("clients"), request.param)
    yield jvm
    jvm.close()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with new_broker(tmp_path_factory.mktemp("broker") / "data", {"offsets.topic.num.partitions": 4}) as running:
        yield running


@pytest.fixture(scope="session", params=["kafka", "odradek"])
def streams_broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Yields Kafka, then Odradek. Every scenario with streams groups must have the same outcome on both brokers."""
    data_dir = tmp_path_factory.mktemp(f"streams-{request.param}") / "data"
    settings = streams_scene.SETTINGS
    broker: Broker = (
        KafkaProcess(data_dir, settings, heap="-Xmx512M")
        if request.param == "kafka"
        else BrokerProcess(data_dir, settings)
    )
    with broker:
        talk = streams_scene.talk_to(broker)
        streams_scene.Scene(talk, "prepares").make_shared_topics()
        talk.close()
        yield broker


NUMBERS = itertools.count()


@pytest.fixture
def scene(streams_broker: Broker) -> Iterator[streams_scene.Scene]:
    """Yields a scene with a new streams group."""
    talk = streams_scene.talk_to(streams_broker)
    yield streams_scene.Scene(talk, f"app{next(NUMBERS)}", streams_broker.name == "kafka")
    talk.close()
