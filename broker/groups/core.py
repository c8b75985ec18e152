"""All groups of one `__consumer_offsets` partition. Plain decisions: no clock, no files, nothing awaited.

State comes from records (`replay`) and, for what records do not tell, from decisions whose records are written
(`settle`). A request method only decides; whoever calls it appends `Outcome.records`, replays them and settles.
Errors that concern the whole request are raised as `KafkaError`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.groups.classic import ClassicGroup
from broker.groups.describe import describe_classic, describe_missing, listed_classic, listed_modern, selects
from broker.groups.join import NO_MEMBER_ID, Joiner, join, refused
from broker.groups.member import Token
from broker.groups.membership import heartbeat_verdict, leave_group, sync_group
from broker.groups.modern import GROUP_TYPE_OF_RECORD, ModernGroup
from broker.groups.offset_requests import (
    all_tombstones,
    commit_records,
    fetch_offsets,
    is_expired,
    missing_topic_tombstones,
    topic_tombstones,
    transactional_commit_records,
)
from broker.groups.offsets import Offsets
from broker.groups.rebalance import on_join_timer, on_session_timer, on_sync_timer, prepare_rebalance
from broker.groups.records import empty_group_record, group_tombstone, member_of, offset_tombstone
from broker.groups.tables import (
    DELETE_GROUP,
    OFFSET_DELETE,
    GroupState,
    GroupType,
    Verdict,
    offset_commit_verdict,
)
from broker.groups.turn import (
    CoordinatorRecord,
    GroupConfig,
    Outcome,
    Reply,
    Timer,
    TimerKey,
    TimerKind,
    Turn,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_groups_response import DeletableGroupResult
from protocol.messages.describe_groups_response import DescribedGroup
from protocol.messages.group_metadata_key import GroupMetadataKey
from protocol.messages.group_metadata_value import GroupMetadataValue
from protocol.messages.heartbeat_request import HeartbeatRequest
from protocol.messages.heartbeat_response import HeartbeatResponse
from protocol.messages.join_group_response import JoinGroupResponse
from protocol.messages.leave_group_request import LeaveGroupRequest
from protocol.messages.leave_group_response import LeaveGroupResponse, MemberResponse
from protocol.messages.legacy_offset_commit_key import LegacyOffsetCommitKey
from protocol.messages.legacy_offset_commit_value import LegacyOffsetCommitValue
from protocol.messages.list_groups_response import ListedGroup
from protocol.messages.offset_commit_key import OffsetCommitKey
from protocol.messages.offset_commit_request import OffsetCommitRequest
from protocol.messages.offset_commit_response import OffsetCommitResponse
from protocol.messages.offset_commit_value import OffsetCommitValue
from protocol.messages.offset_delete_request import OffsetDeleteRequest
from protocol.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from protocol.messages.offset_fetch_request import OffsetFetchRequestGroup
from protocol.messages.offset_fetch_response import OffsetFetchResponseGroup
from protocol.messages.sync_group_request import SyncGroupRequest
from protocol.messages.sync_group_response import SyncGroupResponse
from protocol.messages.txn_offset_commit_request import TxnOffsetCommitRequest
from protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponse

NO_PRODUCER_ID = -1


class GroupCore:
    def __init__(self, config: GroupConfig) -> None:
        self._config = config
        self._classic: dict[str, ClassicGroup] = {}
        self._modern: dict[str, ModernGroup] = {}
        self._offsets = Offsets()

    # State.

    def replay(self, record: CoordinatorRecord, record_offset: int, producer_id: int = NO_PRODUCER_ID) -> None:
        """The only way in which what is recorded changes: at the restart as in live traffic."""
        match record:
            case CoordinatorRecord(OffsetCommitKey() as key, OffsetCommitValue() | None as value):
                self._replay_offset(key.group, (key.topic, key.partition), value, record_offset, producer_id)
            case CoordinatorRecord(LegacyOffsetCommitKey() as key, LegacyOffsetCommitValue() | None as value):
                current = None
                if value is not None:
                    current = OffsetCommitValue(
                        offset=value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp
                    )
                self._replay_offset(key.group, (key.topic, key.partition), current, record_offset, producer_id)
            case CoordinatorRecord(GroupMetadataKey() as key, GroupMetadataValue() as value):
                self._classic[key.group] = ClassicGroup(
                    key.group,
                    changed_ms=None if value.current_state_timestamp == -1 else value.current_state_timestamp,
                    generation=value.generation,
                    protocol_type=value.protocol_type or None,
                    protocol_name=value.protocol,
                    leader_id=value.leader,
                    members=[member_of(value, stored) for stored in value.members],
                )
            case CoordinatorRecord(GroupMetadataKey() as key, None):
                self._classic.pop(key.group, None)
            case _:
                self._replay_modern(record)

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        self._offsets.replay_marker(producer_id, committed=committed)

    def settle(self, outcome: Outcome[object]) -> None:
        """After the outcome's records were replayed: what they do not tell. The groups now belong to the core."""
        for group in outcome.groups:
            self._classic[group.group_id] = group

    def on_loaded(self, now_ms: int) -> Outcome[None]:
        """Members keep their generation; each has one session timeout to be heard of again."""
        groups: list[ClassicGroup] = []
        timers: list[Timer] = []
        for group in self._classic.values():
            for member in group.members.values():
                key = TimerKey(TimerKind.SESSION, group.group_id, member.member_id)
                timers.append(Timer(key, member.session_timeout_ms))
            if len(group.members) > self._config.group_max_size:
                # The limit was lowered: a rebalance lets in as many as may stay, and the others can commit before.
                turn = Turn(group.copy(), self._config, now_ms)
                prepare_rebalance(turn)
                groups.append(turn.group)
                timers += turn.timers
        return Outcome(groups=groups, timers=timers)

    def unload(self, code: ErrorCode) -> list[Reply]:
        """This broker no longer coordinates these groups: whoever waits is told, and the core is not used again."""
        replies: list[Reply] = []
        for group in self._classic.values():
            for member in group.members.values():
                if member.awaiting_join is not None:
                    replies.append(Reply(member.awaiting_join, refused(code, member.member_id)))
                if member.awaiting_sync is not None:
                    replies.append(Reply(member.awaiting_sync, SyncGroupResponse(error_code=code.value)))
        self._classic.clear()
        return replies

    # Membership.

    def join_group(self, joiner: Joiner, now_ms: int) -> Outcome[JoinGroupResponse]:
        request = joiner.request
        cleared: list[CoordinatorRecord] = []
        modern = self._modern_group(request.group_id)
        if modern is not None:
            # Not handled: a classic member in a consumer group that has members (KIP-848's way of migrating).
            if modern.members or modern.group_type is GroupType.SHARE:
                return Outcome(refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
            cleared = modern.tombstones()
        group = self._classic.get(request.group_id)
        if group is None and request.member_id != NO_MEMBER_ID:
            return Outcome(refused(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
        draft = ClassicGroup(request.group_id, changed_ms=now_ms) if group is None else group.copy()
        turn = Turn(draft, self._config, now_ms)
        turn.records += cleared
        if group is None:
            turn.records.append(empty_group_record(request.group_id, now_ms))
        return turn.outcome(join(turn, joiner))

    def sync_group(self, request: SyncGroupRequest, token: Token, now_ms: int) -> Outcome[SyncGroupResponse]:
        group = self._classic.get(request.group_id)
        if group is None:
            return Outcome(SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID.value))
        turn = Turn(group.copy(), self._config, now_ms)
        return turn.outcome(sync_group(turn, request, token))

    def heartbeat(self, request: HeartbeatRequest) -> Outcome[HeartbeatResponse]:
        group = self._classic.get(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        verdict = heartbeat_verdict(group, request)
        return Outcome(
            HeartbeatResponse(error_code=verdict.value), timers=(self._session_timer(group, request.member_id),)
        )

    def leave_group(self, request: LeaveGroupRequest, now_ms: int) -> Outcome[LeaveGroupResponse]:
        """`request` in the form of version 3 and later: a list of members."""
        group = self._classic.get(request.group_id)
        if group is None:
            code = ErrorCode.UNKNOWN_MEMBER_ID.value
            return Outcome(
                LeaveGroupResponse(
                    members=[
                        MemberResponse(
                            member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=code
                        )
                        for each in request.members
                    ]
                )
            )
        turn = Turn(group.copy(), self._config, now_ms)
        return turn.outcome(LeaveGroupResponse(members=leave_group(turn, request.members)))

    def on_timer(self, key: TimerKey, now_ms: int) -> Outcome[None]:
        group = self._classic.get(key.group_id)
        if group is None:
            return Outcome()
        turn = Turn(group.copy(), self._config, now_ms)
        match key.kind:
            case TimerKind.SESSION:
                on_session_timer(turn, key.member_id)
            case TimerKind.JOIN:
                on_join_timer(turn)
            case TimerKind.SYNC:
                on_sync_timer(turn)
        return turn.outcome()

    # Offsets.

    def commit_offsets(
        self, request: OffsetCommitRequest, *, version: int, now_ms: int
    ) -> Outcome[OffsetCommitResponse]:
        """Topics with both name and id, as far as they are known; only partitions that exist."""
        group_id = request.group_id
        modern, group = self._modern_group(group_id), self._classic.get(group_id)
        timers: list[Timer] = []
        groups: list[ClassicGroup] = []
        if modern is not None:
            modern.check_offset_commit(request.member_id, request.generation_id_or_member_epoch, version=version)
        elif group is not None:
            self._check_commit(
                group,
                request.member_id,
                request.group_instance_id,
                request.generation_id_or_member_epoch,
                transactional=False,
            )
            if group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
                timers.append(self._session_timer(group, request.member_id))
        elif request.generation_id_or_member_epoch >= 0:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION)
        else:
            # A consumer that manages its own partitions only keeps its offsets here; no record but theirs names it.
            groups.append(ClassicGroup(group_id, changed_ms=now_ms))
        response, records = commit_records(request, self._config, now_ms)
        return Outcome(response, records=records, groups=groups, timers=timers)

    def commit_transactional_offsets(
        self, request: TxnOffsetCommitRequest, *, now_ms: int
    ) -> Outcome[TxnOffsetCommitResponse]:
        """Only partitions that exist. The records are to be written in the producer's transaction."""
        group_id = request.group_id
        modern, group = self._modern_group(group_id), self._classic.get(group_id)
        groups: list[ClassicGroup] = []
        if modern is not None:
            modern.check_txn_offset_commit(request.member_id, request.group_instance_id, request.generation_id)
        elif group is not None:
            self._check_commit(
                group, request.member_id, request.group_instance_id, request.generation_id, transactional=True
            )
        elif request.generation_id >= 0:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        else:
            groups.append(ClassicGroup(group_id, changed_ms=now_ms))
        response, records = transactional_commit_records(request, self._config, now_ms)
        return Outcome(response, records=records, groups=groups)

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> Outcome[OffsetFetchResponseGroup]:
        modern = self._modern_group(request.group_id)
        exists = request.group_id in self._classic
        if modern is not None:
            try:
                modern.check_offset_fetch(request.member_id, request.member_epoch)
                exists = True
            except KafkaError as error:
                if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                    raise
        return Outcome(fetch_offsets(request, self._offsets, group_exists=exists, require_stable=require_stable))

    def delete_offsets(self, request: OffsetDeleteRequest) -> Outcome[OffsetDeleteResponse]:
        """Only partitions that exist."""
        group_id = request.group_id
        is_subscribed_to = self._check_offset_delete(group_id)
        known = self._offsets.of(group_id).keys() | self._offsets.open_positions(group_id).keys()
        response, records = OffsetDeleteResponse(), []
        for topic in request.topics:
            subscribed = is_subscribed_to(topic.name)
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
            indexes = list(dict.fromkeys(partition.partition_index for partition in topic.partitions))
            response.topics.append(
                OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetDeleteResponsePartition(partition_index=index, error_code=code.value) for index in indexes
                    ],
                )
            )
            if not subscribed:
                records += [
                    offset_tombstone(group_id, topic.name, index) for index in indexes if (topic.name, index) in known
                ]
        return Outcome(response, records=records)

    def forget_topic(self, topic: str, topic_id: bytes) -> Outcome[None]:
        return Outcome(records=topic_tombstones(topic, topic_id, self._offsets), may_split=True)

    def forget_missing_topics(self, topic_exists: Callable[[bytes], bool]) -> Outcome[None]:
        """Offsets of topics that were deleted while nobody looked. A topic that was not known by id is left alone."""
        return Outcome(records=missing_topic_tombstones(topic_exists, self._offsets), may_split=True)

    # Administration.

    @property
    def offset_count(self) -> int:
        return self._offsets.count

    def list_groups(self, states_filter: Sequence[str], types_filter: Sequence[str]) -> list[ListedGroup]:
        listed = [listed_modern(group) for group in self._modern.values() if group.exists]
        listed += [listed_classic(group) for group in self._classic.values()]
        return [each for each in listed if selects(each, states_filter, types_filter)]

    def describe_group(self, group_id: str, *, version: int) -> DescribedGroup:
        if self._modern_group(group_id) is not None:
            return describe_missing(group_id, version, f"Group {group_id} is not a classic group.")
        group = self._classic.get(group_id)
        if group is None:
            return describe_missing(group_id, version, f"Group {group_id} not found.")
        return describe_classic(group)

    def delete_group(self, group_id: str) -> Outcome[DeletableGroupResult]:
        """The refusal is a value: DeleteGroups names many groups."""
        records: list[CoordinatorRecord] = []
        timers: list[Timer] = []
        code = self._delete_verdict(group_id)
        if code is ErrorCode.NONE:
            records += all_tombstones(group_id, self._offsets)
            self._tombstone_group(group_id, records, timers)
        result = DeletableGroupResult(group_id=group_id, error_code=code.value)
        return Outcome(result, records=records, timers=timers)

    def expire(self, now_ms: int) -> Outcome[None]:
        """Offsets nobody came back for in `offsets.retention.minutes`, and empty groups that are left without any."""
        records: list[CoordinatorRecord] = []
        timers: list[Timer] = []
        for group_id in [*self._classic, *(group_id for group_id, group in self._modern.items() if group.exists)]:
            expired = self._expired_offsets(group_id, now_ms)
            if expired is None:
                continue
            records += expired
            if self._delete_verdict(group_id) is not ErrorCode.NONE or self._offsets.open_positions(group_id):
                continue
            if len(expired) == len(self._offsets.of(group_id)):
                self._tombstone_group(group_id, records, timers)
        return Outcome(records=records, timers=timers, may_split=True)

    # Within.

    def _modern_group(self, group_id: str) -> ModernGroup | None:
        group = self._modern.get(group_id)
        return group if group is not None and group.exists else None

    def _session_timer(self, group: ClassicGroup, member_id: str) -> Timer:
        key = TimerKey(TimerKind.SESSION, group.group_id, member_id)
        return Timer(key, group.members[member_id].session_timeout_ms)

    def _check_commit(
        self,
        group: ClassicGroup,
        member_id: str,
        group_instance_id: str | None,
        generation: int,
        *,
        transactional: bool,
    ) -> None:
        is_anonymous = member_id == "" and group_instance_id is None
        verdict = offset_commit_verdict(
            group.state, generation=generation, is_anonymous=is_anonymous, transactional=transactional
        )
        if isinstance(verdict, ErrorCode):
            raise KafkaError(verdict)
        if verdict is Verdict.ACCEPT:
            return
        group.require_member(member_id, group_instance_id)
        if generation != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if verdict is Verdict.MEMBER_WAITS:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def _check_offset_delete(self, group_id: str) -> Callable[[str], bool]:
        modern = self._modern_group(group_id)
        if modern is not None and modern.group_type is not GroupType.SHARE:
            return modern.is_subscribed_to
        group = self._classic.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        of_consumers, of_others = OFFSET_DELETE[group.state]
        verdict = of_consumers if group.uses_consumer_protocol else of_others
        if isinstance(verdict, ErrorCode):
            raise KafkaError(verdict)
        return group.is_subscribed_to

    def _delete_verdict(self, group_id: str) -> ErrorCode:
        modern = self._modern_group(group_id)
        if modern is not None:
            return ErrorCode.NON_EMPTY_GROUP if modern.members else ErrorCode.NONE
        group = self._classic.get(group_id)
        return ErrorCode.GROUP_ID_NOT_FOUND if group is None else DELETE_GROUP[group.state]

    def _tombstone_group(self, group_id: str, records: list[CoordinatorRecord], timers: list[Timer]) -> None:
        modern = self._modern_group(group_id)
        if modern is not None:
            records += modern.tombstones()
            return
        records.append(group_tombstone(group_id))
        timers += [
            Timer(TimerKey(TimerKind.SESSION, group_id, member_id), None)
            for member_id in self._classic[group_id].pending_join
        ]

    def _expired_offsets(self, group_id: str, now_ms: int) -> list[CoordinatorRecord] | None:
        """None: nothing of this group expires as it is now."""
        modern = self._modern_group(group_id)
        idle_since_ms: int | None = None
        if modern is not None:
            if modern.group_type is not GroupType.CONSUMER:
                return None
            is_subscribed_to = modern.is_subscribed_to
        else:
            group = self._classic[group_id]
            is_subscribed_to = group.is_subscribed_to
            if group.protocol_type is not None:
                if group.state is GroupState.EMPTY:
                    idle_since_ms = group.changed_ms
                elif group.state is not GroupState.STABLE or group.subscribed_topics is None:
                    return None
        unstable = self._offsets.open_positions(group_id)
        return [
            offset_tombstone(group_id, topic, partition)
            for (topic, partition), committed in self._offsets.of(group_id).items()
            if not is_subscribed_to(topic)
            and (topic, partition) not in unstable
            and is_expired(
                committed, committed.committed_ms if idle_since_ms is None else idle_since_ms, self._config, now_ms
            )
        ]

    def _replay_offset(
        self,
        group_id: str,
        position: tuple[str, int],
        value: OffsetCommitValue | None,
        record_offset: int,
        producer_id: int,
    ) -> None:
        if value is not None and group_id not in self._classic and self._modern_group(group_id) is None:
            self._classic[group_id] = ClassicGroup(group_id, changed_ms=value.commit_timestamp)
        self._offsets.replay(group_id, position, value, record_offset, producer_id)

    def _replay_modern(self, record: CoordinatorRecord) -> None:
        group_type = GROUP_TYPE_OF_RECORD[record.key.API_KEY]
        group_id: str = record.key.group_id  # type: ignore[attr-defined]  # every key of these types has one
        group = self._modern.get(group_id)
        if group is None or (group.group_type is not group_type and not group.exists):
            if record.value is None:
                return
            group = self._modern[group_id] = ModernGroup(group_id, group_type)
        group.replay(record)
        if group.exists:
            # Its offsets may have been met before it: they made it look like a group without a protocol.
            self._classic.pop(group_id, None)
        elif group.is_forgotten:
            del self._modern[group_id]
