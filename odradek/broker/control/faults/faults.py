"""Applies the rules of a cluster to requests and connections.

While a cluster has rules for requests, `FaultyRequests` sits between the connections and the dispatcher. `steps.py`
applies the rules that act between steps of the broker itself. A broker without control does not use this module.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from odradek.broker.api.error_replies import partition_errors
from odradek.broker.control.faults.edits import EditNotApplied, apply_edits
from odradek.broker.control.faults.holds import Holds, ReleaseResult, waiter_facts
from odradek.broker.control.faults.partition_errors import keep_only, leave_out, put_in_place
from odradek.broker.control.faults.rules import OBSERVE, REPLY_POINTS, Action, Occurrence, Point, Rule, parse_rule
from odradek.broker.control.faults.sightings import named_in, places_in
from odradek.broker.control.odd.odd import Odd
from odradek.broker.control.odd.odd_requests import OddRequests
from odradek.broker.control.problems import Problem, nearest
from odradek.broker.control.recording.exchanges import Exchanges
from odradek.broker.network.controlled_connection import observe
from odradek.broker.network.paced_answers import PacedAnswer, pieces_at_rate
from odradek.broker.network.request_filter import RequestFilter
from odradek.broker.produce.request import WITHOUT_LOG_START
from odradek.broker.runtime.replies import CloseConnection, ParkedRequest
from odradek.broker.runtime.waiting import Deferred
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
    from odradek.broker.control.nodes.nodes import Nodes
    from odradek.broker.control.recording.recorder import Recorder
    from odradek.broker.network.connection_host import FrameReceiver
    from odradek.broker.network.controlled_connection import ObserverFactory
    from odradek.broker.runtime.clock import Timers
    from odradek.broker.runtime.controlled_time import ControlledTime
    from odradek.broker.serving import ServingBroker
    from odradek.protocol.struct import Struct

log = logging.getLogger("odradek.control")

MAX_RULES = 1000
REQUEST_POINTS = REPLY_POINTS | {Point.ACCEPTED}
FUTURE_VERSION = 0x7FFF
CODES = {code.value: code for code in ErrorCode}


class Faults:
    """The fault rules of one cluster."""

    def __init__(self, time: ControlledTime, now_s: Callable[[], float], recorder: Recorder | None = None) -> None:
        """Creates an empty set of fault rules for a cluster.

        recorder  records exchanges as the clients see them; added to `recorders`, which `install` connects to the
                  broker
        """
        self.recorders = [] if recorder is None else [recorder]
        self.timers: Timers = time
        self.exchanges = Exchanges(time, now_s)
        self.holds = Holds()
        self.rules: dict[str, Rule] = {}
        self.odd: Odd | None = None
        self._serving: ServingBroker | None = None
        self._nodes: Nodes | None = None
        self._numbers = 0

    def use_clock(self, time: ControlledTime) -> None:
        """Makes the rules and the exchanges use this clock."""
        self.timers = self.exchanges.recent.time = time

    def attach(self, serving: ServingBroker, nodes: Nodes) -> None:
        """Applies the rules to a broker that has just started."""
        self._serving = serving
        self._nodes = nodes
        self.install()

    def detach(self) -> None:
        """Lets held requests continue, so that they are answered or disconnected. Must be called before the broker
        stops."""
        self._serving = self._nodes = None
        self.holds.end()

    def add(self, definition: object) -> list[Rule]:
        """Parses one rule or a list of rules, and adds all of them. If a rule is invalid, raises Problem and adds no
        rule."""
        parsed: dict[str, Rule] = {}
        for each in definition if isinstance(definition, list) else [definition]:
            self._numbers += 1
            rule = parse_rule(each, f"rule-{self._numbers}")
            if rule.name in self.rules or rule.name in parsed:
                raise Problem(409, f"there is already a rule named {rule.name}", field="name")
            parsed[rule.name] = rule
        if len(self.rules) + len(parsed) > MAX_RULES:
            raise Problem(409, f"a cluster has at most {MAX_RULES} rules: delete some first")
        self.rules.update(parsed)
        self.install()
        return list(parsed.values())

    def record_call(self, method: str, path: str, body: object) -> None:
        """Records a call of the control interface before it takes effect, with the number of waiters at each hold."""
        for recorder in self.recorders:
            recorder.record_event(
                {"called": {"method": method, "path": path, "body": body, "holds": self.holds.counts()}}
            )

    def be_odd(self, seed: int, percent: Mapping[str, int] | None = None) -> None:
        """Makes the cluster send odd responses, which the protocol allows but Kafka rarely sends.

        seed     the seed of the random decisions; 0 ends the odd responses
        percent  for each oddity, the percentage of cases in which it is applied
        """
        if self.odd is not None:
            self.odd.is_over = True
        self.odd = Odd.of(seed, percent or {}) if seed else None
        self.install()

    def release(self, name: str) -> ReleaseResult:
        """Releases everything that waits at this hold. Raises Problem if neither a rule nor a waiter uses the hold."""
        names = {rule.do.hold for rule in self.rules.values() if rule.do.hold is not None} | self.holds.counts().keys()
        if name not in names:
            raise Problem(404, f"no rule has a hold named {name}{nearest(name, names)}", field="name")
        return self.holds.release(name)

    def remove(self, name: str | None) -> tuple[list[Rule], Sequence[Deferred[None]]]:
        """Removes a rule, or all rules if `name` is None. Raises Problem if there is no rule of this name.

        If no other rule uses the hold of a removed rule, everything that waits at the hold is released. Returns the
        removed rules, and Deferreds that resolve when the effects of these releases are complete.
        """
        if name is not None and name not in self.rules:
            raise Problem(404, f"there is no rule named {name}")
        removed = list(self.rules.values()) if name is None else [self.rules[name]]
        for rule in removed:
            del self.rules[rule.name]
        remaining = {rule.do.hold for rule in self.rules.values()}
        effects: list[Deferred[None]] = []
        for rule in removed:
            if rule.do.hold is not None and rule.do.hold not in remaining:
                effects += self.holds.release(rule.do.hold).effects
        self.install()
        return removed, effects

    def action(self, point: Point, occurrence: Occurrence) -> Action:
        """Returns the action of the first rule that acts on this request or step and does more than observe it. Returns
        OBSERVE if there is no such rule.

        All rules for this point count their matches and hits.
        """
        found = OBSERVE
        for rule in self.rules.values():
            if rule.at is point and rule.count_match(occurrence) and found.only_observes:
                found = rule.do
        return found

    def refuses_for_good(self, occurrence: Occurrence) -> bool:
        """Returns whether a rule refuses this marker, and will refuse every retry until the rule is removed."""
        for rule in self.rules.values():
            if rule.at is Point.MARKER and rule.acts_on(occurrence) and not rule.do.only_observes:
                return rule.do.error is not None and rule.acts_always
        return False

    def record_failed_edit(self, action: Action, why: str) -> None:
        """Takes back the hit of the rule with this action, because its edits could not be applied to the response."""
        for rule in self.rules.values():
            if rule.do is action:
                rule.record_failed_edit(why)

    def places(self, occurrence: Occurrence, action: Action) -> set[tuple[str, int | None]]:
        """Returns the partitions of a request to which an action applies."""
        topics = {rule.match.get("topic") for rule in self.rules.values() if rule.do is action} - {None}
        numbers = action.partitions or ()
        return {
            (topic, index) for topic, index in occurrence.places if index in numbers and (not topics or topic in topics)
        }

    def install(self) -> None:
        """Installs the rules, odd responses and observers in front of the request handling of each running node.

        Observers are the outermost layer, so they see the same exchanges as the clients.
        """
        if self._serving is None or self._nodes is None:
            return
        is_needed = any(rule.at in REQUEST_POINTS for rule in self.rules.values())
        for server, plain, node in self._nodes.running_servers():
            if self.odd is not None:
                plain = OddRequests(plain, self.odd, self._serving, self.timers, node)
            answering = FaultyRequests(plain, self, self._serving, node) if is_needed else plain
            observers: list[ObserverFactory] = [recorder.observer_of(node) for recorder in self.recorders]
            if self.exchanges.are_kept:
                observers.append(self.exchanges.recent)
            server.requests = answering
            observe(server, observers)


class FaultyRequests(RequestFilter):
    """Applies the rules of a cluster to the new connections and the requests of one node."""

    def __init__(self, plain: FrameReceiver, faults: Faults, serving: ServingBroker, node: int) -> None:
        super().__init__(plain)
        self.node = node
        self.faults = faults
        self.serving = serving
        self._doomed: set[int] = set()  # ids of connections that will be cut in the next turn of the event loop

    def connected(self, connection: ConnectionInfo) -> None:
        super().connected(connection)
        about = {"listener": connection.listener, "node": self.node, "connection": connection.connection_id}
        action = self.faults.action(Point.ACCEPTED, Occurrence(None, connection_facts=about))
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
        if api is None or not any(rule.may_match(api, version) for rule in self.faults.rules.values()):
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

    def tell_log_start(self, refusal: Message) -> None:
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
    answered. A pause is a delay or a hold of a rule.
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
        self._refused: Struct | None = None  # response with errors for the partitions that a rule refuses
        self._bytes_per_s: int | None = None  # rate at which the response is sent, set by the last rule that has a rate

    def start(self) -> list[Chunk] | ParkedRequest:
        """Starts the exchange, and returns the response if it is ready. Raises MalformedMessage or CloseConnection."""
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
        However, a request that a rule delays or holds is dropped if its effect would end with the connection, or if too
        many requests are waiting."""
        self._on_done = None
        ends = (
            self._is_dispatched or facts_of(self._occurrence.api).is_of_connection or self._host.faults.holds.are_many
        )
        if self._stop_waiting is not None and ends:
            self._stop_waiting()
        if self._reply is not None:
            self._reply.abandon()

    def _apply_rules_at(self, point: Point, resume: Callable[[Action], None]) -> None:
        faults = self._host.faults
        action = faults.action(point, self._occurrence)
        self._bytes_per_s = action.slow_bytes_per_s or self._bytes_per_s

        def resumed() -> None:
            self._stop_waiting = None
            resume(action)

        if action.hold is not None:
            name = action.hold
            faults.holds.add_waiter(name, self, resumed, waiter_facts(point, self._occurrence))
            self._stop_waiting = lambda: faults.holds.remove_waiter(name, self)
        elif action.delay_ms:
            self._stop_waiting = faults.timers.after(action.delay_ms, resumed).cancel
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
        """Prepares the errors for the partitions that an action refuses.

        before  True if the request has not been handled yet; these partitions are then removed from the request
        """
        api, version, request = self._occurrence.api, self._occurrence.version, self._occurrence.request
        assert api is not None, "the occurrence must be a request"
        assert isinstance(request, Message)
        assert action.error is not None
        places = self._host.faults.places(self._occurrence, action)
        refusal = partition_errors(api, version, request, action.error)
        self._host.tell_log_start(refusal)
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
        self._host.tell_log_start(decoded.message)
        return self._form.chunks(decoded.correlation_id, decoded.message)

    def _apply_edits(self, answer: list[Chunk], action: Action) -> list[Chunk]:
        """Returns the response after the edits of the rule.

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
        except Exception as error:  # including errors of the codec, since this version may be unable to encode a value
            why = str(error) or type(error).__name__
            log.warning("a rule could not edit the answer to %s v%d: %s", api.kafka_name, version, why)
            self._host.faults.record_failed_edit(action, why)
            return answer

    def _finish(self, outcome: list[Chunk] | CloseConnection) -> None:
        self.is_done = True
        if self._bytes_per_s is not None and isinstance(outcome, list) and outcome:
            outcome = PacedAnswer(outcome, pieces_at_rate(self._bytes_per_s))
        self._outcome = outcome
        action, self._on_done = self._on_done, None
        if action is not None:
            action(self)
