"""Tests which fields of a transaction the next transaction or the next owner inherits, and which survive a restart.

The tables name every field of the coordinator's entry, and every field that a partition keeps for a producer, so a new
field needs a line here. Other tests cover the rest: verification guards in test_partition_guard.py, the client's
session in tests/unit/client/test_transaction_session.py, and the dual write's row in tests/spec/dualwrite.
"""

from collections.abc import Callable
from dataclasses import asdict, fields

import pytest

from odradek.broker.transactions.entry import Txn
from odradek.broker.transactions.turn import TransactionConfig
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_producers_response import ProducerState
from tests.support.transaction_scene import NOW_MS, P0, P1, TIMEOUT_MS, E, S, Scene, given, refused
from tests.support.transactional_clients import TV1, TV2, Clients, Pair

ALLOWED = TransactionConfig(transaction_two_phase_commit_enable=True)
LATER_MS = NOW_MS + 1_000
OWN_MS, NEXT_MS = 3_000, 7_000
# Each field has a value that is not its default.
KEPT = Txn(
    "pay",
    42,
    10,
    OWN_MS,
    S.ONGOING,
    frozenset({P0, P1}),
    NOW_MS - 5,
    NOW_MS - 3,
    previous_producer_id=42,
    next_producer_id=73,
    next_producer_epoch=5,
    last_producer_epoch=9,
    client_version=2,
    next_timeout_ms=NEXT_MS,
)


def next_transaction(scene: Scene) -> Scene:
    scene.commit5((73, 5))
    scene.write_markers()
    scene.add5((73, 6), P1)
    return scene


def next_owner(scene: Scene) -> Scene:
    with refused(E.CONCURRENT_TRANSACTIONS):
        scene.init(timeout_ms=TIMEOUT_MS)
    scene.write_markers()
    scene.init(timeout_ms=TIMEOUT_MS)
    return scene


EVENTS: dict[str, Callable[[Scene], Scene]] = {
    "restart": Scene.restarted,
    "next transaction": next_transaction,
    "next owner": next_owner,
}
# fmt: off
FIELDS: dict[str, tuple[object, object, object]] = {
    # field: (after a restart, for the next transaction, for the next owner)
    "transactional_id":     ("pay",                     "pay",              "pay"),
    "producer_id":          (42,                        73,                 73),
    "producer_epoch":       (10,                        6,                  7),
    "timeout_ms":           (OWN_MS,                    NEXT_MS,            TIMEOUT_MS),
    "state":                (S.ONGOING,                 S.ONGOING,          S.EMPTY),
    "partitions":           (frozenset({P0, P1}),       frozenset({P1}),    frozenset()),
    "started_ms":           (NOW_MS - 5,                LATER_MS,           None),
    "updated_ms":           (NOW_MS - 3,                LATER_MS,           LATER_MS),
    "previous_producer_id": (42,                        73,                 73),
    "next_producer_id":     (73,                        None,               None),
    "next_producer_epoch":  (5,                         None,               None),
    "last_producer_epoch":  (9,                         5,                  None),
    "client_version":       (2,                         2,                  2),
    "next_timeout_ms":      (NEXT_MS,                   None,               None),
}
# fmt: on


def test_the_table_has_every_field_of_an_entry() -> None:
    assert list(FIELDS) == [field.name for field in fields(Txn)]


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("then", [lambda scene: scene, Scene.restarted], ids=["running", "restarted"])
def test_each_field_is_passed_on_as_the_table_says(event: str, then: Callable[[Scene], Scene]) -> None:
    scene = given(KEPT, config=ALLOWED)
    scene.advance(LATER_MS - NOW_MS)
    after = then(EVENTS[event](scene)).txn
    column = list(EVENTS).index(event)
    assert asdict(after) == {field: values[column] for field, values in FIELDS.items()}


@pytest.mark.parametrize("event", EVENTS)
def test_counters_beside_the_entries_are_passed_on_too(event: str) -> None:
    scene = given(KEPT, config=ALLOWED)
    after = EVENTS[event](scene)
    is_open = after.txn.state is S.ONGOING
    assert after.core.open_count == is_open
    assert after.core.kept_count == (event == "restart")
    assert after.owed == []
    assert after.due == {}, "no timer asks for markers of what is complete"


# --- The fields in a partition.

# fmt: off
PARTITION_FIELDS: dict[str, tuple[object, object]] = {
    # field: (after a transaction ends with the old protocol, with the new protocol)
    "producer_epoch":           (0,  1),
    "last_sequence":            (0,  -1),  # With the new protocol, the next transaction starts at sequence 0.
    "coordinator_epoch":        (0,  0),
    "current_txn_start_offset": (-1, -1),
}
# fmt: on


def partition_fields(state: ProducerState) -> dict[str, object]:
    return {field: getattr(state, field) for field in PARTITION_FIELDS}


def ended(scene: Clients, version: int) -> Pair:
    pair = scene.init()
    if version == TV1:
        scene.add(pair)
    assert scene.produce(pair, 0, version=version) is E.NONE
    return scene.commit(pair, version=4 if version == TV1 else 5)


@pytest.mark.parametrize("version", [TV1, TV2])
@pytest.mark.parametrize("is_restarted", [False, True], ids=["running", "restarted"])
def test_a_partition_passes_the_producer_state_on_to_the_next_transaction(version: int, is_restarted: bool) -> None:
    scene = Clients(transaction_version=1 if version == TV1 else 2)
    pair = ended(scene, version)
    after = scene.restarted(killed=True) if is_restarted else scene
    column = [TV1, TV2].index(version)
    expected = {field: values[column] for field, values in PARTITION_FIELDS.items()}
    assert partition_fields(after.producers()[pair[0]]) == expected


@pytest.mark.parametrize(("version", "first", "refusal"), [(TV1, 1, 3), (TV2, 0, 1)])
def test_the_next_transaction_is_checked_against_the_inherited_producer_state(
    version: int, first: int, refusal: int
) -> None:
    scene = Clients(transaction_version=1 if version == TV1 else 2)
    pair = ended(scene, version)
    if version == TV1:
        scene.add(pair)
    assert scene.produce(pair, refusal, version=version) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert scene.produce(pair, first, version=version) is E.NONE
