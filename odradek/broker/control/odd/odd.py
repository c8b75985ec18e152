"""Applies oddities to responses. An oddity is a response that the protocol allows but Kafka rarely sends.

Each oddity has a name and a percentage. The same seed always produces the same oddities.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any, Final

from odradek.protocol.api_facts import facts_of
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.batch_header import batches
from odradek.protocol.codec import is_flexible
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages import response_class
from odradek.protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from odradek.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from odradek.protocol.messages.fetch_request import FetchRequest
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.protocol.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.messages.produce_request import ProduceRequest
from odradek.protocol.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from odradek.protocol.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest
from odradek.protocol.messages.streams_group_heartbeat_response import (
    Status,
    StreamsGroupHeartbeatResponse,
    TaskIds,
)
from odradek.protocol.schema import load

if TYPE_CHECKING:
    from odradek.broker.metadata.records import Decision
    from odradek.protocol.struct import Message

ODDITIES: Final[Mapping[str, tuple[int, str]]] = {  # default percentage and description, which `make docs` also uses
    "unknown tags": (20, "an answer of a flexible version ends with an unknown tagged field"),
    "other order": (
        30,
        (
            "a list is in a different order: brokers, topics and partitions (Metadata), aborted transactions (Fetch),"
            " or subtopologies"
        ),
    ),
    "throttled": (5, "ThrottleTimeMs is 1 to 5, although no quota is exceeded"),
    "passing error": (
        5,
        (
            "a coordinator, or the leader for Produce and ListOffsets, answers with a retriable error and does nothing"
            " else"
        ),
    ),
    "early fetch": (20, "a Fetch is answered immediately, even if there are no records"),
    "empty fetch": (10, "a Fetch is answered without records, although the log has records to read"),
    "cut batch": (20, "the last of several batches is incomplete, as at the size limit of a Fetch"),
    "null": (
        30,
        "an empty field is null: aborted transactions, the metadata of an offset, or an error message without an error",
    ),
    "no leader": (5, "Metadata has LEADER_NOT_AVAILABLE for one partition"),
    "other address": (20, "Metadata gives the brokers' host as 127.0.0.1 instead of localhost, or the other way round"),
    "unknown APIs": (50, "ApiVersions lists an API key that does not exist"),
    "higher versions": (30, "ApiVersions lists versions of some APIs that are newer than those of Kafka 4.4"),
    "high producer epoch": (50, "a new producer without a transactional id begins with an epoch near 32,766"),
    "high group epoch": (50, "a new group begins with an epoch or a generation near 2²⁴"),
    "high producer id": (50, "a new producer gets an id beyond 2³¹"),
    "high leader epoch": (50, "the leader epoch of a new partition does not begin at 0"),
    "high offset": (50, "the log of a new topic begins at an offset beyond 2³¹"),
    "hole": (
        5,
        (
            "the produced records are followed by an empty batch, as after compaction, and by an abort marker without"
            " records"
        ),
    ),
    "negative session id": (50, "the id of a fetch session is negative (KIP-227)"),
    "long member id": (50, "a new member whose id is chosen by the broker gets an id of 255 characters"),
    "old metadata": (20, "a node other than the first returns outdated Metadata, from before the last change"),
    "cut write": (20, "an answer is sent in two writes, which are split at a random byte"),
    "heartbeat interval": (
        30,
        (
            "a member of a group of KIP-848, KIP-932 or KIP-1071 gets a shorter heartbeat interval, at least half of"
            " the usual one"
        ),
    ),
    "same tasks": (20, "a member of a streams group is sent its tasks again, although they have not changed"),
    "assignment delayed": (
        20,
        "a member of a streams group gets the status ASSIGNMENT_DELAYED in an answer without tasks",
    ),
    "late internal topics": (
        50,
        "the internal topics of a streams group are created only after the second heartbeat, as by a slow controller",
    ),
    "closed idle": (1, "a connection is closed after 200 ms without a request"),
}
PERCENT: Final = {name: percent for name, (percent, _) in ODDITIES.items()}
UNKNOWN_TAG: Final = b"\x01\x8f\x4e\x03odd"  # one tagged field with the number 9999 and three bytes
MAX_THROTTLE_MS: Final = 5
ADDRESSES: Final[Mapping[str, str]] = {"localhost": "127.0.0.1", "127.0.0.1": "localhost"}
FIRST_UNKNOWN_API: Final = 20_000
FIRST_PRODUCER_EPOCHS: Final = (32_700, 32_766)
FIRST_HIGH_PRODUCER_ID: Final = 2**40  # added to ordinary producer ids, which are smaller, so that the sums are unique
MAX_FIRST_LEADER_EPOCH: Final = 1_000_000
# The epochs are below 2²⁴ because librdkafka 2.16 reads the member id in a ConsumerGroupHeartbeat up to the next zero
# byte. The epoch follows the member id, and an epoch of 2²⁴ or more does not begin with a zero byte. KIP-848 consumers
# that use librdkafka would then fail.
FIRST_GROUP_EPOCHS: Final = (2**24 - 2_000, 2**24 - 1_000)
MEMBER_ID_CHARACTERS: Final = 255
MAX_METADATA_ANSWERS: Final = 100
MAX_METADATA_BYTES: Final = 64 * 1024
NO_NODE: Final = -1
MAX_RECENT_EVENTS: Final = 20
MAX_MEMBERS: Final = 1_000
MAX_TASKS: Final = 1_000  # the tasks of a member with more tasks are not remembered
STALE_TOPOLOGY, ASSIGNMENT_DELAYED = 0, 5  # statuses of streams groups
DELAYED: Final = "Assignment delayed due to the configured assignment interval."
MAX_RANDOM_SOURCES: Final = 10_000
# Random decisions about these oddities do not belong to any request. They depend only on the seed and on the number of
# earlier decisions about the same oddity.
STATE_ODDITIES: Final = frozenset(
    {
        "high group epoch",
        "high leader epoch",
        "high offset",
        "high producer id",
        "hole",
        "late internal topics",
        "long member id",
        "negative session id",
    }
)


@dataclass(slots=True)
class WatchedConnection:
    """Counts the requests on a connection.

    requests   number of requests so far
    in_flight  number of requests that are not answered yet
    """

    requests: int = 0
    in_flight: int = 0


@dataclass(slots=True)
class MetadataHistory:
    """The two most recent responses to a Metadata request.

    before  the response that `newest` has replaced
    """

    newest: bytes
    before: bytes


@dataclass(frozen=True, slots=True)
class SentTasks:
    """The tasks that were last sent to a streams group member."""

    active: list[TaskIds]
    standby: list[TaskIds]
    warmup: list[TaskIds]


@dataclass(frozen=True, slots=True)
class RequestInProgress:
    """A request that is being answered.

    random  generator for all random decisions about this request. It depends only on the seed, the client id, the API,
            and the number of this client's earlier requests to this API. Other clients and requests do not influence
            it, so a test that sends the same requests gets the same responses.
    """

    api: ApiKey
    client_id: str | None
    correlation_id: int
    random: Random


@dataclass(frozen=True, slots=True)
class OddEvent:
    """One application of an oddity. `request` is None if the oddity was applied independently of any request."""

    name: str
    request: RequestInProgress | None

    def as_json(self) -> dict[str, object]:
        request = self.request
        if request is None:
            return {"name": self.name}
        return {
            "name": self.name,
            "api": request.api.kafka_name,
            "client_id": request.client_id,
            "correlation_id": request.correlation_id,
        }


@dataclass(slots=True)
class Odd:
    """The odd responses of one cluster.

    random       generator for the current random decisions
    percent      for each oddity, the percentage of cases in which it is applied
    done         for each oddity, the number of times it has been applied so far
    recent       the oddities that were applied most recently
    connections  open connections by id
    metadata     responses to Metadata requests from all nodes except the first, by version and request
    tasks        tasks of streams group members, by group and member id
    is_over      whether the cluster now uses another seed, or no longer sends odd responses
    """

    seed: int
    random: Random
    percent: Mapping[str, int]
    done: dict[str, int]
    recent: deque[OddEvent] = field(default_factory=lambda: deque(maxlen=MAX_RECENT_EVENTS))
    connections: dict[int, WatchedConnection] = field(default_factory=dict)
    metadata: dict[bytes, MetadataHistory] = field(default_factory=dict)
    tasks: dict[tuple[str, str], SentTasks] = field(default_factory=dict)
    is_over: bool = False
    _request: RequestInProgress | None = None
    _counts: dict[tuple[object, ...], int] = field(default_factory=dict)

    @classmethod
    def of(cls, seed: int, percent: Mapping[str, int] = PERCENT) -> Odd:
        """Creates the odd responses for a seed.

        percent  percentages that override the defaults for these oddities
        """
        all_of_them = {**PERCENT, **percent}
        return cls(seed, Random(seed), all_of_them, dict.fromkeys(all_of_them, 0))

    def as_json(self) -> dict[str, object]:
        oddities = [{"name": name, "percent": self.percent[name], "done": done} for name, done in self.done.items()]
        return {"seed": self.seed, "oddities": oddities, "recent": [event.as_json() for event in self.recent]}

    def begin_request(self, api: ApiKey, client_id: str | None, correlation_id: int) -> RequestInProgress:
        """Begins a request. Subsequent random decisions belong to this request."""
        random = self._source("request", client_id, api.value)
        request = RequestInProgress(api, client_id, correlation_id, random)
        self.resume(request)
        return request

    def resume(self, request: RequestInProgress) -> None:
        """Resumes a request. Subsequent random decisions belong to this request again."""
        self._request, self.random = request, request.random

    def _source(self, *key: object) -> Random:
        """Returns a new generator that depends on the seed, the key, and the number of earlier calls for the key."""
        key = key if key in self._counts or len(self._counts) < MAX_RANDOM_SOURCES else key[:1]
        count = self._counts[key] = self._counts.get(key, 0) + 1
        return Random(f"{self.seed} {key} {count}")

    def count_oddity(self, name: str) -> None:
        """Counts an oddity that was applied and adds it to `recent`."""
        self.done[name] += 1
        self.recent.append(OddEvent(name, self._request))

    def is_chosen(self, name: str) -> bool:
        return self.random.random() * 100 < self.percent[name]

    def passing_error(self, api: ApiKey, request: Message) -> ErrorCode | None:
        """Decides whether to refuse a request with a retriable error. Returns the error, or None to handle the request
        normally.

        Produce requests without a response (acks=0) are never refused.
        """
        codes = facts_of(api).passing_codes
        if isinstance(request, ProduceRequest) and request.acks == 0:
            return None
        if not codes or not self.is_chosen("passing error"):
            return None
        self.count_oddity("passing error")
        return self.random.choice(codes)

    def remove_wait(self, request: Message) -> bool:
        """Decides whether a Fetch request returns without waiting for records. If so, changes the request and returns
        True."""
        if not isinstance(request, FetchRequest) or not request.max_wait_ms or not self.is_chosen("early fetch"):
            return False
        request.max_wait_ms = 0
        self.count_oddity("early fetch")
        return True

    def applies(self, name: str) -> bool:
        """Decides at random whether to apply this oddity, and counts it if so."""
        if name in STATE_ODDITIES:
            self.random = self._source(name)
        if not self.is_chosen(name):
            return False
        self.count_oddity(name)
        return True

    def member_id(self, plain: str) -> str:
        """Returns the id to give to a new member instead of `plain`."""
        return plain.ljust(MEMBER_ID_CHARACTERS, "~") if self.applies("long member id") else plain

    def first_epoch(self) -> int:
        """Returns the number to add to the first epoch or generation of a new group."""
        return self.random.randint(*FIRST_GROUP_EPOCHS) if self.applies("high group epoch") else 0

    def internal_topics_delay_ms(self, heartbeat_interval_ms: int) -> int:
        """Returns the delay before internal topics are created. The delay is 0, or ends after the member's next
        heartbeat."""
        return heartbeat_interval_ms * 3 // 2 if self.applies("late internal topics") else 0

    def session_id(self, plain: int) -> int:
        return -plain if self.applies("negative session id") else plain

    def producer_id(self, plain: int) -> int:
        return plain + FIRST_HIGH_PRODUCER_ID if self.applies("high producer id") else plain

    def adapt_decision(self, decision: Decision[Any]) -> Decision[Any]:
        """Changes the first leader epochs of new partitions in a decision."""
        for record in decision.records:
            if isinstance(record, PartitionRecord) and self.applies("high leader epoch"):
                record.leader_epoch = self.random.randint(1, MAX_FIRST_LEADER_EPOCH)
        return decision

    def reshape(self, answer: Message, request: Message | None = None) -> None:
        """Applies oddities at random to a response.

        request  the request being answered; needed for InitProducerId and StreamsGroupHeartbeat
        """
        if isinstance(answer, MetadataResponse):
            self._reshape_metadata(answer)
        elif isinstance(answer, FetchResponse):
            self._reshape_fetch(answer)
        elif isinstance(answer, ApiVersionsResponse):
            self._reshape_versions(answer)
        elif isinstance(answer, ConsumerGroupHeartbeatResponse | ShareGroupHeartbeatResponse):
            self._reshape_interval(answer)
        elif isinstance(answer, StreamsGroupHeartbeatResponse):
            self._reshape_interval(answer)
            if isinstance(request, StreamsGroupHeartbeatRequest):
                self._reshape_tasks(answer, request)
        elif isinstance(answer, FindCoordinatorResponse):
            coordinators: list[FindCoordinatorResponse | Coordinator] = [answer, *answer.coordinators]
            said = [each for each in coordinators if each.error_code == 0]
            if said and self.applies("null"):
                for each in said:
                    each.error_message = None
        elif isinstance(answer, OffsetFetchResponse):
            self._reshape_offsets(answer)
        elif isinstance(answer, InitProducerIdResponse) and isinstance(request, InitProducerIdRequest):
            # This change is safe, since a log accepts any epoch of an unknown producer id, and idempotent producers
            # without a transactional id increase their epoch themselves.
            is_new = answer.error_code == 0 and request.transactional_id is None and answer.producer_epoch == 0
            if is_new and self.applies("high producer epoch"):
                answer.producer_epoch = self.random.randint(*FIRST_PRODUCER_EPOCHS)
        if getattr(answer, "throttle_time_ms", None) == 0 and self.applies("throttled"):
            setattr(answer, "throttle_time_ms", self.random.randint(1, MAX_THROTTLE_MS))  # noqa: B010

    def _reshape_interval(
        self, answer: ConsumerGroupHeartbeatResponse | ShareGroupHeartbeatResponse | StreamsGroupHeartbeatResponse
    ) -> None:
        interval_ms = answer.heartbeat_interval_ms
        if answer.error_code == 0 and interval_ms > 1 and self.applies("heartbeat interval"):
            answer.heartbeat_interval_ms = self.random.randint((interval_ms + 1) // 2, interval_ms - 1)

    def _reshape_tasks(self, answer: StreamsGroupHeartbeatResponse, request: StreamsGroupHeartbeatRequest) -> None:
        """Randomly changes the tasks and statuses in a response to a streams group member.

        Repeating the same tasks is safe, because a broker sends every change to a member's tasks.
        """
        key = request.group_id, request.member_id
        active, standby, warmup = answer.active_tasks, answer.standby_tasks, answer.warmup_tasks
        if answer.error_code or request.member_epoch < 0:
            self.tasks.pop(key, None)
        elif active is not None and standby is not None and warmup is not None:
            self.tasks.pop(key, None)
            if sum(len(each.partitions) for each in (*active, *standby, *warmup)) <= MAX_TASKS:
                self.tasks[key] = SentTasks(active, standby, warmup)
            if len(self.tasks) > MAX_MEMBERS:
                del self.tasks[next(iter(self.tasks))]
            if max(map(len, (active, standby, warmup))) > 1 and self.applies("other order"):
                for each in (active, standby, warmup):
                    self.random.shuffle(each)
        else:
            known = self.tasks.get(key)
            if known is not None and self.applies("same tasks"):
                answer.active_tasks, answer.standby_tasks, answer.warmup_tasks = (
                    known.active,
                    known.standby,
                    known.warmup,
                )
            elif all(each.status_code == STALE_TOPOLOGY for each in answer.status or ()) and self.applies(
                "assignment delayed"
            ):
                delayed = Status(status_code=ASSIGNMENT_DELAYED, status_detail=DELAYED)
                answer.status = [*(answer.status or ()), delayed]

    def _reshape_offsets(self, answer: OffsetFetchResponse) -> None:
        partitions: list[OffsetFetchResponsePartition | OffsetFetchResponsePartitions] = []
        partitions += (each for topic in answer.topics for each in topic.partitions)
        partitions += (each for group in answer.groups for topic in group.topics for each in topic.partitions)
        empty = [each for each in partitions if each.metadata == ""]
        if empty and self.applies("null"):
            for each in empty:
                each.metadata = None

    def _reshape_versions(self, answer: ApiVersionsResponse) -> None:
        if answer.error_code:
            return
        offered = {each.api_key: each for each in answer.api_keys}
        raised = [offered[api.value] for api in ApiKey if facts_of(api).may_be_raised and api.value in offered]
        if raised and self.applies("higher versions"):
            for each in raised:
                if each.max_version == response_versions(each.api_key):
                    each.max_version += self.random.randint(1, 3)
        if self.applies("unknown APIs"):
            number = FIRST_UNKNOWN_API + self.random.randrange(100)
            row = ApiVersion(api_key=number, min_version=0, max_version=self.random.randrange(10))
            answer.api_keys.insert(self.random.randrange(len(answer.api_keys) + 1), row)

    def metadata_before(self, request: bytes, answer: bytes) -> bytes:
        """Decides whether to answer a Metadata request with the response that was valid before the last change.

        Returns the older response, or `answer`. The request and the responses are encoded.
        """
        history = self.metadata.pop(request, None) or MetadataHistory(answer, answer)
        if history.newest != answer:
            history.newest, history.before = answer, history.newest
        if len(answer) <= MAX_METADATA_BYTES:
            self.metadata[request] = history
        if len(self.metadata) > MAX_METADATA_ANSWERS:
            del self.metadata[next(iter(self.metadata))]
        return history.before if history.before != answer and self.applies("old metadata") else answer

    def _reshape_metadata(self, answer: MetadataResponse) -> None:
        if self.applies("other order"):
            self.random.shuffle(answer.brokers)
            self.random.shuffle(answer.topics)
            for topic in answer.topics:
                self.random.shuffle(topic.partitions)
        led = [each for topic in answer.topics for each in topic.partitions if each.error_code == 0]
        if led and self.applies("no leader"):
            one = self.random.choice(led)
            one.error_code, one.leader_id = ErrorCode.LEADER_NOT_AVAILABLE.value, NO_NODE
        moved = [each for each in answer.brokers if each.host in ADDRESSES]
        if moved and self.applies("other address"):
            for broker in moved:
                broker.host = ADDRESSES[broker.host]

    def _reshape_fetch(self, answer: FetchResponse) -> None:
        partitions = [each for topic in answer.responses for each in topic.partitions]
        aborted = [each for each in partitions if each.aborted_transactions is not None]
        several = [each for each in aborted if len(each.aborted_transactions or ()) > 1]
        if several and self.applies("other order"):
            for each in several:
                self.random.shuffle(each.aborted_transactions or [])
        none = [each for each in aborted if not each.aborted_transactions]
        if none and self.applies("null"):
            for each in none:
                each.aborted_transactions = None
        full = [each for each in partitions if each.records]
        if full and self.applies("empty fetch"):
            for each in full:
                each.records = b""
            return
        for each in full:
            records = b"".join(each.records) if isinstance(each.records, list) else bytes(each.records or b"")
            starts = [position for position, _ in batches(records)]
            if len(starts) > 1 and self.applies("cut batch"):
                each.records = records[: self.random.randrange(starts[-1] + 1, len(records))]

    def tag(self, api: ApiKey, version: int, body: bytes) -> bytes:
        """Decides at random whether to add an unknown tagged field to an encoded response. Returns the response."""
        if not ends_in_tag_count(api, version) or not self.is_chosen("unknown tags"):
            return body
        self.count_oddity("unknown tags")
        return body[:-1] + UNKNOWN_TAG


@cache
def response_versions(number: int) -> int:
    """Returns the highest version of an API in Kafka 4.4."""
    return load(response_class(number).__module__.rpartition(".")[2]).versions.highest or 0


@cache
def ends_in_tag_count(api: ApiKey, version: int) -> bool:
    """Returns whether the last byte of a response is its number of tagged fields. This requires a flexible version, and
    a schema without tagged fields at the top level."""
    answer_class = response_class(api.value)
    fields = load(answer_class.__module__.rpartition(".")[2]).fields
    return is_flexible(answer_class, version) and all(field.tag is None for field in fields)
