"""Tests lowering the level of `odradek.share.transactions` (docs/spec/share-groups.md#s5-10)."""

from odradek.broker.metadata.supported_features import SHARE_TRANSACTIONS
from odradek.broker.shares.core.state import SharePartitionKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.protocol.topic_partition import SHARE_GROUP_STATE
from tests.simulation import share_requests as requests
from tests.simulation.share_requests import ACCEPT
from tests.simulation.share_stage import QUEUE, ShareStage, ShareStory
from tests.simulation.stage import ID
from tests.support.share_state_as_kafka import reported_batches

SAFE_DOWNGRADE = 2


def lower(story: ShareStory) -> list[bytes]:
    """Requests a lower level. Returns a list that receives the response when it arrives."""
    update = FeatureUpdateKey(feature=SHARE_TRANSACTIONS, max_version_level=0, upgrade_type=SAFE_DOWNGRADE)
    answers: list[bytes] = []
    story.stage.broker.receive(request_bytes(UpdateFeaturesRequest(feature_updates=[update]), 1, 1, ""), answers.append)
    return answers


def stage(story: ShareStory) -> ErrorCode:
    member = story.member("A")
    request = requests.stage(
        QUEUE,
        "A",
        member.epoch,
        story.stage.topic_id,
        {sorted(member.held)[0]: ACCEPT},
        transactional_id=ID,
        pair=story.stage.pair,
    )
    return ErrorCode(story.stage.ask(request, requests.STAGE_VERSION).error_code)


def test_nothing_is_staged_while_the_lower_level_is_being_recorded() -> None:
    story = ShareStory(ShareStage())
    story.begin()
    story.fetch("A", 3)
    answers = lower(story)
    assert answers == [], "it takes an fsync"
    assert stage(story) is ErrorCode.UNSUPPORTED_VERSION
    story.stage.wait(100)
    assert len(answers) == 1
    assert story.stage.broker.metadata.image.features.get(SHARE_TRANSACTIONS, 0) == 0
    story.stage.broker.metadata.commit([FeatureLevelRecord(name=SHARE_TRANSACTIONS, feature_level=1)])
    story.stage.wait(100)
    assert stage(story) is ErrorCode.NONE


def test_a_refused_downgrade_ends_the_draining() -> None:
    story = ShareStory(ShareStage())
    story.begin()
    story.fetch("A", 3)
    assert story.stage_some("A", 1)
    lower(story)
    story.stage.wait(100)
    assert story.stage.broker.metadata.image.features[SHARE_TRANSACTIONS] == 1
    assert story.stage_some("A", 1)


def test_results_of_markers_are_recorded_and_synced_before_the_level_is_lowered() -> None:
    """Checks that the results of markers are recorded and synced before the level is lowered, because afterwards a
    release that cannot interpret markers may read the directory."""
    settings = {
        "share_coordinator_snapshot_update_records_per_snapshot": "500",
        "share_coordinator_state_topic_prune_interval_ms": "600000",
    }
    stage = ShareStage(is_durable=False, settings=settings)
    story = ShareStory(stage)
    story.begin()
    story.fetch("A", 3)
    assert story.stage_some("A", 1)
    assert story.end(commit=True)
    key = SharePartitionKey(QUEUE, stage.topic_id, 0)
    index = stage.broker.share_coordinator.partition_for(key)
    log = stage.broker.partition(SHARE_GROUP_STATE, index).log
    committed = (0, 0, 2, 1)
    assert committed not in reported_batches(log, key)
    answers = lower(story)
    while not answers:
        assert stage.broker.metadata.image.features[SHARE_TRANSACTIONS] == 1
        stage.wait(1)
    assert stage.broker.metadata.image.features.get(SHARE_TRANSACTIONS, 0) == 0
    assert committed in reported_batches(log, key)
    assert log.synced_offset == log.log_end_offset
