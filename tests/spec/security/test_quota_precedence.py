"""Tests the precedence of quotas, and which clients share a quota (docs/spec/security.md#s4-2)."""

import pytest

from odradek.broker.security.quotas.entities import QuotaEntity, SharingClients, quota_of
from odradek.broker.security.quotas.metering import FIRST_CLEARANCE, Metering, Windows

KEY = "producer_byte_rate"
USER, ANY_USER = ("user", "ann"), ("user", None)
CLIENT, ANY_CLIENT = ("client-id", "app"), ("client-id", None)
BOTH, ALL_OF_USER, ALL_OF_CLIENT = (
    SharingClients("ann", "app"),
    SharingClients("ann", None),
    SharingClients(None, "app"),
)
LEVELS: tuple[tuple[QuotaEntity, SharingClients], ...] = (
    ((USER, CLIENT), BOTH),
    ((USER, ANY_CLIENT), BOTH),
    ((USER,), ALL_OF_USER),
    ((ANY_USER, CLIENT), BOTH),
    ((ANY_USER, ANY_CLIENT), BOTH),
    ((ANY_USER,), ALL_OF_USER),
    ((CLIENT,), ALL_OF_CLIENT),
    ((ANY_CLIENT,), ALL_OF_CLIENT),
)
T0 = 1_800_000_000_000


@pytest.mark.parametrize("level", range(len(LEVELS)))
def test_scenario_143_each_level_beats_those_below_it(level: int) -> None:
    limits = {entity: {KEY: float(number)} for number, (entity, _) in enumerate(LEVELS) if number >= level}
    assert quota_of(limits, KEY, "ann", "app") == (float(level), LEVELS[level][1])


def test_scenario_143_kinds_of_quotas_have_levels_of_their_own() -> None:
    limits = {(USER, CLIENT): {"consumer_byte_rate": 1.0}, (ANY_CLIENT,): {KEY: 2.0}}
    assert quota_of(limits, KEY, "ann", "app") == (2.0, ALL_OF_CLIENT)
    assert quota_of(limits, "consumer_byte_rate", "ann", "app") == (1.0, BOTH)


def test_clients_without_a_matching_quota_are_not_limited() -> None:
    assert quota_of({(USER, CLIENT): {KEY: 1.0}, (("user", "bob"),): {KEY: 1.0}}, KEY, "ann", "other") is None


def metering(limits: dict[QuotaEntity, dict[str, float]]) -> Metering:
    found = Metering(Windows(), Windows())
    found.set_limits(limits)
    return found


def throttle_ms(metering: Metering, user: str, client_id: str, size_bytes: int, now_ms: int = T0) -> int:
    meter = metering.meter_for(user, client_id)
    return 0 if meter is None else meter.record_produce(size_bytes, now_ms)


def test_clients_of_one_user_share_the_limit_of_the_user() -> None:
    of_user = metering({(USER,): {KEY: 1000}})
    assert throttle_ms(of_user, "ann", "a", 10_000) == 0
    assert throttle_ms(of_user, "ann", "b", 1_000) == 1000


def test_users_share_the_limit_of_a_client_id() -> None:
    of_client = metering({(CLIENT,): {KEY: 1000}})
    assert throttle_ms(of_client, "ann", "app", 10_000) == 0
    assert throttle_ms(of_client, "bob", "app", 1_000) == 1000


def test_a_default_gives_each_client_the_limit_for_itself() -> None:
    for_each = metering({(ANY_USER, ANY_CLIENT): {KEY: 1000}})
    assert throttle_ms(for_each, "ann", "a", 10_000) == 0
    assert throttle_ms(for_each, "ann", "b", 10_000) == 0
    assert throttle_ms(for_each, "ann", "a", 1_000) == 1000


def test_a_changed_limit_applies_to_previous_usage() -> None:
    changing = metering({(USER,): {KEY: 1000}})
    assert throttle_ms(changing, "ann", "a", 10_000) == 0
    changing.set_limits({(USER,): {KEY: 500}})
    assert throttle_ms(changing, "ann", "a", 0) == 10_000
    changing.set_limits({})
    assert throttle_ms(changing, "ann", "a", 10_000) == 0


def test_clients_that_went_away_are_forgotten() -> None:
    many = metering({(ANY_CLIENT,): {KEY: 1000, "controller_mutation_rate": 1}})
    for number in range(3 * FIRST_CLEARANCE):
        now_ms = T0 + number * 100
        client = many.meter_for("ann", f"invented-{number}")
        assert client is not None
        client.record_produce(10, now_ms)
        client.record_mutation(1, now_ms, is_strict=True)
    assert len(list(many.usage(now_ms))) <= 2 * 110
    assert many.rate_count <= FIRST_CLEARANCE
