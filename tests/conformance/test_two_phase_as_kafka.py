"""Tests that InitProducerId v6 gets the same responses as from Kafka 4.4.0, which supports part of this version if
`unstable.api.versions.enable` is set. A broker that emulates an older release does not offer v6.

The only difference is KeepPreparedTxn, which Kafka refuses. tests/spec/transactions tests how Odradek handles it.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from tests.clients.admin import create_topic
from tests.support.broker_process import BrokerProcess, KafkaProcess
from tests.support.oracle import needs_kafka
from tests.support.two_phase import TwoPhaseClient
from tests.support.wire import Wire

pytestmark = needs_kafka

E = ErrorCode
VERSION = 6
UNSTABLE = {"unstable.api.versions.enable": "true"}
PASSING = frozenset({E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR})


class InitOutcome(NamedTuple):
    """The comparable part of a response, without concrete producer ids."""

    code: ErrorCode
    has_producer_id: bool
    epoch: int
    ongoing: tuple[int, int]


class Speaker:
    def __init__(self, wire: Wire) -> None:
        self.client = TwoPhaseClient(wire)
        self._wire = wire
        self.outcomes: list[Any] = []

    def init(self, transactional_id: str | None, **fields: Any) -> InitProducerIdResponse:
        """Sends InitProducerId. By default the timeout is 60,000 ms and both flags are false."""
        request = InitProducerIdRequest(transactional_id=transactional_id)
        request.transaction_timeout_ms = fields.pop("timeout_ms", 60_000)
        for name, value in fields.items():
            setattr(request, name, value)
        while True:
            answer = self._wire.ask(request, VERSION, InitProducerIdResponse)
            code = ErrorCode(answer.error_code)
            if code not in PASSING:
                break
        ongoing = answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch
        self.outcomes.append(InitOutcome(code, answer.producer_id >= 0, answer.producer_epoch, ongoing))
        return answer

    def describe(self, transactional_id: str) -> None:
        found = self.client.describe(transactional_id)
        self.outcomes.append((found.transaction_state, found.producer_epoch, found.transaction_timeout_ms))


def story(speaker: Speaker) -> list[Any]:
    """Sends requests without KeepPreparedTxn and returns the comparable part of each response."""
    speaker.init(None, enable2_pc=True)
    speaker.init("", enable2_pc=True)
    speaker.init("half", enable2_pc=True, producer_id=5)
    for number, timeout_ms in enumerate((0, -1, 900_001, 2**31 - 1)):
        speaker.init(f"two-phase-{number}", timeout_ms=timeout_ms, enable2_pc=True)
        speaker.init(f"ordinary-{number}", timeout_ms=timeout_ms)
    for transactional_id in ("two-phase-0", "two-phase-1", "ordinary-0"):
        speaker.describe(transactional_id)
    answer = speaker.init("pay", timeout_ms=0, enable2_pc=True)
    if not answer.error_code:
        pair = answer.producer_id, answer.producer_epoch
        speaker.client.write("pay", pair, "orders")
        speaker.describe("pay")
        speaker.init("pay", producer_id=pair[0] + 1_000_000, producer_epoch=0, enable2_pc=True)
        speaker.init("pay", enable2_pc=True)  # aborts the open transaction
        speaker.outcomes.append(speaker.client.init("pay", timeout_ms=30_000, two_phase=False).producer_epoch)
        speaker.describe("pay")  # The transactional id now has ordinary transactions.
        speaker.outcomes.append(speaker.client.end("pay", pair, commit=True))
    return speaker.outcomes


def refused_keeping(speaker: Speaker) -> list[ErrorCode]:
    answers = [
        speaker.init("kept", keep_prepared_txn=True),
        speaker.init("kept", keep_prepared_txn=True, enable2_pc=True),
        speaker.init("kept", keep_prepared_txn=True, timeout_ms=0),
        speaker.init("", keep_prepared_txn=True),
    ]
    return [ErrorCode(answer.error_code) for answer in answers]


@pytest.fixture(scope="module", params=["true", "false"], ids=["two-phase commit allowed", "not allowed"])
def speakers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Any, Any]]:
    allowed = request.param
    folder = tmp_path_factory.mktemp("two-phase")
    settings = {"transaction.two.phase.commit.enable": allowed}
    kafka = KafkaProcess(folder / "kafka", settings | UNSTABLE)
    ours = BrokerProcess(folder / "ours", settings)
    with kafka, ours, Wire(kafka.bootstrap) as to_kafka, Wire(ours.bootstrap) as to_ours:
        for broker in (kafka, ours):
            create_topic(broker.bootstrap, "orders", exact=True)
        yield allowed, Speaker(to_kafka), Speaker(to_ours)


def test_without_keeping_every_answer_is_kafkas(speakers: tuple[str, Speaker, Speaker]) -> None:
    _, kafka, ours = speakers
    assert story(ours) == story(kafka)


def test_keeping_is_refused_by_kafka_and_served_here(speakers: tuple[str, Speaker, Speaker]) -> None:
    allowed, kafka, ours = speakers
    forbidden = E.NONE if allowed == "true" else E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert refused_keeping(ours) == [E.NONE, forbidden, E.INVALID_TRANSACTION_TIMEOUT, E.INVALID_REQUEST]
    forbidden = E.UNSUPPORTED_VERSION if allowed == "true" else E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert refused_keeping(kafka) == [E.UNSUPPORTED_VERSION, forbidden, E.UNSUPPORTED_VERSION, E.INVALID_REQUEST]
