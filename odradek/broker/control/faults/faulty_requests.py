"""Applies a cluster's rules to its nodes' requests and connections."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from odradek.broker.api.error_replies import partition_errors
from odradek.broker.control.faults.edits import EditNotApplied, apply_edits
from odradek.broker.control.faults.partition_errors import keep_only, leave_out, put_in_place
from odradek.broker.control.faults.rules import Action, Occurrence, Point
from odradek.broker.control.faults.sightings import named_in, places_in
from odradek.broker.network.paced_answers import PacedAnswer, pieces_at_rate
from odradek.broker.network.request_filter import RequestFilter
from odradek.broker.produce.request import WITHOUT_LOG_START
from odradek.broker.runtime.replies import CloseConnection, ParkedRequest
from odradek.protocol.api_facts import API_OF_KEY, facts_of
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import encode
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from odradek.protocol.exchange import AnswerForm, answer_form, api_and_version, read_request
from odradek.protocol.file_slice import Chunk, in_memory
from odradek.protocol.frames import KEY_AND_VERSION
from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.protocol.struct import Message
from odradek.system.sockets import NO_LINGERING

if TYPE_CHECKING:
    from odradek.broker.api.context import ConnectionInfo
    from odradek.broker.control.faults.rules import Rules
    from odradek.broker.network.connection_host import FrameReceiver
    from odradek.broker.serving import ServingBroker
    from odradek.protocol.struct import Struct

log = logging.getLogger("odradek.control")

FUTURE_VERSION = 0x7FFF
CODES = {code.value: code for code in ErrorCode}


class FaultyRequests(RequestFilter):
    """Applies a cluster's rules to one node's new connections and requests."""

    def __init__(self, plain: FrameReceiver, rules: Rules, serving: ServingBroker, node: int) -> None:
        super().__init__(plain)
        self.node = node
        self.rules = rules
        self.serving = serving
        self._doomed: set[int] = set()  # ids of connections that will be cut in the next turn of the event loop

    def connected(self, connection: ConnectionInfo) -> None:
        super().connected(connection)
        about = {"listener": connection.listener, "node": self.node, "connection": connection.connection_id}
        action = self.rules.action(Point.ACCEPTED, Occurrence(None, connection_facts=about))
        if action.disconnects:
            self._doomed.add(connection.connection_id)
            self.serving.broker.loop.call_soon(self._cut, connection, action.resets)

    def _cut(self, connection: ConnectionInfo, resets: bool) -> None:
        self._doomed.discard(connection.connection_id)
        cut(connection, resets)

    def start(self, frame: memoryview, connection: ConnectionInfo) -> list[Chunk] | ParkedRequest:
        if connection.connection_id in self._doomed:  # the first request may arrive before the connection is cut
            raise CloseConnection("a fault rule closes the connection")
        occurrence = self._occurrence(frame, connection)
        if occurrence is None:
            return self.plain.start(frame, connection)
        return FaultyExchange(self, memoryview(bytearray(frame)), connection, occurrence).start()

    def _occurrence(self, frame: memoryview, connection: ConnectionInfo) -> Occurrence | None:
        """Decodes the request for the rules. Returns None if no rule can match the request."""
        head = api_and_version(frame)
        if head is None:
            return None
        number, version = head
        api = API_OF_KEY.get(number)
        if api is None or not any(rule.may_match(api, version) for rule in self.rules.by_name.values()):
            return None
        if not self.serving.dispatcher.serves(number, version):
            return None
        request = read_request(frame)
        message = request.message
        about = {
            "client_id": request.header.client_id,
            "software": connection.client_software_name,
            "principal": connection.principal,
            "connection": connection.connection_id,
            "listener": connection.listener,
            "node": self.node,
        }
        places = places_in(message, self.topic_named)
        return Occurrence(api, version, message, about, named_in(message), places, request.body_at)

    def set_log_start(self, refusal: Message) -> None:
        """Sets the log start offsets in an error response to a Produce request. Kafka sets these offsets too, and
        clients rely on them."""
        if not isinstance(refusal, ProduceResponse):
            return
        for topic in refusal.responses:
            name = topic.name or self.topic_named(topic.topic_id)
            for answer in topic.partition_responses:
                code = CODES.get(answer.error_code)
                if name is None or code is None or code in WITHOUT_LOG_START:
                    continue
                with suppress(KafkaError):
                    answer.log_start_offset = self.serving.broker.partitions.get(
                        name, answer.index
                    ).log.log_start_offset

    def topic_named(self, topic_id: bytes) -> str | None:
        topic = self.serving.broker.metadata.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name


def cut(connection: ConnectionInfo, resets: bool) -> None:
    """Closes a connection immediately, without sending buffered bytes.

    resets  True to send a TCP RST; False to send a FIN
    """
    transport = connection.transport
    if transport is None:
        return
    if resets:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGERING)
    transport.abort()


class FaultyExchange:
    """A request that rules may act on.

    The request passes through these states: received → (pause) → dispatched → applied → (pause) → replying → (pause) →
    answered. A pause is a rule's delay or hold.
    """

    overlapping_key = None
    waits_for_others = True

    def __init__(
        self, host: FaultyRequests, frame: memoryview, connection: ConnectionInfo, occurrence: Occurrence
    ) -> None:
        self.size_bytes = len(frame)
        self.is_done = False
        self._host = host
        self._frame = frame
        self._connection = connection
        self._occurrence = occurrence
        self._reply: ParkedRequest | None = None
        self._outcome: list[Chunk] | CloseConnection = []
        self._on_done: Callable[[object], None] | None = None
        self._is_dispatched = False
        self._stop_waiting: Callable[[], None] | None = None
        self._refused: Struct | None = None  # response with errors for the partitions refused by a rule
        self._bytes_per_s: int | None = None  # rate at which the response is sent, set by the last rule that has a rate

    def start(self) -> list[Chunk] | ParkedRequest:
        """Starts the exchange and returns the response if it is ready. Raises MalformedMessage or CloseConnection."""
        self._apply_rules_at(Point.RECEIVED, self._dispatch)
        return self.chunks() if self.is_done else self

    def when_done(self, action: Callable[[object], None]) -> None:
        if self.is_done:
            action(self)
        else:
            self._on_done = action

    def chunks(self) -> list[Chunk]:
        if isinstance(self._outcome, CloseConnection):
            raise self._outcome
        return self._outcome

    def abandon(self) -> None:
        """Called when the client has disconnected. As in Kafka, a request that was already received is still handled.
        However, a request that a rule delays or holds before it is handled is dropped if it affects only its own
        connection, or if too many requests are waiting."""
        self._on_done = None
        ends = self._is_dispatched or facts_of(self._occurrence.api).is_of_connection or self._host.rules.holds.are_many
        if self._stop_waiting is not None and ends:
            self._stop_waiting()
        if self._reply is not None:
            self._reply.abandon()

    def _apply_rules_at(self, point: Point, resume: Callable[[Action], None]) -> None:
        rules = self._host.rules
        action = rules.action(point, self._occurrence)
        self._bytes_per_s = action.slow_bytes_per_s or self._bytes_per_s

        def resumed() -> None:
            self._stop_waiting = None
            resume(action)

        if action.hold is not None:
            name = action.hold
            rules.holds.add_waiter(name, self, resumed, point, self._occurrence)
            self._stop_waiting = lambda: rules.holds.remove_waiter(name, self)
        elif action.delay_ms:
            self._stop_waiting = rules.timers.after(action.delay_ms, resumed).cancel
        else:
            resume(action)

    def _dispatch(self, action: Action) -> None:
        self._is_dispatched = True
        if action.disconnects:
            self._disconnect(action)
        elif action.drops:
            self._finish([])
        elif action.error is not None and action.partitions is None:
            self._response_ready(self._refusal(action.error))
        else:
            if action.error is not None:
                self._refuse_partitions(action, before=True)
            try:
                reply = self._host.plain.start(self._frame, self._connection)
            except (CloseConnection, MalformedMessage) as closes:
                self._finish(closes if isinstance(closes, CloseConnection) else CloseConnection(str(closes)))
                return
            if isinstance(reply, list):
                self._response_ready(reply)
            else:
                self._reply = reply
                reply.when_done(self._reply_ready)

    def _reply_ready(self, _: object) -> None:
        reply, self._reply = self._reply, None
        assert reply is not None, "the reply must still be pending"
        try:
            answer = reply.chunks()
        except CloseConnection as closes:
            self._finish(closes)
            return
        self._response_ready(answer)

    def _response_ready(self, answer: list[Chunk]) -> None:
        answer = self._with_refused(answer)

        def finish(action: Action) -> None:
            if action.disconnects:
                self._disconnect(action)
            elif action.drops:
                self._finish([])
            elif action.error is not None and action.partitions is None:
                self._apply_reply_rules(self._refusal(action.error))
            elif action.error is not None:
                self._refuse_partitions(action, before=False)
                self._apply_reply_rules(self._with_refused(answer))
            else:
                self._apply_reply_rules(self._apply_edits(answer, action) if action.edits else answer)

        self._apply_rules_at(Point.APPLIED, finish)

    def _apply_reply_rules(self, outcome: list[Chunk] | CloseConnection) -> None:
        if isinstance(outcome, CloseConnection) or not outcome:
            self._finish(outcome)
            return

        def finish(action: Action) -> None:
            if action.disconnects:
                self._disconnect(action)
            else:
                self._finish([] if action.drops else outcome)

        self._apply_rules_at(Point.REPLYING, finish)

    def _disconnect(self, action: Action) -> None:
        if action.resets:
            cut(self._connection, resets=True)
        self._finish(CloseConnection("a fault rule closes the connection"))

    def _refuse_partitions(self, action: Action, *, before: bool) -> None:
        """Prepares the errors for the partitions refused by an action.

        before  True if the request has not been handled yet; these partitions are then removed from the request
        """
        api, version, request = self._occurrence.api, self._occurrence.version, self._occurrence.request
        assert api is not None, "the occurrence must be a request"
        assert isinstance(request, Message)
        assert action.error is not None
        places = self._host.rules.places(self._occurrence, action)
        refusal = partition_errors(api, version, request, action.error)
        self._host.set_log_start(refusal)
        keep_only(refusal, places, self._host.topic_named)
        self._refused = refusal
        # A Fetch request is not changed, because it has no effects, and because a fetch session would still include the
        # partitions.
        if before and api is not ApiKey.FETCH:
            leave_out(request, places, self._host.topic_named)
            head = self._frame[: self._occurrence.body_at]
            self._frame = memoryview(bytearray(bytes(head) + encode(request, version)))

    def _with_refused(self, answer: list[Chunk]) -> list[Chunk]:
        refused, self._refused = self._refused, None
        if refused is None or not answer:
            return answer
        decoded = self._form.read(b"".join(in_memory(answer)), has_length=True)
        put_in_place(decoded.message, refused, self._host.topic_named)
        return self._form.chunks(decoded.correlation_id, decoded.message)

    @property
    def _form(self) -> AnswerForm:
        assert self._occurrence.api is not None, "the occurrence must be a request"
        return answer_form(self._occurrence.api.value, self._occurrence.version)

    def _refusal(self, code: ErrorCode) -> list[Chunk]:
        if (
            code is ErrorCode.UNSUPPORTED_VERSION
            and self._occurrence.api is ApiKey.API_VERSIONS
            and self._occurrence.version >= 3
        ):
            # Answer as if the client had sent an unknown future version. The body has version 0 and lists the supported
            # versions (KIP-511).
            frame = bytearray(self._frame)
            KEY_AND_VERSION.pack_into(frame, 0, ApiKey.API_VERSIONS.value, FUTURE_VERSION)
            answer = self._host.serving.dispatcher.start(memoryview(frame), self._connection)
            assert isinstance(answer, list), "an unsupported ApiVersions is answered immediately"
            return answer
        refusal = self._host.serving.dispatcher.refusal(self._frame, self._connection, code)
        if not refusal or self._occurrence.api is not ApiKey.PRODUCE:
            return refusal
        decoded = self._form.read(b"".join(in_memory(refusal)), has_length=True)
        self._host.set_log_start(decoded.message)
        return self._form.chunks(decoded.correlation_id, decoded.message)

    def _apply_edits(self, answer: list[Chunk], action: Action) -> list[Chunk]:
        """Returns the response after applying the rule's edits.

        If the edits cannot be applied, returns the response unchanged, and the rule does not count a hit.
        """
        api, version = self._occurrence.api, self._occurrence.version
        assert api is not None, "the occurrence must be a request"
        try:
            if not answer:
                raise EditNotApplied("the request has no answer")
            decoded = self._form.read(b"".join(in_memory(answer)), has_length=True)
            apply_edits(action.edits, decoded.message, version)
            return self._form.chunks(decoded.correlation_id, decoded.message)
        except Exception as error:  # including codec errors, since this version may be unable to encode a value
            why = str(error) or type(error).__name__
            log.warning("a rule could not edit the answer to %s v%d: %s", api.kafka_name, version, why)
            self._host.rules.record_failed_edit(action, why)
            return answer

    def _finish(self, outcome: list[Chunk] | CloseConnection) -> None:
        self.is_done = True
        if self._bytes_per_s is not None and isinstance(outcome, list) and outcome:
            outcome = PacedAnswer(outcome, pieces_at_rate(self._bytes_per_s))
        self._outcome = outcome
        action, self._on_done = self._on_done, None
        if action is not None:
            action(self)
