"""Reconstructs the history of a transactional id or group from its records in a partition of an internal topic.

The partition also contains records of other ids or groups. Compaction keeps only the last record of each key, so older
steps disappear.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.broker.http.page.served import SHOWN, JsonValue
from odradek.broker.transactions.entry import Txn
from odradek.broker.transactions.records import decode_record
from odradek.broker.transactions.tables import TxnState
from odradek.protocol.batch_header import batches
from odradek.protocol.decoded.internal_records import group_fields
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.records import Record, records_of

if TYPE_CHECKING:
    from odradek.storage.log import Log


def records_naming(name: bytes, portions: Iterable[bytes]) -> Iterator[Record]:
    """Yields the records of all batches that are compressed or contain the bytes of `name`. Skips other batches without
    decoding them."""
    for portion in portions:
        for position, header in batches(portion):
            if header.is_compressed or portion.find(name, position, position + header.size_bytes) >= 0:
                yield from records_of(portion, position)


# Maximum number of records to search in the transactional id's partition, which also contains records of other ids.
HISTORY_RECORDS = 100_000


class TxnStep(NamedTuple):
    """A change in a transactional id's state, recorded by one record.

    before  the state before the record; None for the first record
    txn     the state after the record; None if the id has expired
    """

    at_ms: int
    offset: int
    before: Txn | None
    txn: Txn | None

    def as_view(self) -> dict[str, JsonValue]:
        return {"at_ms": self.at_ms, "offset": self.offset, **in_words(self.before, self.txn)}


def steps_start(log: Log) -> int:
    """Returns the offset at which the search for steps begins."""
    return max(log.log_start_offset, log.log_end_offset - HISTORY_RECORDS)


def steps_of(portions: Iterable[bytes], transactional_id: str) -> list[TxnStep]:
    """Returns a transactional id's steps, oldest first."""
    steps: list[TxnStep] = []
    before: Txn | None = None
    for record in records_naming(transactional_id.encode(), portions):
        found = decode_record(record.key, record.value)
        if found is None or found.transactional_id != transactional_id:
            continue
        txn = found if isinstance(found, Txn) else None
        steps.append(TxnStep(record.timestamp, record.offset, before, txn))
        before = txn
    return steps


def in_words(before: Txn | None, txn: Txn | None) -> dict[str, JsonValue]:
    """Describes how a record changed a transactional id. The field `kind` determines the color on the page."""
    if txn is None:
        return {"kind": "end", "what": "expired: the id was unused for too long"}
    pair = f"producer id {txn.producer_id}, epoch {txn.producer_epoch}"
    is_new_epoch = before is None or (before.producer_id, before.producer_epoch) != (
        txn.producer_id,
        txn.producer_epoch,
    )
    match txn.state:
        case TxnState.ONGOING if txn.is_kept and (before is None or not before.is_kept):
            return {
                "kind": "fence",
                "what": "kept for its new owner, who commits or aborts it; the previous owner is fenced",
            }
        case TxnState.ONGOING if before is not None and before.state is TxnState.ONGOING:
            added = sorted(txn.partitions - before.partitions)
            names = ", ".join(f"{topic}-{index}" for topic, index in added)
            return {"kind": "open", "what": f"partitions added: {names}" if names else "recorded again"}
        case TxnState.ONGOING:
            names = ", ".join(f"{topic}-{index}" for topic, index in sorted(txn.partitions))
            return {"kind": "open", "what": f"begun: {pair}; {names}"}
        case TxnState.PREPARE_COMMIT:
            return {"kind": "commit", "what": "commit decided; markers are written to each partition"}
        case TxnState.PREPARE_ABORT:
            why = ""
            if is_new_epoch and before is not None:
                # The reason is a guess. A new producer could also have caused the abort, if it started after the
                # timeout but before the coordinator's next check some seconds later.
                is_late = before.is_timed_out(txn.updated_ms)
                why = " after its timeout" if is_late else " because a new producer took over"
            return {"kind": "abort", "what": f"abort decided{why}; markers are written to each partition"}
        case TxnState.COMPLETE_COMMIT:
            return {"kind": "commit", "what": "committed: all markers are written"}
        case TxnState.COMPLETE_ABORT:
            return {"kind": "abort", "what": "aborted: all markers are written"}
        case _:
            return {"kind": "fence", "what": f"initialised: {pair}" if is_new_epoch else "recorded again"}


OFFSET_COMMITS = (b"\x00\x00", b"\x00\x01")  # first bytes of an offset commit's key; the history omits offset commits
CLASSIC = "GroupMetadata"
PREFIXES = ("ConsumerGroup", "ShareGroup", "StreamsGroup")
REVOKING = 1  # state of a member that has partitions to revoke
MemberDescription = tuple[str, str]  # (kind, which determines the color on the page, description)


def group_history(portions: Iterable[bytes], group_id: str, topics: Mapping[str, str]) -> list[JsonValue]:
    """Returns a group's last steps, oldest first.

    topics  topic names by topic id, where each id is the text that the decoder returns
    """
    history = GroupHistory(group_id, topics)
    steps: list[JsonValue] = []
    for record in records_naming(group_id.encode(), portions):
        if record.key is None or record.key.startswith(OFFSET_COMMITS):
            continue
        try:
            fields = group_fields(record)
        except MalformedMessage:
            continue
        if (step := history.step(fields)) is not None:
            steps.append({"at_ms": record.timestamp, "offset": record.offset, "kind": step[0], "what": step[1]})
    return steps[-SHOWN:]


class GroupHistory:
    """Compares each record of a group with the state after the earlier records and describes the difference."""

    def __init__(self, group_id: str, topics: Mapping[str, str]) -> None:
        self._group_id = group_id
        self._topics = topics
        self._members: dict[str, Any] = {}  # the latest value of each member's record, by member id
        self._generation: int | None = None
        self._given: dict[str, str] = {}

    def step(self, fields: Mapping[str, Any]) -> MemberDescription | None:
        key, kind = fields["key"], fields["type"]
        if not isinstance(key, Mapping):
            return None
        names = key.get("data", key)
        if self._group_id not in (names.get("group"), names.get("groupId")):
            return None
        value = None if fields["value"] is None else fields["value"]["data"]
        if kind == CLASSIC:
            return self._classic(value)
        for prefix in PREFIXES:
            if kind.startswith(prefix):
                return self._epochs(kind.removeprefix(prefix), names.get("memberId", ""), value)
        return None

    def _classic(self, value: Mapping[str, Any] | None) -> MemberDescription | None:
        if value is None:
            self._members, self._generation = {}, None
            return "end", "deleted: by a client, or because it had no members and offsets"
        members = {each["memberId"]: each for each in value["members"]}
        joined, left = sorted(members.keys() - self._members), sorted(self._members.keys() - members)
        is_new, self._members = value["generation"] != self._generation, members
        self._generation = value["generation"]
        changes = [*(f"{each} joined" for each in joined), *(f"{each} left" for each in left)]
        if not members:
            return "abort", "; ".join([f"generation {self._generation}: empty", *changes])
        if not is_new and not changes:
            return None
        has = "; ".join(f"{name} has {assigned(each['assignment'])}" for name, each in members.items())
        count = f"{len(members)} member{'s' * (len(members) != 1)}, {value['protocol']}"
        return "commit", "; ".join([f"generation {self._generation}: {count}", *changes, has])

    def _epochs(self, kind: str, member: str, value: Mapping[str, Any] | None) -> MemberDescription | None:
        match kind:
            case "Metadata":
                return ("end", "deleted") if value is None else ("fence", f"group epoch {value['epoch']}")
            case "MemberMetadata":
                before = self._members.pop(member, None)
                if value is None:
                    return "abort", f"{member} left"
                self._members[member] = value
                reads = ", ".join(value.get("subscribedTopicNames") or ()) or value.get("subscribedTopicRegex") or ""
                reads = f": {reads}" if reads else ""  # members of streams groups have no subscription
                if before is None:
                    return "open", f"{member} joined ({value.get('clientId')}, {value.get('clientHost')}){reads}"
                return ("open", f"{member} changed{reads}") if before != value else None
            case "Topology" if value is not None:
                count = len(value["subtopologies"])
                return "open", f"topology of epoch {value['epoch']}: {count} subtopolog{'y' if count == 1 else 'ies'}"
            case "TargetAssignmentMetadata" if value is not None:
                return "commit", f"assignment of epoch {value['assignmentEpoch']} computed"
            case "CurrentMemberAssignment" if value is not None:
                return self._current(member, value)
            case _:
                return None

    def _current(self, member: str, value: Mapping[str, Any]) -> MemberDescription | None:
        if "activeTasks" in value:
            has, revoked = _tasks(value, ""), _tasks(value, "PendingRevocation")
        else:
            has = self._named(value["assignedPartitions"])
            revoked = self._named(value.get("partitionsPendingRevocation") or ())
        words = f"{member} at epoch {value['memberEpoch']} has {has or 'nothing'}"
        if revoked:
            words += f", and must release {revoked}"
        if self._given.get(member) == words:
            return None
        self._given[member] = words
        return ("open" if value.get("state") == REVOKING else "commit"), words

    def _named(self, partitions: Iterable[Mapping[str, Any]]) -> str:
        found = [
            f"{self._topics.get(str(each['topicId']), each['topicId'])}-{index}"
            for each in partitions
            for index in each["partitions"]
        ]
        return ", ".join(sorted(found))


def _tasks(value: Mapping[str, Any], suffix: str) -> str:
    """Lists a streams group member's tasks as a string, such as `0_2, 1_0 (standby)`."""
    return ", ".join(
        f"{each['subtopologyId']}_{partition}{role}"
        for name, role in (("activeTasks", ""), ("standbyTasks", " (standby)"), ("warmupTasks", " (warm-up)"))
        for each in value.get(f"{name}{suffix}") or ()
        for partition in each["partitions"]
    )


def assigned(decoded: object) -> str:
    """Describes the assignment of a classic group member. Lists the partitions if the member is a consumer."""
    if not isinstance(decoded, Mapping):
        return "an assignment in the protocol's own format"
    found = [f"{each['topic']}-{index}" for each in decoded["assignedPartitions"] for index in each["partitions"]]
    return ", ".join(found) or "nothing"
