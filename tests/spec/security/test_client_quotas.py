"""Tests the decisions of AlterClientQuotas and DescribeClientQuotas (docs/spec/security.md#s4-1)."""

import math
from collections.abc import Sequence

import pytest

from odradek.broker.security.quotas.decisions import (
    FilterComponent,
    LimitChange,
    QuotaChange,
    alter_client_quotas,
    describe_client_quotas,
    keys_of,
)
from odradek.broker.security.quotas.entities import ClientQuotasImage, QuotaEntity
from odradek.protocol.errors import ErrorCode as E
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.client_quota_record import ClientQuotaRecord, EntityData
from tests.support.metadata import decided

Names = Sequence[tuple[str, str | None]]
USER, CLIENT, IP = ("user", "ann"), ("client-id", "app"), ("ip", "127.0.0.1")
CLIENT_KEYS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")


def change(named: Names, *limits: tuple[str, float | None]) -> QuotaChange:
    return QuotaChange(named, [LimitChange(*each) for each in limits])


def alter(
    image: ClientQuotasImage, *changes: QuotaChange, unknown_hosts: frozenset[str] = frozenset()
) -> list[E | None]:
    """Applies the changes. Returns the result of each change."""
    results, records = decided(alter_client_quotas(image, changes, lambda address: address not in unknown_hosts))
    for record in records:
        image.replay(record)
    return [None if each is None else each.code for each in results]


def result(*limits: tuple[str, float | None], named: Names = (USER,)) -> E | None:
    (only,) = alter(ClientQuotasImage(), change(named, *limits))
    return only


def image_of(*entities: Names) -> ClientQuotasImage:
    image = ClientQuotasImage()
    for named in entities:
        key = "connection_creation_rate" if named[0][0] == "ip" else "producer_byte_rate"
        assert alter(image, change(named, (key, 1000))) == [None]
    return image


def described(image: ClientQuotasImage, *components: tuple[str, int, str | None], strict: bool) -> list[QuotaEntity]:
    found = describe_client_quotas(image, [FilterComponent(*each) for each in components], strict=strict)
    return [entity for entity, _ in found]


@pytest.mark.parametrize("named", [[USER], [CLIENT], [USER, CLIENT], [("user", None)], [("client-id", None), USER]])
def test_scenario_132_users_and_clients_have_four_kinds_of_limits(named: Names) -> None:
    image = ClientQuotasImage()
    assert alter(image, change(named, *((key, 1024) for key in CLIENT_KEYS))) == [None]
    (limits,) = image.limits.values()
    assert limits == dict.fromkeys(CLIENT_KEYS, 1024)


@pytest.mark.parametrize("named", [[IP], [("ip", None)]])
def test_scenario_132_addresses_have_a_rate_of_connections(named: Names) -> None:
    assert result(("connection_creation_rate", 5), named=named) is None


@pytest.mark.parametrize(
    ("named", "key"),
    [
        ([], "producer_byte_rate"),
        ([("group", "g")], "producer_byte_rate"),
        ([IP, USER], "connection_creation_rate"),
        ([IP, CLIENT], "producer_byte_rate"),
        ([IP], "producer_byte_rate"),
        ([USER], "connection_creation_rate"),
        ([USER], "bytes"),
        ([("user", "")], "producer_byte_rate"),
        ([("client-id", "")], "producer_byte_rate"),
    ],
)
def test_scenario_133_a_quota_that_the_entity_type_cannot_have_is_refused(named: Names, key: str) -> None:
    assert result((key, 1), named=named) is E.INVALID_REQUEST


def test_errors_about_ip_entities_have_kafkas_messages() -> None:
    for begin, refused in (
        ("Invalid quota entity combination", lambda: keys_of([IP, USER], lambda _: True)),
        ("nowhere is not a valid IP or resolvable host.", lambda: keys_of([("ip", "nowhere")], lambda _: False)),
        (
            "Invalid entity filter component combination",
            lambda: described(ClientQuotasImage(), ("ip", 1, None), ("user", 1, None), strict=False),
        ),
    ):
        with pytest.raises(KafkaError) as refusal:
            refused()
        assert (refusal.value.message or "").startswith(begin)


@pytest.mark.parametrize(
    ("named", "key", "limit"),
    [
        ([USER], "producer_byte_rate", 0),
        ([USER], "consumer_byte_rate", -1),
        ([USER], "request_percentage", 0),
        ([USER], "producer_byte_rate", 10.5),
        ([IP], "connection_creation_rate", 1.5),
        ([USER], "consumer_byte_rate", 1e19),
        ([USER], "consumer_byte_rate", math.inf),
        ([IP], "connection_creation_rate", 2**31),
        ([USER], "request_percentage", math.nan),
        ([USER], "producer_byte_rate", math.nan),
    ],
)
def test_scenario_134_a_limit_out_of_range_is_refused_and_so_is_nan(named: Names, key: str, limit: float) -> None:
    assert result((key, limit), named=named) is E.INVALID_REQUEST


@pytest.mark.parametrize(
    ("named", "key", "limit"),
    [
        ([USER], "request_percentage", 12.5),
        ([USER], "controller_mutation_rate", 0.25),
        ([USER], "producer_byte_rate", 2**53),
        ([IP], "connection_creation_rate", 2**31 - 1),
    ],
)
def test_scenario_134_a_limit_in_range_is_accepted(named: Names, key: str, limit: float) -> None:
    assert result((key, limit), named=named) is None


def test_scenario_135_removing_missing_limits_and_changing_nothing_succeed_without_a_record() -> None:
    image = image_of([USER])
    wishes = [change([USER], ("no such key", None)), change([CLIENT], ("producer_byte_rate", None)), change([IP])]
    results, records = decided(alter_client_quotas(image, wishes, lambda address: True))
    assert (results, records) == ([None, None, None], [])


def test_removing_the_last_limit_removes_the_entity() -> None:
    image = image_of([USER])
    alter(image, change([USER], ("producer_byte_rate", None)))
    assert image.limits == {}


def test_a_limit_that_is_set_already_is_not_recorded_again() -> None:
    image = image_of([USER])
    again = [change([USER], ("producer_byte_rate", 1000))]
    assert decided(alter_client_quotas(image, again, lambda _: True)) == ([None], [])


def test_scenario_136_an_entity_that_is_named_twice_is_refused_both_times() -> None:
    image = ClientQuotasImage()
    wishes = [change([USER, CLIENT], ("producer_byte_rate", 1)), change([CLIENT, USER], ("consumer_byte_rate", 1))]
    assert alter(image, *wishes, change([USER], ("producer_byte_rate", 1))) == [*[E.INVALID_REQUEST] * 2, None]
    assert list(image.limits) == [(USER,)]


def test_a_key_that_is_given_twice_is_refused() -> None:
    assert result(("producer_byte_rate", 1), ("producer_byte_rate", None)) is E.INVALID_REQUEST


def test_scenario_137_an_entity_with_one_type_twice_is_refused() -> None:
    assert result(("producer_byte_rate", 1), named=[USER, ("user", "bob")]) is E.INVALID_REQUEST


def test_scenario_138_each_entry_stands_alone_and_is_taken_as_a_whole() -> None:
    image = ClientQuotasImage()
    half_good = change([CLIENT], ("producer_byte_rate", 1), ("consumer_byte_rate", -1))
    assert alter(image, half_good, change([USER], ("producer_byte_rate", 1))) == [E.INVALID_REQUEST, None]
    assert list(image.limits) == [(USER,)]


def test_scenario_139_an_address_may_be_the_name_of_a_host_that_has_one() -> None:
    image = ClientQuotasImage()
    hosts = [change([("ip", name)], ("connection_creation_rate", 1)) for name in ("localhost", "nowhere.invalid")]
    assert alter(image, *hosts, unknown_hosts=frozenset({"nowhere.invalid"})) == [None, E.INVALID_REQUEST]
    assert list(image.limits) == [(("ip", "localhost"),)]


def test_the_record_of_a_limit_is_that_of_kafka() -> None:
    changes = [change([CLIENT, ("user", None)], ("request_percentage", 12.5))]
    _, (record,) = decided(alter_client_quotas(ClientQuotasImage(), changes, lambda _: True))
    assert record == ClientQuotaRecord(
        entity=[
            EntityData(entity_type="user", entity_name=None),
            EntityData(entity_type="client-id", entity_name="app"),
        ],
        key="request_percentage",
        value=12.5,
    )


ALL: tuple[Names, ...] = (
    [USER],
    [("user", None)],
    [CLIENT],
    [USER, CLIENT],
    [("user", None), CLIENT],
    [IP],
)


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ([], False, ALL),
        ([], True, []),
        ([("user", 0, "ann")], False, [[USER], [USER, CLIENT]]),
        ([("user", 0, "ann")], True, [[USER]]),
        ([("user", 1, None)], True, [[("user", None)]]),
        ([("user", 2, None)], True, [[USER], [("user", None)]]),
        ([("user", 2, None)], False, [[USER], [("user", None)], [USER, CLIENT], [("user", None), CLIENT]]),
        ([("user", 2, None), ("client-id", 0, "app")], True, [[USER, CLIENT], [("user", None), CLIENT]]),
        ([("client-id", 2, None)], True, [[CLIENT]]),
        ([("ip", 2, None)], True, [[IP]]),
        ([("ip", 0, "::1")], False, []),
    ],
)
def test_scenario_140_a_filter_selects_the_entities_that_have_all_its_components(
    components: list[tuple[str, int, str | None]], strict: bool, found: Sequence[Names]
) -> None:
    assert described(image_of(*ALL), *components, strict=strict) == [tuple(each) for each in found]


@pytest.mark.parametrize(
    "components",
    [
        [("ip", 2, None), ("user", 2, None)],
        [("client-id", 0, "app"), ("ip", 1, None)],
        [("user", 2, None), ("user", 0, "ann")],
        [("", 2, None)],
        [("user", 3, None)],
        [("user", 0, None)],
        [("user", 1, "ann")],
        [("user", 2, "ann")],
    ],
)
def test_scenario_141_a_filter_that_contradicts_itself_is_refused(
    components: list[tuple[str, int, str | None]],
) -> None:
    with pytest.raises(KafkaError) as refusal:
        described(ClientQuotasImage(), *components, strict=False)
    assert refusal.value.code is E.INVALID_REQUEST


def test_scenario_142_an_unknown_type_is_not_supported() -> None:
    with pytest.raises(KafkaError) as refusal:
        described(ClientQuotasImage(), ("group", 2, None), strict=False)
    assert refusal.value.code is E.UNSUPPORTED_VERSION
