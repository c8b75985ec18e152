"""Tests limits on the rate and the number of connections (docs/spec/security.md#s4-3, #s5)."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

from odradek.broker.api.context import ConnectionInfo
from odradek.broker.network.admission import MAX_HELD_CONNECTIONS, Admission, Admissions, ConnectionLimits
from odradek.broker.network.server import bind
from odradek.broker.security.quotas.connections import FIRST_CLEARANCE, ConnectionRates
from odradek.broker.security.quotas.entities import QuotaEntity
from odradek.broker.security.quotas.metering import Windows
from tests.support.clock import ManualTimers
from tests.support.peer import server_with

T0 = 1_800_000_000_000
HERE, THERE = "10.0.0.1", "10.0.0.2"
RATE = "connection_creation_rate"


def rates(
    limits: dict[str | None, float] | None = None,
    *,
    of_broker: float | None = None,
    of_listener: dict[str, float] | None = None,
) -> ConnectionRates:
    """Returns connection rates with the given limits.

    limits  limit by address; None applies to addresses that have no limit of their own
    """
    found = ConnectionRates(Windows())
    by_entity: dict[QuotaEntity, dict[str, float]] = {
        (("ip", address),): {RATE: limit} for address, limit in (limits or {}).items()
    }
    known = {address: (address,) for address in limits or {} if address is not None}
    found.set_limits(by_entity, known, of_broker=of_broker, of_listener=of_listener or {})
    return found


def test_scenario_148_ten_seconds_worth_are_free_and_the_next_is_held_for_a_window_at_most() -> None:
    of_address = rates({HERE: 1})
    assert [of_address.held_ms(HERE, T0) for _ in range(12)] == [0] * 10 + [1000, 1000]
    assert of_address.held_ms(THERE, T0) == 0


def test_scenario_148_connections_that_were_held_do_not_count() -> None:
    of_address = rates({HERE: 1})
    for _ in range(100):
        of_address.held_ms(HERE, T0)
    assert of_address.held_ms(HERE, T0 + 500) == 500
    assert [of_address.held_ms(HERE, T0 + 11_500) for _ in range(11)] == [0] * 10 + [1000]


def test_scenario_148_an_address_has_its_own_limit_or_that_of_all() -> None:
    of_address = rates({None: 1, HERE: 2})
    assert [of_address.held_ms(HERE, T0) for _ in range(20)] == [0] * 20
    assert [of_address.held_ms(THERE, T0) for _ in range(10)] == [0] * 10
    assert of_address.held_ms(HERE, T0) == 500
    assert of_address.held_ms(THERE, T0) == 1000


def test_scenario_139_a_limit_holds_for_the_addresses_of_a_host() -> None:
    of_host = ConnectionRates(Windows())
    limits: dict[QuotaEntity, dict[str, float]] = {(("ip", "localhost"),): {RATE: 1}}
    of_host.set_limits(limits, {"localhost": ("127.0.0.1", "::1")}, of_broker=None, of_listener={})
    assert [of_host.held_ms("::1", T0) for _ in range(11)][-1] == 1000
    assert of_host.held_ms("127.0.0.1", T0) == 0


def test_scenario_149_one_after_the_other_waits_and_a_second_at_most() -> None:
    of_broker = rates(of_broker=1)
    assert [of_broker.waits_ms("A", T0) for _ in range(13)] == [0] * 10 + [1000, 2000, 3000]
    assert of_broker.waits_ms("A", T0 + 60_000) == 0


def test_scenario_149_a_listener_can_have_its_own_rate() -> None:
    of_listener = rates(of_broker=100, of_listener={"A": 1})
    assert [of_listener.waits_ms("A", T0) for _ in range(11)][-1] == 1000
    assert of_listener.waits_ms("B", T0) == 0


def test_addresses_without_recent_connections_are_forgotten() -> None:
    of_address = rates({None: 1})
    for number in range(3 * FIRST_CLEARANCE):
        of_address.held_ms(f"10.0.{number // 256}.{number % 256}", T0 + number * 100)
    assert of_address.address_count <= FIRST_CLEARANCE


@dataclass(eq=False)
class Newcomer:
    info: ConnectionInfo
    events: list[str] = field(default_factory=list)

    def serve(self) -> None:
        self.events.append("served")

    def abort(self) -> None:
        self.events.append("closed")


class Rates:
    """A stand-in for the connection rates. It returns the delays that the test has set."""

    def __init__(self, *, held_ms: int = 0, waits_ms: int = 0) -> None:
        self.held, self.waits = held_ms, waits_ms
        self.counted = 0

    def held_ms(self, address: str) -> int:
        return self.held

    def waits_ms(self, listener: str) -> int:
        self.counted += 1
        return self.waits


class Door:
    def __init__(self, limits: ConnectionLimits | None = None, rates: Rates | None = None) -> None:
        self.timers = ManualTimers()
        self.admissions = Admissions(limits or ConnectionLimits(), self.timers)
        self.admissions.rates = rates

    def comes(self, host: str = HERE, listener: str = "A") -> tuple[Newcomer, Admission]:
        newcomer = Newcomer(ConnectionInfo(1, host, 1, listener))
        return newcomer, self.admissions.admit(newcomer)


def test_scenario_148_a_connection_above_the_rate_is_held_and_then_closed() -> None:
    door = Door(rates=Rates(held_ms=700))
    newcomer, admission = door.comes()
    assert admission is Admission.HELD
    door.timers.advance(699)
    assert newcomer.events == []
    door.timers.advance(1)
    assert newcomer.events == ["closed"]
    door.admissions.release(newcomer, admission)


def test_connections_beyond_the_maximum_of_held_ones_are_refused() -> None:
    door = Door(rates=Rates(held_ms=700))
    assert {door.comes()[1] for _ in range(MAX_HELD_CONNECTIONS)} == {Admission.HELD}
    assert door.comes()[1] is Admission.REFUSED


def test_scenario_149_a_waiting_connection_is_served_when_its_turn_comes() -> None:
    door = Door(rates=Rates(waits_ms=300))
    newcomer, admission = door.comes()
    assert admission is Admission.WAITS
    door.timers.advance(300)
    assert newcomer.events == ["served"]


def test_scenario_149_no_more_wait_than_the_backlog_and_the_others_do_not_count() -> None:
    slow = Rates(waits_ms=300)
    door = Door(ConnectionLimits(accept_backlog=2), slow)
    assert [door.comes()[1] for _ in range(4)] == [Admission.WAITS] * 2 + [Admission.REFUSED] * 2
    assert slow.counted == 2


def test_a_connection_that_closes_before_its_turn_leaves_no_timer() -> None:
    door = Door(rates=Rates(waits_ms=300))
    newcomer, admission = door.comes()
    door.admissions.release(newcomer, admission)
    assert door.timers.armed() == []


def test_a_delayed_connection_waits_for_a_free_place_in_a_full_broker() -> None:
    slow = Rates()
    door = Door(ConnectionLimits(max_connections=1), slow)
    first, admission = door.comes()
    slow.waits = 300
    second, _ = door.comes()
    door.timers.advance(300)
    assert second.events == []
    door.admissions.release(first, admission)
    assert second.events == ["served"]


def test_scenario_153_connections_of_an_address_count_over_all_listeners() -> None:
    door = Door(ConnectionLimits(max_connections_per_ip=2, max_connections_per_ip_overrides={THERE: 3}))
    assert [door.comes(HERE, listener)[1] for listener in "ABA"] == [Admission.ACCEPTED] * 2 + [Admission.REFUSED]
    assert [door.comes(THERE)[1] for _ in range(4)] == [Admission.ACCEPTED] * 3 + [Admission.REFUSED]


def test_scenario_153_the_limits_can_be_changed_while_connections_are_open() -> None:
    door = Door()
    door.comes()
    door.admissions.set_limits(ConnectionLimits(max_connections_per_ip=1))
    assert door.comes()[1] is Admission.REFUSED
    door.admissions.set_limits(ConnectionLimits(max_connections_per_ip=2))
    assert door.comes()[1] is Admission.ACCEPTED


def test_scenario_154_a_newcomer_of_one_listener_waits_for_another_to_leave_at_any() -> None:
    door = Door(ConnectionLimits(max_connections=1))
    first, admission = door.comes(listener="A")
    second, waits = door.comes(listener="B")
    assert waits is Admission.WAITS
    door.admissions.release(first, admission)
    assert second.events == ["served"]


def test_scenario_154_a_full_listener_does_not_block_other_listeners() -> None:
    door = Door(ConnectionLimits(max_connections=3, max_connections_of_listeners={"A": 1}))
    first, admission = door.comes(listener="A")
    second, _ = door.comes(listener="A")
    assert door.comes(listener="B")[1] is Admission.ACCEPTED
    assert second.events == []
    door.admissions.release(first, admission)
    assert second.events == ["served"]


def test_scenario_154_more_room_lets_in_those_that_wait() -> None:
    door = Door(ConnectionLimits(max_connections=1))
    door.comes()
    second, _ = door.comes()
    door.admissions.set_limits(ConnectionLimits(max_connections=2))
    assert second.events == ["served"]


async def test_scenario_148_over_a_socket_it_is_closed_without_a_byte() -> None:
    timers = ManualTimers()
    admissions = Admissions(ConnectionLimits(), timers)
    admissions.rates = Rates(held_ms=1000)
    server = server_with({}, timers=timers, admissions=admissions)
    bound = bind("127.0.0.1", 0)
    port = bound.getsockname()[1]
    await server.listen(bound)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while not server.connection_count:
        await asyncio.sleep(0)
    writer.write(b"what nobody reads")
    timers.advance(1000)
    with suppress(ConnectionResetError):
        assert await reader.read(1) == b""
    writer.close()
    await server.stop(0)
    assert server.connection_count == 0
