"""What happened to a group, as its records in `__consumer_offsets` have it: who joined and left, when it rebalanced,
and what members were given. Compaction leaves the last record of each key, so that old steps go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from odradek.broker.control.page.scan import records_naming
from odradek.broker.control.page.served import SHOWN
from odradek.protocol.decoded.internal_records import group_fields
from odradek.protocol.errors import MalformedMessage

if TYPE_CHECKING:
    from odradek.broker.control.page.json_value import JsonValue

OFFSET_COMMITS = (b"\x00\x00", b"\x00\x01")  # how their keys begin: they are many, and no part of this
CLASSIC = "GroupMetadata"
PREFIXES = ("ConsumerGroup", "ShareGroup", "StreamsGroup")
REVOKING = 1  # a state of a member: it has not given up what another waits for
Step = tuple[str, str]  # kind, for the colour; what happened


def group_history(portions: Iterable[bytes], group_id: str, topics: Mapping[str, str]) -> list[JsonValue]:
    """The last steps, oldest first. topics: names by topic ids, as the decoder writes these."""
    history = History(group_id, topics)
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


class History:
    """Each record against those before it."""

    def __init__(self, group_id: str, topics: Mapping[str, str]) -> None:
        self._group_id = group_id
        self._topics = topics
        self._members: dict[str, Any] = {}  # what each subscribes to, or has
        self._generation: int | None = None
        self._given: dict[str, str] = {}

    def step(self, fields: Mapping[str, Any]) -> Step | None:
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

    def _classic(self, value: Mapping[str, Any] | None) -> Step | None:
        if value is None:
            self._members, self._generation = {}, None
            return "end", "deleted: without members and offsets, or by a client"
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

    def _epochs(self, kind: str, member: str, value: Mapping[str, Any] | None) -> Step | None:
        match kind:
            case "Metadata":
                return ("end", "deleted") if value is None else ("fence", f"group epoch {value['epoch']}")
            case "MemberMetadata":
                before = self._members.pop(member, None)
                if value is None:
                    return "abort", f"{member} left"
                self._members[member] = value
                reads = ", ".join(value.get("subscribedTopicNames") or ()) or value.get("subscribedTopicRegex") or ""
                if before is None:
                    return "open", f"{member} joined ({value.get('clientId')}, {value.get('clientHost')}): {reads}"
                return ("open", f"{member} changed: {reads}") if before != value else None
            case "TargetAssignmentMetadata" if value is not None:
                return "commit", f"assignment of epoch {value['assignmentEpoch']} computed"
            case "CurrentMemberAssignment" if value is not None:
                return self._current(member, value)
            case _:
                return None

    def _current(self, member: str, value: Mapping[str, Any]) -> Step | None:
        words = f"{member} at epoch {value['memberEpoch']} has {self._named(value['assignedPartitions'])}"
        if revoked := value.get("partitionsPendingRevocation"):
            words += f", and is to give up {self._named(revoked)}"
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
        return ", ".join(sorted(found)) or "nothing"


def assigned(said: object) -> str:
    """What a member of a classic group was given, where it is a consumer."""
    if not isinstance(said, Mapping):
        return "what its protocol says"
    found = [f"{each['topic']}-{index}" for each in said["assignedPartitions"] for index in each["partitions"]]
    return ", ".join(found) or "nothing"
