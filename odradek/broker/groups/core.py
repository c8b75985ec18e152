"""The core of one `__consumer_offsets` partition, which makes all decisions about the partition's groups. The core uses
no clock, reads no files and never waits.

State changes in two ways: `replay` applies records, and `settle` applies the part of a decision that is not recorded,
after the decision's records have been written. A request method only makes a decision; its caller appends
`Outcome.records`, replays them and calls `settle`. A refusal of the whole request is raised as `KafkaError`, except
that JoinGroup, SyncGroup and LeaveGroup return a response with error codes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from odradek.broker.groups.classic.group import ClassicGroup
from odradek.broker.groups.classic.join import Joiner, error_response
from odradek.broker.groups.classic.requests import (
    heartbeat_classic_group,
    join_classic_group,
    leave_classic_group,
    sync_classic_group,
)
from odradek.broker.groups.common.epochs import Partitions
from odradek.broker.groups.common.group import Committer, CoordinatorRecord, Group, Timer, TimerKey, TimerKind
from odradek.broker.groups.common.outcome import (
    CLEANUP_CYCLES,
    CLEANUP_ELIGIBLE,
    DESCRIPTIONS_DELETED,
    OFFSET_COMMITS,
    OFFSET_DELETIONS,
    OFFSET_EXPIRATIONS,
    GroupConfig,
    Outcome,
    Reply,
    Token,
)
from odradek.broker.groups.common.registry import ClusterView, GroupRegistry, half_of
from odradek.broker.groups.consumer.classic_members import (
    heartbeat_consumer_group,
    join_consumer_group,
    sync_consumer_group,
)
from odradek.broker.groups.consumer.group import ConsumerGroup
from odradek.broker.groups.consumer.heartbeat import ConsumerHeartbeat, heartbeat
from odradek.broker.groups.consumer.lifecycle import describe_consumer_group, leave_consumer_group
from odradek.broker.groups.describe import describe_classic, describe_missing, listed_group, selects
from odradek.broker.groups.offset_requests import (
    all_tombstones,
    commit_records,
    expires_ms,
    fetch_offsets,
    missing_topic_tombstones,
    topic_tombstones,
    transactional_commit_records,
)
from odradek.broker.groups.offsets import CommittedOffset, Offsets
from odradek.broker.groups.protocols import PROTOCOLS, REPLAYS
from odradek.broker.groups.records import offset_tombstone
from odradek.broker.groups.share import state as share_state
from odradek.broker.groups.share.group import ShareGroup
from odradek.broker.groups.streams.group import StreamsGroup
from odradek.protocol.batch_header import NO_PRODUCER_ID
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.consumer_group_describe_response import DescribedGroup as DescribedConsumerGroup
from odradek.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from odradek.protocol.messages.delete_groups_response import DeletableGroupResult
from odradek.protocol.messages.describe_groups_response import DescribedGroup
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest
from odradek.protocol.messages.leave_group_response import LeaveGroupResponse, MemberResponse
from odradek.protocol.messages.legacy_offset_commit_key import LegacyOffsetCommitKey
from odradek.protocol.messages.legacy_offset_commit_value import LegacyOffsetCommitValue
from odradek.protocol.messages.list_groups_response import ListedGroup
from odradek.protocol.messages.offset_commit_key import OffsetCommitKey
from odradek.protocol.messages.offset_commit_request import OffsetCommitRequest
from odradek.protocol.messages.offset_commit_response import OffsetCommitResponse
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue
from odradek.protocol.messages.offset_delete_request import OffsetDeleteRequest
from odradek.protocol.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from odradek.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup
from odradek.protocol.messages.offset_fetch_response import OffsetFetchResponseGroup
from odradek.protocol.messages.sync_group_request import SyncGroupRequest
from odradek.protocol.messages.sync_group_response import SyncGroupResponse
from odradek.protocol.messages.txn_offset_commit_request import TxnOffsetCommitRequest
from odradek.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponse

if TYPE_CHECKING:
    from odradek.broker.groups.share.heartbeat import ShareHeartbeat, ShareHeartbeatResult
    from odradek.broker.groups.streams.heartbeat import StreamsHeartbeat, StreamsHeartbeatResult
    from odradek.broker.groups.streams.target import ComputedTarget
    from odradek.protocol.messages.share_group_describe_response import DescribedGroup as DescribedShareGroup
    from odradek.protocol.messages.streams_group_describe_response import DescribedGroup as DescribedStreamsGroup
    from odradek.protocol.messages.streams_group_topology_description_update_request import (
        StreamsGroupTopologyDescriptionUpdateRequest,
    )

FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND: Final = 9  # the first version of OffsetCommit that can return GROUP_ID_NOT_FOUND
# The first version of TxnOffsetCommit that can return GROUP_ID_NOT_FOUND. Source: docs/spec/kafka-4.4.md#s5-2, T8
FIRST_TXN_VERSION_WITH_GROUP_ID_NOT_FOUND: Final = 6


class GroupCore:
    def __init__(
        self,
        config: GroupConfig,
        cluster: ClusterView,
        first_epoch: Callable[[], int] = int,
        random_below: Callable[[int], int] = half_of,
    ) -> None:
        self.registry = GroupRegistry(config, cluster, first_epoch, random_below)
        # The number of times that a group's epoch has advanced since this core was created, by group type. As in Kafka,
        # an advance that only reflects the departure of members is not counted.
        self.rebalances: dict[str, int] = {}
        self.counts: dict[str, int] = {}  # metrics since this core was created, by name; see `Outcome.counted`

    # State.

    def replay(self, record: CoordinatorRecord, record_offset: int, producer_id: int = NO_PRODUCER_ID) -> None:
        """Applies a record. Recorded state changes only through this method, both after a restart and in normal
        operation."""
        key, value = record.key, record.value
        if isinstance(key, OffsetCommitKey) and (value is None or isinstance(value, OffsetCommitValue)):
            self._replay_offset(key.group, (key.topic, key.partition), value, record_offset, producer_id)
        elif isinstance(key, LegacyOffsetCommitKey) and (value is None or isinstance(value, LegacyOffsetCommitValue)):
            current = None
            if value is not None:
                current = OffsetCommitValue(
                    offset=value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp
                )
            self._replay_offset(key.group, (key.topic, key.partition), current, record_offset, producer_id)
        else:
            REPLAYS[key.API_KEY](self.registry, record)

    def replay_marker(self, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        self.registry.offsets.replay_marker(producer_id, committed=committed)

    def settle(self, outcome: Outcome[object]) -> None:
        """Applies the part of an outcome that is not recorded. The caller must have replayed the records and must not
        use the groups in the outcome afterwards."""
        for group in outcome.groups:
            self.registry.groups[group.group_id] = group
            if outcome.is_rebalance:
                group_type = group.group_type.value
                self.rebalances[group_type] = self.rebalances.get(group_type, 0) + 1
        for name, number in outcome.counted:
            self.count(name, number)

    def count(self, name: str, number: int = 1) -> None:
        """Increases a metric; `name` is one of `COUNTED`."""
        self.counts[name] = self.counts.get(name, 0) + number

    def on_loaded(self, now_ms: int) -> Outcome[None]:
        outcomes = [
            PROTOCOLS[group.group_type].on_loaded(self.registry, group, now_ms)
            for group in self.registry.groups.values()
        ]
        return Outcome(
            records=[record for outcome in outcomes for record in outcome.records],
            groups=[group for outcome in outcomes for group in outcome.groups],
            replies=[reply for outcome in outcomes for reply in outcome.replies],
            timers=[timer for outcome in outcomes for timer in outcome.timers],
            may_split=True,
        )

    def on_timer(self, key: TimerKey, now_ms: int) -> Outcome[None]:
        group = self.registry.groups.get(key.group_id)
        if key.kind is TimerKind.REGEX and not isinstance(group, ConsumerGroup):
            # While its topics were being searched, the group was deleted or replaced by a group of another type.
            self.registry.cluster.forget_search(key.group_id)
            return Outcome()
        if group is None:
            return Outcome()
        return PROTOCOLS[group.group_type].on_timer(self.registry, group, key, now_ms)

    def unload(self, code: ErrorCode) -> list[Reply]:
        """Returns error responses for the waiting requests when this broker stops coordinating these groups. The core
        must not be used afterwards."""
        replies = [
            reply
            for group in self.registry.groups.values()
            for reply in PROTOCOLS[group.group_type].unload(group, code)
        ]
        self.registry.groups.clear()
        return replies

    # Requests of the classic protocol. Some other group types support them too.

    def join_group(self, joiner: Joiner, now_ms: int) -> Outcome[JoinGroupResponse]:
        group = self.registry.groups.get(joiner.request.group_id)
        match group:
            case None | ClassicGroup():
                return join_classic_group(self.registry, group, joiner, now_ms)
            case ConsumerGroup() if not group.members:
                return join_classic_group(self.registry, None, joiner, now_ms, replaced=group.tombstones())
            case ConsumerGroup():
                return join_consumer_group(self.registry, group, joiner, now_ms)
            case StreamsGroup() if not group.members:
                return join_classic_group(self.registry, None, joiner, now_ms, replaced=group.tombstones())
            case _:
                return Outcome(error_response(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))

    def sync_group(self, request: SyncGroupRequest, token: Token, now_ms: int) -> Outcome[SyncGroupResponse]:
        match self.registry.groups.get(request.group_id):
            case ClassicGroup() as group:
                return sync_classic_group(self.registry, group, request, token, now_ms)
            case ConsumerGroup() as group:
                return sync_consumer_group(self.registry, group, request, now_ms)
            case _:
                return Outcome(SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID.value))

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> Outcome[HeartbeatResponse]:
        match self.registry.groups.get(request.group_id):
            case ClassicGroup() as group:
                return heartbeat_classic_group(group, request)
            case ConsumerGroup() as group:
                return heartbeat_consumer_group(self.registry, group, request, now_ms)
            case _:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    def leave_group(self, request: LeaveGroupRequest, now_ms: int) -> Outcome[LeaveGroupResponse]:
        """Handles LeaveGroup. The caller must have converted `request` to the form of version 3 or later, which
        contains a list of members."""
        match self.registry.groups.get(request.group_id):
            case ClassicGroup() as group:
                return leave_classic_group(self.registry, group, request, now_ms)
            case ConsumerGroup() as group:
                return leave_consumer_group(self.registry, group, request, now_ms)
            case _:
                return Outcome(nobody_left(request))

    # Requests of consumer groups (KIP-848), share groups (KIP-932) and streams groups (KIP-1071). A group of another
    # type is reported as not found, with one exception: if a member joins, a ConsumerGroupHeartbeat may upgrade a
    # classic group, and a StreamsGroupHeartbeat replaces an empty classic group.

    def consumer_heartbeat(self, beat: ConsumerHeartbeat, now_ms: int) -> Outcome[ConsumerGroupHeartbeatResponse]:
        return heartbeat(self.registry, beat, now_ms)

    def describe_consumer_group(self, group_id: str) -> DescribedConsumerGroup:
        return describe_consumer_group(self.registry, group_id)

    def share_heartbeat(self, beat: ShareHeartbeat, now_ms: int) -> Outcome[ShareHeartbeatResult]:
        # The function is imported here because most brokers have no share groups. mypyc turns the imported name into a
        # module global, so the name must be unique.
        from odradek.broker.groups.share.heartbeat import heartbeat as heartbeat_of_share_group

        return heartbeat_of_share_group(self.registry, beat, now_ms)

    def describe_share_group(self, group_id: str) -> DescribedShareGroup:
        from odradek.broker.groups.share.heartbeat import describe_share_group

        return describe_share_group(self.registry, group_id)

    def share_group(self, group_id: str) -> ShareGroup | None:
        """Returns the share group with this id, or None if the group does not exist or has another type."""
        group = self.registry.groups.get(group_id)
        return group if isinstance(group, ShareGroup) else None

    def require_empty_share_group(self, group_id: str, *, may_be_missing: bool) -> None:
        """Raises NON_EMPTY_GROUP if the share group has members. Raises GROUP_ID_NOT_FOUND if the group does not exist,
        unless `may_be_missing` is set."""
        share_state.require_empty(self.registry, group_id, may_be_missing=may_be_missing)

    def alter_share_offsets(
        self, group_id: str, start_offsets: Mapping[share_state.Pair, int], now_ms: int
    ) -> Outcome[share_state.StateRequest]:
        return share_state.alter_offsets(self.registry, group_id, start_offsets, now_ms)

    def begin_share_deletion(self, group_id: str, topics: Iterable[str] | None, now_ms: int) -> Outcome[Partitions]:
        return share_state.begin_deletion(self.registry, group_id, topics, now_ms)

    def share_state_begun(
        self, group_id: str, succeeded: Collection[share_state.Pair], failed: Collection[share_state.Pair], now_ms: int
    ) -> Outcome[bool]:
        return share_state.state_begun(self.registry, group_id, succeeded, failed, now_ms)

    def share_state_deleted(self, group_id: str, topic_ids: Collection[bytes], now_ms: int) -> Outcome[bool]:
        return share_state.state_deleted(self.registry, group_id, topic_ids, now_ms)

    def streams_heartbeat(self, beat: StreamsHeartbeat, now_ms: int) -> Outcome[StreamsHeartbeatResult]:
        from odradek.broker.groups.streams.heartbeat import heartbeat as heartbeat_of_streams_group

        return heartbeat_of_streams_group(self.registry, beat, now_ms)

    def target_computed(self, group_id: str, computed: ComputedTarget, now_ms: int) -> Outcome[bool]:
        """Receives the target assignment of a large streams group when its computation is finished; see
        `ClusterView.compute_target`."""
        from odradek.broker.groups.streams.lifecycle import target_computed

        return target_computed(self.registry, group_id, computed, now_ms)

    def internal_topics_created(
        self, group_id: str, topics: Sequence[str], failures: Mapping[str, str], now_ms: int
    ) -> Outcome[bool]:
        """Handles the result of an attempt to create a streams group's internal topics. `failures` contains the error
        messages by topic."""
        from odradek.broker.groups.streams.lifecycle import creation_ended

        return creation_ended(self.registry, group_id, topics, failures, now_ms)

    def describe_streams_group(self, group_id: str, *, includes_description: bool = False) -> DescribedStreamsGroup:
        from odradek.broker.groups.streams.lifecycle import describe_streams_group

        return describe_streams_group(self.registry, group_id, includes_description=includes_description)

    def begin_description(self, request: StreamsGroupTopologyDescriptionUpdateRequest, now_ms: int) -> Outcome[bool]:
        from odradek.broker.groups.streams.descriptions import begin_description

        return begin_description(self.registry, request, now_ms)

    def description_stored(self, request: StreamsGroupTopologyDescriptionUpdateRequest, now_ms: int) -> Outcome[bool]:
        from odradek.broker.groups.streams.descriptions import description_stored

        return description_stored(self.registry, request, now_ms)

    def has_description(self, group_id: str) -> bool:
        """Returns whether the group is a streams group with a topology description, which DeleteGroups must remove
        before the group."""
        group = self.registry.groups.get(group_id)
        return isinstance(group, StreamsGroup) and group.has_description

    def begin_description_removal(self, group_id: str, now_ms: int) -> Outcome[bool]:
        from odradek.broker.groups.streams.descriptions import begin_removal

        return begin_removal(self.registry, group_id, now_ms)

    def description_removed(self, group_id: str, now_ms: int) -> Outcome[bool]:
        from odradek.broker.groups.streams.descriptions import confirm_removal

        return confirm_removal(self.registry, group_id, now_ms)

    # Offsets.

    def committed_offsets(self, group_id: str) -> Mapping[tuple[str, int], CommittedOffset]:
        """Returns the committed offsets of a group by topic and partition."""
        return self._offsets.of(group_id)

    def commit_offsets(
        self, request: OffsetCommitRequest, *, version: int, now_ms: int
    ) -> Outcome[OffsetCommitResponse]:
        """Handles OffsetCommit. The caller must have resolved topic names and ids where possible, and removed
        partitions that do not exist."""
        committer = Committer(
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            version,
            [(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions],
        )
        is_reported = version >= FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND
        groups, timers = self._check_committer(request.group_id, committer, now_ms, has_group_id_not_found=is_reported)
        response, records = commit_records(request, self._config, now_ms)
        counted = ((OFFSET_COMMITS, len(records)),)
        return Outcome(response, records=records, groups=groups, timers=timers, counted=counted)

    def commit_transactional_offsets(
        self, request: TxnOffsetCommitRequest, *, version: int, now_ms: int
    ) -> Outcome[TxnOffsetCommitResponse]:
        """Handles TxnOffsetCommit. The caller must have removed partitions that do not exist, and must write the
        records as part of the producer's transaction.

        version  the version of the request; versions before FIRST_TXN_VERSION_WITH_GROUP_ID_NOT_FOUND cannot report
                 that the group does not exist
        """
        committer = Committer(
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            None,
            [(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions],
        )
        is_reported = version >= FIRST_TXN_VERSION_WITH_GROUP_ID_NOT_FOUND
        groups, timers = self._check_committer(request.group_id, committer, now_ms, has_group_id_not_found=is_reported)
        response, records = transactional_commit_records(request, self._config, now_ms)
        counted = ((OFFSET_COMMITS, len(records)),)
        return Outcome(response, records=records, groups=groups, timers=timers, counted=counted)

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> Outcome[OffsetFetchResponseGroup]:
        group = self.registry.groups.get(request.group_id)
        exists = group is not None
        if group is not None:
            try:
                group.check_offset_fetch(request.member_id, request.member_epoch)
            except KafkaError as error:
                if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                    raise
                exists = False
        return Outcome(fetch_offsets(request, self._offsets, group_exists=exists, require_stable=require_stable))

    def delete_offsets(self, request: OffsetDeleteRequest) -> Outcome[OffsetDeleteResponse]:
        """Handles OffsetDelete. The caller must have removed partitions that do not exist."""
        group_id = request.group_id
        group = self.registry.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        group.check_offset_delete()
        stored = self._offsets.of(group_id).keys() | self._offsets.open_positions(group_id).keys()
        response = OffsetDeleteResponse()
        deleted: dict[tuple[str, int], None] = {}
        is_subscribed_to = group.subscription()
        for topic in request.topics:
            subscribed = is_subscribed_to(topic.name)
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
            indexes = [partition.partition_index for partition in topic.partitions]
            response.topics.append(
                OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetDeleteResponsePartition(partition_index=index, error_code=code.value) for index in indexes
                    ],
                )
            )
            if not subscribed:
                deleted.update(dict.fromkeys((topic.name, index) for index in indexes if (topic.name, index) in stored))
        records = [offset_tombstone(group_id, name, index) for name, index in deleted]
        return Outcome(response, records=records, counted=((OFFSET_DELETIONS, len(records)),))

    def forget_topic(self, topic: str, topic_id: bytes) -> Outcome[None]:
        records = [*topic_tombstones(topic, topic_id, self._offsets), *share_state.missing_topic_records(self.registry)]
        return Outcome(records=records, may_split=True)

    def forget_missing_topics(self, topic_exists: Callable[[bytes], bool]) -> Outcome[None]:
        """Removes the offsets of topics that were deleted while the groups were not loaded. Offsets without a topic id
        are kept."""
        records = [
            *missing_topic_tombstones(topic_exists, self._offsets),
            *share_state.missing_topic_records(self.registry),
        ]
        return Outcome(records=records, may_split=True)

    # Administration.

    @property
    def offset_count(self) -> int:
        return self._offsets.count

    def list_groups(self, states_filter: Sequence[str], types_filter: Sequence[str]) -> list[ListedGroup]:
        listed = [listed_group(group) for group in self.registry.groups.values()]
        return [each for each in listed if selects(each, states_filter, types_filter)]

    def describe_group(self, group_id: str, *, version: int) -> DescribedGroup:
        match self.registry.groups.get(group_id):
            case None:
                return describe_missing(group_id, version, f"Group {group_id} not found.")
            case ClassicGroup() as group:
                return describe_classic(group)
            case _:
                return describe_missing(group_id, version, f"Group {group_id} is not a classic group.")

    def delete_group(self, group_id: str) -> Outcome[DeletableGroupResult]:
        """Deletes a group. An error is returned rather than raised, because DeleteGroups can list several groups."""
        records: list[CoordinatorRecord] = []
        timers: list[Timer] = []
        code = self._deletion_verdict(group_id)
        if code is ErrorCode.NONE:
            records += all_tombstones(group_id, self._offsets)
            self._remove(self.registry.groups[group_id], records, timers)
        result = DeletableGroupResult(group_id=group_id, error_code=code.value)
        return Outcome(result, records=records, timers=timers)

    def expire(self, now_ms: int) -> Outcome[None]:
        """Removes offsets older than `offsets.retention.minutes`, and then empty groups that have no offsets left. The
        topology description of a streams group is removed with the group."""
        records: list[CoordinatorRecord] = []
        timers: list[Timer] = []
        expirations = descriptions = 0
        for group_id, group in self.registry.groups.items():
            if group.keeps_offsets:
                continue
            expired = [
                offset_tombstone(group_id, *position)
                for position, expires_at_ms in self._expiries(group)
                if expires_at_ms <= now_ms
            ]
            records += expired
            expirations += len(expired)
            if group.deletion_verdict() is not ErrorCode.NONE or self._offsets.open_positions(group_id):
                continue
            if len(expired) == len(self._offsets.of(group_id)):
                descriptions += self.has_description(group_id)
                self._remove(group, records, timers)
        counted = [(OFFSET_EXPIRATIONS, expirations)]
        if self._config.streams.keeps_descriptions:
            counted += [(CLEANUP_CYCLES, 1), (CLEANUP_ELIGIBLE, descriptions), (DESCRIPTIONS_DELETED, descriptions)]
        return Outcome(records=records, timers=timers, may_split=True, counted=counted)

    def expires_ms(self) -> int | None:
        """Returns the earliest time at which `expire` could remove something. Returns 0 if a group can be removed now,
        or None if nothing will expire."""
        found: int | None = None
        for group_id, group in self.registry.groups.items():
            if group.keeps_offsets:
                continue
            is_left = group.deletion_verdict() is ErrorCode.NONE and not self._offsets.open_positions(group_id)
            times_ms = [each for _, each in self._expiries(group)]
            if is_left and not self._offsets.of(group_id):
                return 0
            if times_ms:
                found = min(times_ms) if found is None else min(found, *times_ms)
        return found

    # Internal steps.

    @property
    def _config(self) -> GroupConfig:
        return self.registry.config

    @property
    def _offsets(self) -> Offsets:
        return self.registry.offsets

    def _check_committer(
        self, group_id: str, committer: Committer, now_ms: int, *, has_group_id_not_found: bool
    ) -> tuple[Sequence[Group], Sequence[Timer]]:
        """Checks that the committer may commit. Returns the group to create, if it does not exist yet, and the timers
        to restart. Raises KafkaError if the commit is refused.

        For an existing group, its `check_offset_commit` decides. If the group does not exist, a commit with a
        generation is refused here. Source: docs/spec/consumer-groups.md#s9-1, C1

        has_group_id_not_found  True if the request's version has the error GROUP_ID_NOT_FOUND
        """
        group = self.registry.groups.get(group_id)
        if group is not None:
            return (), group.check_offset_commit(committer)
        # The error is chosen here rather than by the error translations, because a share group responds with
        # GROUP_ID_NOT_FOUND in every version.
        if committer.epoch >= 0:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND if has_group_id_not_found else ErrorCode.ILLEGAL_GENERATION)
        # The consumer assigns partitions to itself and uses the group only to store offsets, so the group has no other
        # records.
        return (ClassicGroup(group_id, changed_ms=now_ms),), ()

    def _deletion_verdict(self, group_id: str) -> ErrorCode:
        group = self.registry.groups.get(group_id)
        return ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.deletion_verdict()

    def _remove(self, group: Group, records: list[CoordinatorRecord], timers: list[Timer]) -> None:
        records += group.tombstones()
        timers += [Timer(key, None) for key in group.running_timers()]

    def _expiries(self, group: Group) -> Iterator[tuple[tuple[str, int], int]]:
        """Yields the position and the expiry time of each offset that can expire."""
        unstable = self._offsets.open_positions(group.group_id)
        idle_since_ms = group.idle_since_ms
        is_subscribed_to = group.subscription()
        for (topic, partition), committed in self._offsets.of(group.group_id).items():
            if not is_subscribed_to(topic) and (topic, partition) not in unstable:
                yield (topic, partition), expires_ms(committed, idle_since_ms, self._config)

    def _replay_offset(
        self,
        group_id: str,
        position: tuple[str, int],
        value: OffsetCommitValue | None,
        record_offset: int,
        producer_id: int,
    ) -> None:
        if value is not None and group_id not in self.registry.groups:
            self.registry.groups[group_id] = ClassicGroup(group_id, changed_ms=value.commit_timestamp)
        self._offsets.replay(group_id, position, value, record_offset, producer_id)


def nobody_left(request: LeaveGroupRequest) -> LeaveGroupResponse:
    code = ErrorCode.UNKNOWN_MEMBER_ID.value
    return LeaveGroupResponse(
        members=[
            MemberResponse(member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=code)
            for each in request.members
        ]
    )
