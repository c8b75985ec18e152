"""Creates topics, both for CreateTopics and when a missing topic is needed (auto-creation, internal topics).

The module that decides on topics is imported when the first topic is created, because a broker that uses only existing
topics does not need it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from odradek.broker.metadata.records import Decision
from odradek.broker.runtime.waiting import start_deferred, start_unattended
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.kafka_rules import NEWEST, KafkaRules
from odradek.protocol.topic_partition import GROUP_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

if TYPE_CHECKING:
    from odradek.broker.configuration.config import BrokerConfig
    from odradek.broker.metadata.cluster_metadata import ClusterMetadata
    from odradek.broker.metadata.image import MetadataImage
    from odradek.broker.metadata.topics import NewTopic, TopicResult
    from odradek.broker.runtime.slices import Steps
    from odradek.broker.runtime.waiting import Deferred

log = logging.getLogger("odradek.metadata")

EXPECTED_ERRORS = (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
MAX_REMEMBERED_MESSAGES = 1_000  # maximum number of logged messages to remember, so that each is logged only once


def internal_topic(name: str, config: BrokerConfig) -> NewTopic | None:
    """Returns the specification of an internal topic that stores broker state, or None for any other name."""
    from odradek.broker.metadata.topics import NewTopic

    if name == GROUP_OFFSETS:
        return NewTopic(
            name,
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            configs=(
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                ("segment.bytes", str(config.offsets_topic_segment_bytes)),
            ),
        )
    if name == TRANSACTION_STATE:
        return NewTopic(
            name,
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
            configs=(
                ("cleanup.policy", "compact"),
                ("compression.type", "uncompressed"),
                ("min.insync.replicas", str(config.transaction_state_log_min_isr)),
                ("segment.bytes", str(config.transaction_state_log_segment_bytes)),
                ("unclean.leader.election.enable", "false"),
            ),
        )
    if name == SHARE_GROUP_STATE:
        return NewTopic(
            name,
            config.share_coordinator_state_topic_num_partitions,
            config.share_coordinator_state_topic_replication_factor,
            configs=(
                ("cleanup.policy", "delete"),
                ("compression.type", "producer"),
                ("min.insync.replicas", str(config.share_coordinator_state_topic_min_isr)),
                ("retention.ms", "-1"),
                ("segment.bytes", str(config.share_coordinator_state_topic_segment_bytes)),
            ),
        )
    return None


class TopicCreation:
    """Submits decisions to create topics to the cluster metadata, using this broker's defaults."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        config: BrokerConfig,
        new_topic_id: Callable[[], bytes],
        rules: KafkaRules = NEWEST,
    ) -> None:
        self._metadata = metadata
        self._config = config
        self._new_topic_id = new_topic_id
        self._rules = rules
        self._complaints: set[str] = set()

    def create(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, charge: Callable[[int], None] | None = None
    ) -> Deferred[list[TopicResult]]:
        """Creates topics. The returned Deferred resolves when the topics can be written to. It fails with
        POLICY_VIOLATION if there are too many topics.

        charge  see `create_topics`; None if no quota applies
        """
        from odradek.broker.metadata.topics import TopicDefaults, create_topics, unlimited

        defaults = TopicDefaults(self._config.num_partitions, self._config.default_replication_factor)

        def decide(image: MetadataImage) -> Steps[Decision[list[TopicResult]]]:
            decision = yield from create_topics(
                image,
                topics,
                node=self._metadata.node,
                defaults=defaults,
                new_topic_id=self._new_topic_id,
                charge=charge or unlimited,
                rules=self._rules,
            )
            return Decision(decision.response) if validate_only else decision

        return self._metadata.submit(decide)

    def create_internal(self, name: str) -> Deferred[list[TopicResult]]:
        """Creates an internal topic that stores broker state. If the creation fails, each reason is logged only
        once."""
        topic = internal_topic(name, self._config)
        assert topic is not None, name
        return start_deferred(self._create_or_complain([topic], None))

    def start_creating(self, names: Iterable[str], charge: Callable[[int], None] | None = None) -> None:
        """Starts creating these topics in the background. Returns no results, because clients retry."""
        from odradek.broker.metadata.topics import NewTopic

        topics = [internal_topic(name, self._config) or NewTopic(name) for name in names]
        if topics:
            start_unattended(self._create_in_background(topics, charge))

    async def _create_in_background(self, topics: Sequence[NewTopic], charge: Callable[[int], None] | None) -> None:
        with suppress(KafkaError):  # already logged
            await self._create_or_complain(topics, charge)

    async def _create_or_complain(
        self, topics: Sequence[NewTopic], charge: Callable[[int], None] | None
    ) -> list[TopicResult]:
        try:
            results = await self.create(topics, charge=charge)
        except KafkaError as error:
            self._log_once(f"topics could not be created: {error}")
            raise
        for result in results:
            if result.error is not None and result.error.code not in EXPECTED_ERRORS:
                self._log_once(f"topic {result.name!r} could not be created: {result.error}")
        return results

    def _log_once(self, what: str) -> None:
        """Logs a message unless it has been logged before, because clients retry several times per second."""
        if what in self._complaints:
            return
        if len(self._complaints) >= MAX_REMEMBERED_MESSAGES:
            self._complaints.clear()
        self._complaints.add(what)
        log.warning("%s", what)
