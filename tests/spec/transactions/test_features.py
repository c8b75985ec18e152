"""Tests `transaction.version` and changes to it, including a Kafka bug at level 0 that Odradek does not have.

Rules: docs/spec/transactions.md#s2-12; scenario 138: #s8-9.
"""

import pytest

from odradek.broker.metadata.features import FeatureUpdate, update_features
from odradek.broker.metadata.image import MetadataImage
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from tests.support.transaction_scene import MAX, NEW_PID, P0, P1, PID, E, S, given, txn

TV = "transaction.version"
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
ALL_FAILED = "The update failed for all features since the following feature had an error: "


def image(**levels: int) -> MetadataImage:
    made = MetadataImage()
    for name, level in levels.items():
        made.replay(FeatureLevelRecord(name=name.replace("_", "."), feature_level=level))
    return made


def updated(before: MetadataImage, *updates: tuple[str, int, int]) -> list[object]:
    decision = update_features(before, [FeatureUpdate(*each) for each in updates], node_id=1, min_insync_replicas="1")
    return list(decision.records)


@pytest.mark.parametrize(("level", "how"), [(0, SAFE_DOWNGRADE), (1, UNSAFE_DOWNGRADE), (0, UNSAFE_DOWNGRADE)])
def test_scenario_138_an_explicit_downgrade_is_recorded(level: int, how: int) -> None:
    assert updated(image(transaction_version=2), (TV, level, how)) == [FeatureLevelRecord(name=TV, feature_level=level)]


def test_scenario_138_a_downgrade_without_its_upgrade_type_is_refused() -> None:
    with pytest.raises(KafkaError) as caught:
        updated(image(transaction_version=2), (TV, 0, UPGRADE))
    assert caught.value.code is ErrorCode.INVALID_UPDATE_VERSION
    assert caught.value.message == (
        f"{ALL_FAILED}Invalid update version 0 for feature transaction.version. Can't downgrade the version of this"
        " feature without setting the upgrade type to either safe or unsafe downgrade."
    )


@pytest.mark.parametrize(
    ("update", "why"),
    [
        ((TV, 9, UPGRADE), "version 9 for feature transaction.version. Local controller 1 only supports versions 0-2"),
        ((TV, -1, UPGRADE), "version -1 for feature transaction.version. A feature version cannot be less than 0."),
        (
            (TV, 1, 0),
            "version 1 for feature transaction.version. The controller does not support the given upgrade type.",
        ),
        ((TV, 2, SAFE_DOWNGRADE), "version 2 for feature transaction.version. Can't downgrade to a newer version."),
        (("nope", 1, UPGRADE), "version 1 for feature nope. Local controller 1 does not support this feature."),
    ],
)
def test_an_invalid_level_is_refused_with_kafkas_message(update: tuple[str, int, int], why: str) -> None:
    with pytest.raises(KafkaError) as caught:
        updated(image(transaction_version=1), update)
    assert caught.value.message == f"{ALL_FAILED}Invalid update {why}"


def test_one_refused_update_prevents_all_updates_of_the_request() -> None:
    with pytest.raises(KafkaError):
        updated(image(transaction_version=1), (TV, 2, UPGRADE), ("nope", 1, UPGRADE))


def test_the_level_that_is_there_is_not_recorded_again() -> None:
    assert updated(image(transaction_version=2), (TV, 2, UPGRADE)) == []


def test_eligible_leader_replicas_come_in_with_the_clusters_min_isr() -> None:
    records = updated(image(), ("eligible.leader.replicas.version", 1, UPGRADE))
    assert [type(each) for each in records] == [FeatureLevelRecord, ConfigRecord]


@pytest.mark.parametrize("how", [SAFE_DOWNGRADE, UNSAFE_DOWNGRADE])
def test_metadata_is_not_downgraded(how: int) -> None:
    with pytest.raises(KafkaError, match=r"Unsupported metadata\.version downgrade from 30 to 20"):
        updated(image(metadata_version=30), ("metadata.version", 20, how))


def test_scenario_138_after_a_downgrade_records_are_of_version_0_and_an_id_that_ended_at_2_goes_on() -> None:
    scene = given(txn(S.COMPLETE_COMMIT, (PID, 3)))
    scene.transaction_version = 0
    assert scene.init((PID, 3)) == (PID, 4)
    _, value, _ = scene.log[-1]
    assert value is not None
    assert value[:2] == b"\x00\x00"
    assert scene.restarted().state == (S.EMPTY, PID, 4)


def test_scenario_138_a_transaction_that_was_open_at_2_is_ended_by_either_version() -> None:
    for version in (4, 5):
        scene = given(txn(S.ONGOING, (PID, 3), [P0]))
        scene.transaction_version = 0
        reply = scene.end((PID, 3), committed=True, version=version)
        (owed,) = scene.write_markers()
        assert (owed.producer_epoch, reply.pair) == (3, (-1, -1))
        assert scene.state == (S.COMPLETE_COMMIT, PID, 3)


def test_scenario_138_a_transaction_that_was_open_at_2_times_out() -> None:
    scene = given(txn(S.ONGOING, (PID, 3), [P0]))
    scene.transaction_version = 0
    scene.advance(60_001)
    assert scene.time_out() == ["pay"]
    scene.write_markers()
    assert scene.state == (S.COMPLETE_ABORT, PID, 4)


def test_at_version_0_a_produce_may_bring_its_partition_itself() -> None:
    scene = given(txn(S.EMPTY, (PID, 3), version=0), transaction_version=0)
    assert scene.add5((PID, 3), P0) == {P0: E.NONE}
    assert scene.add5((PID, 3), P1) == {P1: E.NONE}
    assert scene.txn.client_version == 0


def test_a_producer_id_that_was_promised_before_a_downgrade_is_still_given() -> None:
    scene = given(txn(S.ONGOING, (PID, MAX - 1), [P0]))
    reply = scene.commit5((PID, MAX - 1))
    scene.transaction_version = 0
    scene.write_markers()
    assert reply.pair == (NEW_PID, 0)
    assert scene.restarted().state == (S.COMPLETE_COMMIT, NEW_PID, 0)


def test_at_version_1_the_new_end_is_served_as_at_2() -> None:
    scene = given(txn(S.ONGOING, (PID, 3), [P0]), transaction_version=1)
    reply = scene.commit5((PID, 3))
    scene.write_markers()
    assert reply.pair == (PID, 4)


# At level 0, Kafka cannot record a version 2 step. It then answers CONCURRENT_TRANSACTIONS for the transactional id
# until its coordinator is loaded again. Odradek handles such a step as a version 0 step.
@pytest.mark.known_bug(51, "Kafka 4.3.1")
def test_at_level_0_a_request_of_version_2_is_served_as_one_of_version_0() -> None:
    scene = given(txn(S.EMPTY, (PID, 1), version=0), transaction_version=0)
    assert scene.add5((PID, 1), P0) == {P0: E.NONE}
    reply = scene.commit5((PID, 1))
    scene.write_markers()
    assert reply.pair == (-1, -1)
    assert scene.state == (S.COMPLETE_COMMIT, PID, 1)
    assert scene.init() == (PID, 2)


@pytest.mark.known_bug(51, "Kafka 4.3.1")
def test_after_a_downgrade_an_id_that_committed_under_2_goes_on() -> None:
    scene = given(txn(S.COMPLETE_COMMIT, (PID, 3)))
    scene.transaction_version = 0
    assert scene.init() == (PID, 4)
    assert scene.add((PID, 4), P0) == {P0: E.NONE}
    scene.commit4((PID, 4))
    scene.write_markers()
    assert scene.restarted().state == (S.COMPLETE_COMMIT, PID, 4)


OWN = "odradek.share.transactions"


@pytest.mark.parametrize(
    "levels",
    [
        {"share_version": 1, "transaction_version": 1},
        {"transaction_version": 2},
        {"share_version": 2},
    ],
)
def test_v2_acknowledgements_in_transactions_need_share_groups_and_epochs(
    levels: dict[str, int],
) -> None:
    with pytest.raises(KafkaError) as caught:
        updated(image(**levels), (OWN, 1, UPGRADE))
    assert caught.value.code is ErrorCode.INVALID_UPDATE_VERSION
    assert caught.value.message == (
        f"{ALL_FAILED}Invalid update version 1 for feature {OWN}. This feature needs share.version 1 or above and"
        " transaction.version 2: raise these first, or in the same request."
    )


def test_v2_dependencies_may_be_raised_in_the_same_request() -> None:
    before = image(share_version=1, transaction_version=1)
    assert len(updated(before, (OWN, 1, UPGRADE), (TV, 2, UPGRADE))) == 2


@pytest.mark.parametrize("update", [(OWN, 0, SAFE_DOWNGRADE), (OWN, 0, UNSAFE_DOWNGRADE), ("share.version", 0, 2)])
@pytest.mark.parametrize(("count", "message"), [(3, "3 acknowledgements"), (None, "an unknown number of")])
def test_v2_the_level_cannot_be_lowered_while_acknowledgements_are_staged(
    update: tuple[str, int, int], count: int | None, message: str
) -> None:
    before = MetadataImage()
    for name, level in {"share.version": 1, TV: 2, OWN: 1}.items():
        before.replay(FeatureLevelRecord(name=name, feature_level=level))
    with pytest.raises(KafkaError, match=message) as caught:
        update_features(
            before, [FeatureUpdate(*update)], node_id=1, min_insync_replicas="1", pending_count=lambda: count
        )
    assert caught.value.code is ErrorCode.FEATURE_UPDATE_FAILED


def test_v4_share_version_2_is_lowered_to_1_whatever_is_staged() -> None:
    """Level 2 of `share.version` adds only dead-letter queues, which do not depend on transactions."""
    before = MetadataImage()
    for name, level in {"share.version": 2, TV: 2, OWN: 1}.items():
        before.replay(FeatureLevelRecord(name=name, feature_level=level))
    update = FeatureUpdate("share.version", 1, SAFE_DOWNGRADE)
    made = update_features(before, [update], node_id=1, min_insync_replicas="1", pending_count=lambda: 3)
    assert made.records == (FeatureLevelRecord(name="share.version", feature_level=1),)
