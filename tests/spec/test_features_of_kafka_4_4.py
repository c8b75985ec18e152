"""Tests the feature levels that Kafka 4.4 introduced, and their upgrades and downgrades (docs/spec/kafka-4.4.md#s2)."""

from types import SimpleNamespace

import pytest

from odradek.broker.handlers.groups.streams_groups import require_streams_protocol
from odradek.broker.metadata.features import FeatureUpdate, update_features
from odradek.broker.metadata.image import MetadataImage
from odradek.broker.metadata.supported_features import SHARE_TRANSACTIONS, SUPPORTED_FEATURES
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from tests.support.metadata import config_with

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
ALL_FAILED = "The update failed for all features since the following feature had an error: "


def image_at(**levels: int) -> MetadataImage:
    image = MetadataImage()
    for name, level in levels.items():
        image.replay(FeatureLevelRecord(name=name.replace("_", "."), feature_level=level))
    return image


def updated(image: MetadataImage, feature: str, level: int, how: int) -> list[object]:
    update = FeatureUpdate(feature, level, how)
    return list(update_features(image, [update], node_id=1, min_insync_replicas="1").records)


def refused(image: MetadataImage, feature: str, level: int, how: int) -> str:
    with pytest.raises(KafkaError) as refusal:
        updated(image, feature, level, how)
    assert refusal.value.code is ErrorCode.INVALID_UPDATE_VERSION
    assert refusal.value.message is not None
    assert refusal.value.message.startswith(ALL_FAILED)
    return refusal.value.message.removeprefix(ALL_FAILED)


def test_the_supported_levels_are_those_of_kafka_beside_our_own_feature() -> None:
    """F1: the supported levels are Kafka's, except for Odradek's own feature `odradek.share.transactions`."""
    assert {name: levels for name, levels in SUPPORTED_FEATURES.items() if name != SHARE_TRANSACTIONS} == {
        "eligible.leader.replicas.version": (0, 1),
        "group.version": (0, 1),
        "kraft.version": (0, 1),
        "metadata.version": (7, 33),
        "share.version": (0, 2),
        "streams.version": (0, 1),
        "transaction.version": (0, 2),
    }


def test_metadata_version_rises_from_30_to_33_in_one_update() -> None:
    """F3 and F4: an upgrade may skip levels."""
    (record,) = updated(image_at(metadata_version=30), "metadata.version", 33, UPGRADE)
    assert record == FeatureLevelRecord(name="metadata.version", feature_level=33)


@pytest.mark.parametrize("level", [31, 32])
@pytest.mark.parametrize(
    ("how", "why"),
    [
        (SAFE_DOWNGRADE, "Refusing to perform the requested downgrade because it might delete metadata information."),
        (UNSAFE_DOWNGRADE, "Unsafe metadata downgrade is not supported in this version."),
    ],
)
def test_metadata_version_does_not_go_back(level: int, how: int, why: str) -> None:
    """F4: a downgrade of metadata.version is refused."""
    message = refused(image_at(metadata_version=33), "metadata.version", level, how)
    assert message == f"Unsupported metadata.version downgrade from 33 to {level}. {why}"


def test_metadata_version_34_is_not_known() -> None:
    """F4: level 34 does not exist in Kafka 4.4."""
    assert refused(image_at(metadata_version=33), "metadata.version", 34, UPGRADE) == (
        "Invalid update version 34 for feature metadata.version. Local controller 1 only supports versions 7-33"
    )


def test_share_version_2_needs_no_metadata_version_of_4_4() -> None:
    """F5: share.version does not depend on metadata.version."""
    image = image_at(metadata_version=30, share_version=1)
    assert updated(image, "share.version", 2, UPGRADE) == [FeatureLevelRecord(name="share.version", feature_level=2)]


def test_share_version_is_lowered_by_a_downgrade_and_has_no_level_3() -> None:
    """F5: the level can be lowered only with an upgrade type that permits downgrades."""
    image = image_at(metadata_version=33, share_version=2)
    (record,) = updated(image, "share.version", 1, SAFE_DOWNGRADE)
    assert record == FeatureLevelRecord(name="share.version", feature_level=1)
    assert "Can't downgrade" in refused(image, "share.version", 1, UPGRADE)
    assert "only supports versions 0-2" in refused(image, "share.version", 3, UPGRADE)


@pytest.mark.parametrize("level", [0, 1])
def test_streams_groups_are_served_from_streams_version_1_on(level: int) -> None:
    """F6: the streams group APIs are refused unless the feature is enabled."""
    broker = SimpleNamespace(
        metadata=SimpleNamespace(image=image_at(streams_version=level)),
        config=config_with(group_coordinator_rebalance_protocols="classic,consumer,streams"),
    )
    if level:
        require_streams_protocol(broker)
        return
    with pytest.raises(KafkaError) as refusal:
        require_streams_protocol(broker)
    assert refusal.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_a_feature_that_nobody_knows_is_refused() -> None:
    """F7: the error message names the feature."""
    assert refused(image_at(metadata_version=33), "odradek.version", 1, UPGRADE) == (
        "Invalid update version 1 for feature odradek.version. Local controller 1 does not support this feature."
    )
