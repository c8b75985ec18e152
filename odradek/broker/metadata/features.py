"""Decides on UpdateFeatures requests, which change the finalised levels of features. Source: Kafka 4.3.1, including its
error messages."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from odradek.broker.metadata.image import DEFAULT_BROKER, MetadataImage
from odradek.broker.metadata.records import Decision
from odradek.broker.metadata.supported_features import (
    ELIGIBLE_LEADER_REPLICAS,
    METADATA_VERSION,
    SHARE_TRANSACTIONS,
    SHARE_VERSION,
    SHARE_VERSION_GROUPS,
    SUPPORTED_FEATURES,
    TRANSACTION_VERSION,
    TRANSACTION_VERSION_EPOCHS,
    may_have_pending,
    supports_share_transactions,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.struct import Message

KRAFT_VERSION: Final = "kraft.version"
MIN_ISR: Final = "min.insync.replicas"
SHARE_TRANSACTIONS_NEEDS: Final = (
    f"This feature needs {SHARE_VERSION} {SHARE_VERSION_GROUPS} or above and {TRANSACTION_VERSION}"
    f" {TRANSACTION_VERSION_EPOCHS}: raise these first, or in the same request."
)


class UpgradeType(Enum):
    """The upgrade types of UpdateFeatures. All other numbers, including 0, are unknown types."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    feature: str
    level: int
    upgrade_type: int


def update_features(
    image: MetadataImage,
    updates: Sequence[FeatureUpdate],
    *,
    node_id: int,
    min_insync_replicas: str,
    pending_count: Callable[[], int | None] = lambda: 0,
    supported: Mapping[str, tuple[int, int]] = SUPPORTED_FEATURES,
) -> Decision[None]:
    """Updates either all features or none.

    min_insync_replicas  the value to record for the cluster when eligible leader replicas are enabled (KIP-966)
    pending_count        returns the number of share group acknowledgements that are waiting for a transaction to end
                         (KIP-1289), or None if the number is not available yet; called only if the number is needed
    raises               KafkaError INVALID_UPDATE_VERSION or FEATURE_UPDATE_FAILED
    """
    records: list[Message] = []
    updates_by_name = {each.feature: each for each in updates}
    levels = levels_with(image.features, updates_by_name.values())
    for update in updates_by_name.values():
        _check(image, update, node_id, supported)
        _check_needs(image, update, levels)
        _check_nothing_pending(image, update, pending_count)
        if update.level != _level(image, update.feature):
            records.append(FeatureLevelRecord(name=update.feature, feature_level=update.level))
            if update.feature == ELIGIBLE_LEADER_REPLICAS and MIN_ISR not in image.configs.get(DEFAULT_BROKER, {}):
                kind, name = DEFAULT_BROKER
                records.append(
                    ConfigRecord(resource_type=kind.value, resource_name=name, name=MIN_ISR, value=min_insync_replicas)
                )
    return Decision(None, tuple(records))


def levels_with(levels: Mapping[str, int], updates: Iterable[FeatureUpdate]) -> dict[str, int]:
    """Returns the finalised levels that result from these updates."""
    return {**levels, **{each.feature: each.level for each in updates}}


def _level(image: MetadataImage, feature: str) -> int:
    return image.features.get(feature, 0)


def _check(image: MetadataImage, update: FeatureUpdate, node_id: int, supported: Mapping[str, tuple[int, int]]) -> None:
    feature, level = update.feature, update.level
    levels = supported.get(feature)
    upgrade_type = _upgrade_type(update)
    if upgrade_type is None:
        raise _invalid_update(update, "The controller does not support the given upgrade type.")
    if levels is None:
        raise _invalid_update(update, f"Local controller {node_id} does not support this feature.")
    if level < 0:
        raise _invalid_update(update, "A feature version cannot be less than 0.")
    least, most = levels
    if not least <= level <= most:
        raise _invalid_update(update, f"Local controller {node_id} only supports versions {least}-{most}")
    current = _level(image, feature)
    if feature == KRAFT_VERSION and level != current:
        # At kraft.version 1, the log contains the quorum's voters. This broker does not record its voter, so it cannot
        # change the level.
        raise _invalid_update(
            update, "Can't downgrade the version of this feature." if level < current else "Not supported."
        )
    if level < current and upgrade_type is UpgradeType.UPGRADE:
        raise _invalid_update(
            update,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe"
            " downgrade.",
        )
    if level > current and upgrade_type is not UpgradeType.UPGRADE:
        raise _invalid_update(update, "Can't downgrade to a newer version.")
    if level < current and feature == METADATA_VERSION:
        why = (
            "Refusing to perform the requested downgrade because it might delete metadata information."
            if upgrade_type is UpgradeType.SAFE_DOWNGRADE
            else "Unsafe metadata downgrade is not supported in this version."
        )
        raise _update_refusal(f"Unsupported metadata.version downgrade from {current} to {level}. {why}")


def _check_needs(image: MetadataImage, update: FeatureUpdate, levels: Mapping[str, int]) -> None:
    """Checks that other features have the levels that the update requires. `levels` contains the levels after all of
    the request's updates."""
    if update.feature != SHARE_TRANSACTIONS or not update.level > _level(image, update.feature):
        return
    if not supports_share_transactions(levels):
        raise _invalid_update(update, SHARE_TRANSACTIONS_NEEDS)


def _check_nothing_pending(
    image: MetadataImage, update: FeatureUpdate, pending_count: Callable[[], int | None]
) -> None:
    """Refuses to disable acknowledgements in transactions while any acknowledgement is pending. A program that does not
    support pending acknowledgements, such as Kafka, would lose them when it opens the directory
    (docs/spec/share-groups.md#s5-10)."""
    current = _level(image, update.feature)
    if update.feature not in (SHARE_TRANSACTIONS, SHARE_VERSION) or not update.level < current:
        return
    if not may_have_pending(image.features) or may_have_pending({**image.features, update.feature: update.level}):
        return
    count = pending_count()
    if count == 0:
        return
    how_many = "an unknown number of" if count is None else count
    raise KafkaError(
        ErrorCode.FEATURE_UPDATE_FAILED,
        f"Cannot downgrade {update.feature} from {current} to {update.level}: {how_many} acknowledgements of share"
        " groups are pending in open transactions. Commit or abort these, and try again.",
    )


def _upgrade_type(update: FeatureUpdate) -> UpgradeType | None:
    try:
        return UpgradeType(update.upgrade_type)
    except ValueError:
        return None


def _invalid_update(update: FeatureUpdate, why: str) -> KafkaError:
    return _update_refusal(f"Invalid update version {update.level} for feature {update.feature}. {why}")


def _update_refusal(why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"The update failed for all features since the following feature had an error: {why}",
    )
