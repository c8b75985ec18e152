"""Tests that Odradek's share consumer works with Kafka 4.3.1, in the scenarios of
tests/clients/test_own_share_consumer.py."""

from collections.abc import Iterator

import pytest

from tests.clients import test_own_share_consumer as scenarios
from tests.clients.own_share_consumers import SETTINGS
from tests.support.broker_process import Broker, KafkaProcess
from tests.support.oracle import needs_kafka

pytestmark = needs_kafka
at, queue = scenarios.at, scenarios.queue  # fixtures that use the broker below
globals().update({name: scenario for name, scenario in vars(scenarios).items() if name.startswith("test_")})


@pytest.fixture(scope="module")
def share_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with KafkaProcess(tmp_path_factory.mktemp("kafka") / "data", SETTINGS) as running:
        yield running
