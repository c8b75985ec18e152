"""Handles one Fetch request: reads its partitions, then either responds or waits for more data until the time limit.

wanted partitions → (session) → read each → enough? → answer
                                  ↑          └ no: park → woken by appends or the timer
                                  └──────────────────────┘
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar

from odradek.broker.api.authorized_operations import is_allowed
from odradek.broker.api.context import ConnectionInfo, RequestContext, authorization_error
from odradek.broker.fetch.partition_read import (
    PartitionAnswer,
    PartitionRead,
    failed_read,
    has_nothing_new,
    unknown_partition,
)
from odradek.broker.fetch.sessions import Fetch, FetchPartition, FetchSessions, FinishedFetch, NamedBy, PartitionKey
from odradek.broker.fetch.wait import FetchWait
from odradek.broker.partitions.partition import IsolationLevel, Partition
from odradek.broker.partitions.registry import BrokerParts
from odradek.broker.runtime.slices import Steps, in_slices
from odradek.broker.runtime.waiting import Deferred, in_thread
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.fetch_response import (
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
)
from odradek.storage.disk import WouldBlock

if TYPE_CHECKING:
    from odradek.broker.metadata.image import MetadataImage
    from odradek.protocol.messages.fetch_request import FetchRequest

FIRST_VERSION_WITH_CURRENT_LEADER: Final = 16
# A read that has to access the disk, paired with the requested partition.
ColdRead: TypeAlias = tuple[PartitionRead, FetchPartition]


class FetchBroker(BrokerParts, Protocol):
    """The parts of the broker that a Fetch request needs."""

    @property
    def fetch_sessions(self) -> FetchSessions: ...


def requested_partitions(request: FetchRequest, named_by: NamedBy) -> Sequence[FetchPartition]:
    """Returns the requested partitions. If a partition is listed more than once, only its last entry is used."""
    by_id = named_by is NamedBy.TOPIC_ID
    requested: dict[PartitionKey, FetchPartition] = {}
    for topic in request.topics:
        name: str | bytes = topic.topic_id if by_id else topic.topic
        for partition in topic.partitions:
            current_leader_epoch, last_fetched_epoch = partition.current_leader_epoch, partition.last_fetched_epoch
            requested[name, partition.partition] = FetchPartition(
                name,
                partition.partition,
                partition.fetch_offset,
                partition.partition_max_bytes,
                None if current_leader_epoch < 0 else current_leader_epoch,
                None if last_fetched_epoch < 0 else last_fetched_epoch,
            )
    return list(requested.values())


def forgotten_partitions(request: FetchRequest, named_by: NamedBy) -> Sequence[PartitionKey]:
    by_id = named_by is NamedBy.TOPIC_ID
    return [
        (topic.topic_id if by_id else topic.topic, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]


class PendingFetch:
    """Processes one Fetch request. If too few bytes are available, waits for more before it responds."""

    def __init__(
        self, request: FetchRequest, context: RequestContext, broker: FetchBroker, session_fetch: Fetch
    ) -> None:
        self._context = context
        self._broker = broker
        self._fetch = session_fetch
        replica_id = request.replica_id if request.replica_state is None else request.replica_state.replica_id
        self._is_follower = replica_id >= 0
        self._isolation = IsolationLevel.of(request.isolation_level)
        self._max_bytes = min(request.max_bytes, broker.config.fetch_max_bytes)
        self._meter = context.meter
        if self._meter is not None and self._meter.max_fetched_bytes is not None:
            self._max_bytes = min(self._max_bytes, self._meter.max_fetched_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._max_wait_ms = request.max_wait_ms
        self._must_answer = request.max_wait_ms <= 0
        self._woken: Deferred[None] | None = None  # set while the fetch is waiting
        self._wait: FetchWait | None = None  # set once the fetch has had to wait
        self._answers: list[PartitionAnswer | None] = []  # None for partitions without changes
        self._found: list[Partition] = []
        self._size_bytes = 0
        self._left_bytes = 0
        self._has_error = False  # whether there is an error to report immediately

    async def answer(self) -> FetchResponse:
        """Reads every partition, then either responds or waits for more data and reads again.

        If the client disconnects during the wait, this coroutine is closed and removes everything that it has
        registered.
        """
        try:
            while True:
                self._begin_look()
                while True:
                    reading = in_slices(self._read_partitions())
                    cold = await reading if isinstance(reading, Deferred) else reading
                    if cold is None:
                        break
                    self._add_answer(await self._read_cold(*cold))
                if self._must_answer or self._size_bytes >= self._min_bytes or not self._found or self._has_error:
                    return self._response()
                self._woken = Deferred()
                self._park()
                await self._woken
        finally:
            if self._wait is not None:
                self._end_waiting()

    def _begin_look(self) -> None:
        self._answers = []
        self._found = []
        self._size_bytes = 0
        self._left_bytes = self._max_bytes
        self._has_error = False

    def _read_partitions(self) -> Steps[ColdRead | None]:
        """Reads the partitions that have no answer yet, one per step. Stops at a read that has to access the disk and
        returns that read. Returns None once every partition has an answer."""
        answers, partitions = self._answers, self._fetch.partitions
        while len(answers) < len(partitions):
            requested = partitions[len(answers)]
            try:
                partition = self._find(requested)
            except KafkaError as error:
                self._add_answer(self._not_found(requested, error.code))
            else:
                self._found.append(partition)
                if has_nothing_new(partition, requested):
                    answers.append(None)
                else:
                    cold = self._read(partition, requested)
                    if cold is not None:
                        return cold
            yield
        return None

    def _read(self, partition: Partition, requested: FetchPartition) -> ColdRead | None:
        """Reads immediately if possible and stores the answer. Otherwise returns the read, which the caller must run
        in a thread."""
        read = self._partition_read(partition, requested)
        try:
            answer = read.check() or read.read()
        except KafkaError as error:
            answer = self._error_answer(requested, error.code)
        except WouldBlock:
            return read, requested
        self._add_answer(answer)
        return None

    async def _read_cold(self, read: PartitionRead, requested: FetchPartition) -> PartitionAnswer:
        while True:
            try:
                result = await in_thread(self._broker.workers, read.read_cold)
                if not read.is_overtaken:
                    return read.answer(result)
            except KafkaError as error:
                if not read.is_overtaken:
                    return self._error_answer(requested, error.code)

    def _partition_read(self, partition: Partition, requested: FetchPartition) -> PartitionRead:
        return PartitionRead(
            partition,
            requested,
            isolation=self._isolation,
            max_bytes=min(requested.max_bytes, self._left_bytes),
            min_one_batch=self._size_bytes == 0,
            is_sent=self._context.connection.sends_files,
        )

    def _add_answer(self, answer: PartitionAnswer) -> None:
        self._answers.append(answer)
        if answer.ends_waiting:
            self._has_error = True
        if answer.size_bytes:
            self._size_bytes += answer.size_bytes
            self._left_bytes = max(0, self._left_bytes - answer.size_bytes)

    def _find(self, requested: FetchPartition) -> Partition:
        partitions = self._broker.partitions
        if self._is_follower:  # this broker has no followers
            if not is_allowed(self._context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
                raise authorization_error(ResourceType.TOPIC, self._context.api_key)
            if isinstance(requested.topic, bytes):  # both calls raise an error if the partition does not exist
                partitions.get_by_id(requested.topic, requested.index)
            else:
                partitions.get(requested.topic, requested.index)
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if isinstance(requested.topic, bytes):
            try:
                partition = partitions.get_by_id(requested.topic, requested.index)
            except KafkaError as error:
                if error.code is ErrorCode.UNKNOWN_TOPIC_ID:
                    raise self._topic_id_error(requested) from None
                requested.known_name = self._broker.metadata.image.topics_by_id[requested.topic].name
                raise
            requested.known_name = partition.topic
            self._context.require(Operation.READ, ResourceType.TOPIC, partition.topic)
            return partition
        self._context.require(Operation.READ, ResourceType.TOPIC, requested.topic)
        return partitions.get(requested.topic, requested.index)

    def _topic_id_error(self, requested: FetchPartition) -> KafkaError:
        """Returns the error for a topic id that does not exist.

        If the session has found the topic before, the error shows whether the topic was deleted or recreated. A client
        that switches to the new id of a recreated topic has to start from the beginning of that topic.
        """
        if requested.known_name is None:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        self._context.require(Operation.READ, ResourceType.TOPIC, requested.known_name)
        is_again = self._broker.metadata.image.has_partition((requested.known_name, requested.index))
        return KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID if is_again else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _not_found(self, requested: FetchPartition, code: ErrorCode) -> PartitionAnswer:
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return failed_read(requested.index, code, self._leader(requested))
        if code in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.INCONSISTENT_TOPIC_ID):
            return failed_read(requested.index, code, None)
        return unknown_partition(requested.index, code)

    def _error_answer(self, requested: FetchPartition, code: ErrorCode) -> PartitionAnswer:
        current_leader = self._leader(requested) if code is ErrorCode.FENCED_LEADER_EPOCH else None
        return failed_read(requested.index, code, current_leader)

    def _leader(self, requested: FetchPartition) -> LeaderIdAndEpoch | None:
        if self._context.api_version < FIRST_VERSION_WITH_CURRENT_LEADER:
            return None
        image = self._broker.metadata.image
        if isinstance(requested.topic, bytes):
            partition = image.topics_by_id[requested.topic].partitions[requested.index]
        else:
            partition = image.topics[requested.topic].partitions[requested.index]
        leader_id = -1 if partition.leader is None else partition.leader
        return LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=partition.leader_epoch)

    # Waiting for more data.

    def _park(self) -> None:
        missing_bytes = self._min_bytes - self._size_bytes
        if self._isolation is IsolationLevel.READ_COMMITTED:
            missing_bytes = 1  # a marker is small, but it may make many earlier records readable
        if self._wait is not None:
            self._wait.still_missing(missing_bytes)
            return
        self._wait = FetchWait(
            self._found,
            missing_bytes=missing_bytes,
            max_wait_ms=self._max_wait_ms,
            timers=self._broker.timers,
            look=self._wake,
            time_is_over=self._time_is_over,
        )

    def _wake(self) -> None:
        woken, self._woken = self._woken, None
        if woken is None:  # the fetch is still reading, and will respond afterwards without reading again
            self._must_answer = True
        else:
            woken.resolve(None)

    def _time_is_over(self) -> None:
        self._must_answer = True
        self._wake()

    def _end_waiting(self) -> None:
        wait, self._wait = self._wait, None  # breaks the reference cycle between the wait and this fetch
        if wait is not None:
            wait.end()

    def _response(self) -> FetchResponse:
        if self._meter is not None:
            preview = self._fetch.preview(self._answers)
            if self._meter.throttles_fetch(self._response_of(preview, is_sent=False)):
                return FetchResponse(error_code=preview.error_code.value, session_id=preview.session_id)
        return self._response_of(self._fetch.finish(self._answers, self._broker.clock.now_ms()), is_sent=True)

    def _response_of(self, finished: FinishedFetch, *, is_sent: bool) -> FetchResponse:
        partitions, answers = self._fetch.partitions, self._answers
        responses: list[FetchableTopicResponse] = []
        leaders: set[int] = set()
        named: str | bytes | None = None
        for position in finished.sent:
            answer = answers[position]
            assert answer is not None
            data = answer.data
            if is_sent and answer.partition is not None:
                answer.partition.bytes_out += answer.size_bytes
            if partitions[position].topic != named:
                named = partitions[position].topic
                responses.append(topic_response(named))
            responses[-1].partitions.append(data)
            if data.current_leader is not None:
                leaders.add(data.current_leader.leader_id)
        return FetchResponse(
            error_code=finished.error_code.value,
            session_id=finished.session_id,
            responses=responses,
            node_endpoints=(
                node_endpoints(NodeEndpoint, self._broker.metadata.image, leaders, self._context.connection)
                if leaders
                else []
            ),
        )


E_co = TypeVar("E_co", covariant=True)


class EndpointForm(Protocol[E_co]):
    """A response's own NodeEndpoint class. Every response that names leaders defines one."""

    def __call__(self, *, node_id: int, host: str, port: int, rack: str | None) -> E_co: ...


def node_endpoints(
    form: EndpointForm[E_co], image: MetadataImage, node_ids: Iterable[int], connection: ConnectionInfo
) -> list[E_co]:
    """Returns the addresses at which this client can reach the brokers. Omits brokers that are not registered or do not
    have the client's listener."""
    endpoints = []
    for node_id in node_ids:
        registration = image.brokers.get(node_id)
        endpoint = None if registration is None else connection.endpoint(registration.endpoints)
        if registration is not None and endpoint is not None:
            host, port = endpoint
            endpoints.append(form(node_id=node_id, host=host, port=port, rack=registration.rack))
    return endpoints


def topic_response(named: str | bytes) -> FetchableTopicResponse:
    if isinstance(named, bytes):
        return FetchableTopicResponse(topic_id=named)
    return FetchableTopicResponse(topic=named)
