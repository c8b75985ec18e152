"""Tests Kafka's connection limits and the limit on the memory used by requests."""

from odradek.broker.network.admission import Admission, ConnectionLimits, ConnectionQuota, RequestMemory

HERE, THERE = "10.0.0.1", "10.0.0.2"


def test_without_limits_everybody_is_accepted() -> None:
    quota = ConnectionQuota(ConnectionLimits())
    assert {quota.admit(HERE) for _ in range(1000)} == {Admission.ACCEPTED}


def test_too_many_from_one_address_are_refused_and_others_are_not() -> None:
    quota = ConnectionQuota(ConnectionLimits(max_connections_per_ip=2))
    assert [quota.admit(HERE) for _ in range(3)] == [Admission.ACCEPTED, Admission.ACCEPTED, Admission.REFUSED]
    assert quota.admit(THERE) is Admission.ACCEPTED


def test_a_refused_connection_takes_no_place() -> None:
    quota = ConnectionQuota(ConnectionLimits(max_connections_per_ip=1))
    quota.admit(HERE)
    quota.admit(HERE)
    quota.release(HERE, "", Admission.ACCEPTED)
    assert quota.admit(HERE) is Admission.ACCEPTED


def test_an_override_replaces_the_limit_for_its_address_also_upwards() -> None:
    limits = ConnectionLimits(max_connections_per_ip=1, max_connections_per_ip_overrides={HERE: 2, THERE: 0})
    quota = ConnectionQuota(limits)
    assert [quota.admit(HERE) for _ in range(3)] == [Admission.ACCEPTED, Admission.ACCEPTED, Admission.REFUSED]
    assert quota.admit(THERE) is Admission.REFUSED


def test_a_full_broker_lets_newcomers_wait_and_takes_them_when_a_place_is_free() -> None:
    quota = ConnectionQuota(ConnectionLimits(max_connections=1))
    assert quota.admit(HERE) is Admission.ACCEPTED
    assert quota.admit(THERE) is Admission.WAITS
    assert not quota.serve_waiting()
    quota.release(HERE, "", Admission.ACCEPTED)
    assert quota.serve_waiting()
    assert not quota.serve_waiting()
    assert quota.admit(HERE) is Admission.WAITS


def test_no_more_may_wait_than_the_accept_backlog() -> None:
    quota = ConnectionQuota(ConnectionLimits(max_connections=1, accept_backlog=2))
    assert quota.admit(HERE) is Admission.ACCEPTED
    assert [quota.admit(HERE) for _ in range(3)] == [Admission.WAITS, Admission.WAITS, Admission.REFUSED]


def test_one_that_leaves_while_waiting_frees_its_place_in_the_queue() -> None:
    quota = ConnectionQuota(ConnectionLimits(max_connections=1, accept_backlog=1))
    quota.admit(HERE)
    quota.admit(HERE)
    quota.release(HERE, "", Admission.WAITS)
    assert quota.admit(HERE) is Admission.WAITS


def test_one_that_waits_counts_for_its_address() -> None:
    quota = ConnectionQuota(ConnectionLimits(max_connections=1, max_connections_per_ip=2))
    quota.admit(HERE)
    quota.admit(HERE)
    assert quota.admit(HERE) is Admission.REFUSED


def test_while_a_byte_of_memory_is_left_one_more_request_of_any_size_gets_in() -> None:
    memory = RequestMemory(100)
    assert memory.reserve(99)
    assert memory.reserve(1_000_000)
    assert not memory.reserve(1)


def test_connections_that_wait_for_memory_are_called_once_when_there_is_room() -> None:
    memory = RequestMemory(100)
    memory.reserve(150)
    calls: list[int] = []
    memory.wait_for_room(lambda: calls.append(1))
    assert memory.release(50) == []  # 0 bytes are left
    for again in memory.release(100):
        again()
    assert calls == [1]
    assert memory.release(0) == []
