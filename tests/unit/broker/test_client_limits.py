"""Tests changes to the connection limits while the broker is running."""

from types import SimpleNamespace
from typing import Any

from odradek.broker.client_limits import ClientLimits
from odradek.broker.configuration.config import BrokerConfig, configure
from odradek.broker.network.admission import ConnectionLimits
from tests.support.manual_loop import ManualWorkers


class SetLimits:
    """Stores the limits that were set last."""

    def __init__(self) -> None:
        self.limits = ConnectionLimits()
        self.rates = None

    def set_limits(self, limits: ConnectionLimits) -> None:
        self.limits = limits


class Running:
    """A broker without clients. Its background jobs complete when the test finishes them."""

    def __init__(self) -> None:
        self.workers = ManualWorkers()
        broker: Any = SimpleNamespace(
            config=configured(),
            workers=self.workers,
            metadata=SimpleNamespace(image=SimpleNamespace(client_quotas=SimpleNamespace(limits={}))),
            host_addresses={},
        )
        admissions: Any = SetLimits()
        dispatcher: Any = SimpleNamespace(throttling=None)
        self.broker = broker
        self.admissions = admissions
        self.limits = ClientLimits(broker, dispatcher, admissions)

    def change(self, **settings: str) -> None:
        self.broker.config = configured(**settings)
        self.limits.apply()

    @property
    def per_ip(self) -> dict[str, int]:
        return dict(self.admissions.limits.max_connections_per_ip_overrides)


def configured(**settings: str) -> BrokerConfig:
    return configure({}, {}, {name.replace("_", "."): value for name, value in settings.items()})[0]


def test_a_limit_for_an_address_applies_at_once() -> None:
    running = Running()
    running.change(max_connections_per_ip_overrides="127.0.0.1:5")
    assert running.per_ip == {"127.0.0.1": 5}


def test_a_host_name_is_resolved_beside_the_loop() -> None:
    running = Running()
    running.change(max_connections_per_ip_overrides="localhost:5")
    assert running.per_ip == {}
    running.workers.finish_all()
    assert running.per_ip == {"127.0.0.1": 5}


def test_a_change_during_the_resolution_of_names_wins() -> None:
    running = Running()
    running.change(max_connections_per_ip_overrides="localhost:5")
    running.change(max_connections_per_ip_overrides="127.0.0.1:7")
    running.workers.finish_all()
    assert running.per_ip == {"127.0.0.1": 7}
