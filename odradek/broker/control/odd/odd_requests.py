"""Replaces ordinary responses with odd responses. Fault rules act later, so they also see the odd responses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from odradek.broker.control.odd.odd import Odd, RequestInProgress, WatchedConnection
from odradek.broker.control.odd.odd_logs import leave_hole
from odradek.broker.network.paced_answers import PacedAnswer, cut_at
from odradek.broker.network.request_filter import RequestFilter
from odradek.broker.runtime.replies import ParkedRequest, WrappedRequest
from odradek.protocol.api_facts import API_OF_KEY, facts_of
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import KafkaError
from odradek.protocol.exchange import answer_form, api_and_version, read_request
from odradek.protocol.file_slice import Chunk, in_memory
from odradek.protocol.frames import (
    LENGTH_BYTES,
)
from odradek.protocol.messages.produce_response import ProduceResponse

if TYPE_CHECKING:
    from odradek.broker.api.context import ConnectionInfo
    from odradek.broker.network.connection_host import FrameReceiver
    from odradek.broker.runtime.clock import Timers
    from odradek.broker.serving import ServingBroker
    from odradek.protocol.struct import Message

MAX_RESHAPED_BYTES: Final = 1024 * 1024  # larger Fetch responses are not changed
IDLE_MS: Final = 200


@dataclass(frozen=True, slots=True)
class OddRequest:
    """A request whose response may be odd.

    encoded  the body of the request, without its header
    """

    api: ApiKey
    version: int
    message: Message
    encoded: bytes
    progress: RequestInProgress


class OddRequests(RequestFilter):
    """Replaces the responses to randomly chosen requests with odd responses."""

    def __init__(self, plain: FrameReceiver, odd: Odd, serving: ServingBroker, timers: Timers, node: int) -> None:
        """Creates the filter for one node's requests.

        node  the id of the node that receives the requests. The first node of a cluster always returns the newest
              metadata.
        """
        super().__init__(plain)
        self.odd = odd
        self._broker = serving.broker
        self._dispatcher = serving.dispatcher
        self._timers = timers
        self._is_first = node == serving.broker.config.node_id

    def start(self, frame: memoryview, connection: ConnectionInfo) -> list[Chunk] | ParkedRequest:
        request_key = api_and_version(frame)
        if request_key is None or not connection.is_authenticated:
            return self.plain.start(frame, connection)
        number, version = request_key
        api = API_OF_KEY.get(number)
        if api is None or facts_of(api).is_login or not self._dispatcher.serves(number, version):
            return self.plain.start(frame, connection)
        decoded = read_request(frame)
        message = decoded.message
        answered = self.odd.begin_request(api, decoded.header.client_id, decoded.header.correlation_id)
        request = OddRequest(api, version, message, bytes(frame[decoded.body_at :]), answered)
        watched = self._count_request(connection)
        code = self.odd.passing_error(api, message)
        if code is not None:
            return self.apply_oddities(request, self._dispatcher.refusal(frame, connection, code))
        if self.odd.remove_wait(message):
            frame = decoded.encoded(frame)
        reply = self.plain.start(frame, connection)
        if isinstance(reply, list):
            return self.apply_oddities(request, reply)
        watched.in_flight += 1
        return OddReply(reply, partial(self.apply_oddities, request), watched)

    def _count_request(self, connection: ConnectionInfo) -> WatchedConnection:
        """Counts a request on a connection.

        On the first request, decides at random whether the connection will be closed once it has been idle for IDLE_MS.
        """
        key = connection.connection_id
        watched = self.odd.connections.get(key)
        if watched is None:
            watched = self.odd.connections[key] = WatchedConnection()
            connection.when_closed(lambda: self._forget_connection(key))
            if self.odd.is_chosen("closed idle"):
                self._timers.after(IDLE_MS, lambda: self._close_if_idle(connection, 0))
        watched.requests += 1
        return watched

    def _forget_connection(self, key: int) -> None:
        self.odd.connections.pop(key, None)

    def _close_if_idle(self, connection: ConnectionInfo, request_count: int) -> None:
        watched = self.odd.connections.get(connection.connection_id)
        if watched is None or self.odd.is_over:
            return
        if watched.requests != request_count or watched.in_flight or connection.unsent_bytes():
            requests = watched.requests
            self._timers.after(IDLE_MS, lambda: self._close_if_idle(connection, requests))
            return
        self.odd.count_oddity("closed idle")
        if connection.transport is not None:
            connection.transport.abort()

    def apply_oddities(self, request: OddRequest, answer: list[Chunk]) -> list[Chunk]:
        self.odd.resume(request.progress)
        answer = self._reshape(request, answer)
        if not answer or not self.odd.applies("cut write"):
            return answer
        return PacedAnswer(answer, cut_at(self.odd.random.randrange(1, sum(map(len, answer)))))

    def _reshape(self, request: OddRequest, answer: list[Chunk]) -> list[Chunk]:
        api, version = request.api, request.version
        if not answer or (api is ApiKey.FETCH and sum(map(len, answer)) > MAX_RESHAPED_BYTES):
            return answer
        data = b"".join(in_memory(answer))
        form = answer_form(api.value, version)
        if api is ApiKey.METADATA and not self._is_first:
            position = form.body_at(data, has_length=True)
            request_key = version.to_bytes(2) + request.encoded
            data = data[:position] + self.odd.metadata_before(request_key, data[position:])
        decoded = form.read(data, has_length=True)
        message = decoded.message
        self.odd.reshape(message, request.message)
        if isinstance(message, ProduceResponse):
            self._leave_holes(message)
        again = b"".join(in_memory(form.chunks(decoded.correlation_id, message)))
        body = self.odd.tag(api, version, again[LENGTH_BYTES:])
        return [len(body).to_bytes(LENGTH_BYTES) + body]

    def _leave_holes(self, answer: ProduceResponse) -> None:
        partitions = self._broker.partitions
        for topic in answer.responses:
            for each in topic.partition_responses:
                if each.error_code:
                    continue
                try:
                    named = partitions.get(topic.name, each.index) if topic.name else None
                    partition = named or partitions.get_by_id(topic.topic_id, each.index)
                    leave_hole(self.odd, partition, self._broker.clock.now_ms())
                except KafkaError:  # the partition is offline or was deleted in the meantime
                    continue


class OddReply(WrappedRequest):
    """A parked request whose response may be made odd once it is complete. Implements `ParkedRequest`."""

    def __init__(
        self, reply: ParkedRequest, made_odd: Callable[[list[Chunk]], list[Chunk]], watched: WatchedConnection
    ) -> None:
        super().__init__(reply)
        self.is_done = False
        self._made_odd = made_odd
        self._watched = watched

    def when_done(self, action: Callable[[object], None]) -> None:
        def done(_: object) -> None:
            self._watched.in_flight -= 1
            self.is_done = True
            action(self)

        self._reply.when_done(done)

    def chunks(self) -> list[Chunk]:
        """Returns the response, which may be odd. Raises CloseConnection."""
        return self._made_odd(self._reply.chunks())
