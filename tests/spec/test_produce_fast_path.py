"""Tests the fast path for Produce requests with a single batch. The log and the response must be the same as on the
general path."""

from itertools import product
from typing import Any

import pytest

from odradek.broker.api.context import ConnectionInfo
from odradek.broker.api.dispatch import Dispatcher
from odradek.broker.handlers.by_api_key import fast_path_of, handler_of
from odradek.broker.produce.fast_path import ProduceFastPath
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.protocol.records import Compression, NewRecord, batches, build_batch, records_of
from odradek.storage.validation import CHEAP_RECORDS
from tests.support.broker_scene import NOW_MS, BrokerScene
from tests.support.fake_disk import FakeDisk, Fault
from tests.support.peer import Peer, server_around
from tests.support.transactional_clients import Answering

VERSIONS = range(9, 14)
PEER = ConnectionInfo(1, "127.0.0.1", 40_000)
SHORT, LONG = "t", "name-" * 24  # The length of the name LONG still fits into one byte.
VERY_LONG = "name-" * 40


def records(count: int = 2, size: int = 5, **kind: Any) -> bytearray:
    return build_batch([NewRecord(b"k", b"v" * size, NOW_MS + at) for at in range(count)], **kind)


def idempotent(sequence: int) -> bytearray:
    return records(producer_id=7, producer_epoch=0, base_sequence=sequence)


def transactional(sequence: int, epoch: int = 0) -> bytearray:
    return records(producer_id=7, producer_epoch=epoch, base_sequence=sequence, is_transactional=True)


class Scene(BrokerScene):
    """A broker whose fast path can be disabled, so that every request takes the general path."""

    def __init__(self, *, is_short: bool = True, **settings: Any) -> None:
        self.disk = FakeDisk()
        super().__init__(self.disk, "/data", **settings)
        for name in (SHORT, LONG, VERY_LONG):
            self.topic(name, 20)
        self.dispatcher = Dispatcher(
            self.broker, self.clock, handler_of, fast_path_of=fast_path_of if is_short else None
        )
        server = server_around(self.dispatcher, None, self.timers)
        self.peer = Peer(server)

    def request(
        self, *batches: tuple[int, bytearray], topic: str = SHORT, version: int = 9, acks: int = -1, **more: Any
    ) -> ProduceRequest:
        """Returns a request with the given batches, each as (partition, batch)."""
        data = [PartitionProduceData(index=index, records=batch) for index, batch in batches]
        named = TopicProduceData(partition_data=data)
        if version >= 13:
            named.topic_id = self.image.topics[topic].topic_id
        else:
            named.name = topic
        return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[named], **more)

    def response_frames(self, request: ProduceRequest, version: int = 9, client_id: str | None = "c") -> list[bytes]:
        """Sends the request. Returns the frames of the broker's responses."""
        self.peer.send(request_bytes(request, version, 77_000_001, client_id))
        self.settle()
        return self.peer.frames()

    def answer(self, request: ProduceRequest, version: int = 9) -> ProduceResponse:
        self.peer.ask(request, version)
        self.settle()
        response: ProduceResponse = self.peer.answer(ApiKey.PRODUCE, version)
        return response

    def takes_the_fast_path(self, request: ProduceRequest, version: int = 9) -> bool:
        frame = memoryview(bytearray(request_bytes(request, version, 1, "c")))[4:]
        return self.fast_path(frame).start_request(frame, 1, 1, PEER) is not None

    def fast_path(self, frame: memoryview) -> ProduceFastPath:
        """Returns the fast path for the request's version."""
        route = self.dispatcher.find_route(frame, int.from_bytes(frame[:4]))
        return ProduceFastPath(route, self.broker, self.clock.now_ms, None)


BATCHES: dict[str, list[bytearray]] = {
    "plain": [records(), records()],
    "tiny": [records(1, 0)],
    "of two size bytes": [records(1, 1000)],
    "of three size bytes": [records(1, 40_000), records(20, 3000), records(1, 1_000_000), records(1, 1_100_000)],
    "of many records": [records(CHEAP_RECORDS), records(CHEAP_RECORDS + 1)],
    "idempotent": [idempotent(0), idempotent(2)],
    "repeated": [idempotent(0), idempotent(0)],
    "out of order": [idempotent(0), idempotent(5)],
    "compressed": [records(compression=Compression.LZ4)],
    "cut short": [records()[:-1]],
    "with a wrong CRC": [records()[:-1] + b"x"],
    "from the future": [build_batch([NewRecord(b"k", b"v", NOW_MS + 10**10)])],
    "empty": [bytearray()],
    "two together": [records() + records()],
}


@pytest.mark.parametrize("batches", BATCHES.values(), ids=BATCHES.keys())
@pytest.mark.parametrize("version", VERSIONS)
async def test_the_fast_and_the_general_path_write_the_same_bytes(version: int, batches: list[bytearray]) -> None:
    short, general = Scene(), Scene(is_short=False)
    for topic, index in ((SHORT, 0), (SHORT, 19), (LONG, 1), (VERY_LONG, 1)):
        for batch in batches:
            answers = [
                scene.response_frames(scene.request((index, bytearray(batch)), topic=topic, version=version), version)
                for scene in (short, general)
            ]
            assert answers[0] == answers[1]
            assert len(answers[0]) == 1
        ends = [scene.partition(topic, index).log.log_end_offset for scene in (short, general)]
        assert ends[0] == ends[1]


@pytest.mark.parametrize("client_id", ["", None, "a client of some name", "å" * 200])
async def test_the_fast_path_accepts_any_client_id(client_id: str | None) -> None:
    short, general = Scene(), Scene(is_short=False)
    answers = [scene.response_frames(scene.request((0, records())), client_id=client_id) for scene in (short, general)]
    assert answers[0] == answers[1]


TRANSACTIONS: dict[str, list[bytearray]] = {
    "of a producer": [transactional(0), transactional(2), transactional(0, epoch=1)],
    "repeated": [transactional(0), transactional(0)],
    "out of order": [transactional(0), transactional(5)],
    "with a wrong CRC": [transactional(0)[:-1] + b"x", transactional(0)],
    "fenced": [transactional(0, epoch=1), transactional(0)],
    "of nobody": [records(is_transactional=True)],
    "and one outside": [transactional(0), records()],
}


@pytest.mark.parametrize("batches", TRANSACTIONS.values(), ids=TRANSACTIONS.keys())
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("is_verified", [True, False])
async def test_the_fast_and_the_general_path_lead_to_the_same_transactions(
    version: int, batches: list[bytearray], is_verified: bool
) -> None:
    settings = {"transaction_partition_verification_enable": is_verified}
    short, general = Scene(**settings), Scene(is_short=False, **settings)
    for transactional_id in ("tx", "", "i" * 126, "i" * 127, "\u00e5" * 200):
        for batch in batches:
            answers = []
            for scene in (short, general):
                scene.coordinator = Answering(ErrorCode.NONE)
                request = scene.request((1, bytearray(batch)), version=version, transactional_id=transactional_id)
                answers.append(scene.response_frames(request, version))
            assert answers[0] == answers[1]
            assert len(answers[0]) == 1
        logs = [scene.partition(SHORT, 1).log for scene in (short, general)]
        assert b"".join(logs[0].reader.scan(0)) == b"".join(logs[1].reader.scan(0))
        assert logs[0].producers() == logs[1].producers()


SAID = [
    ErrorCode.NONE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.TRANSACTION_ABORTABLE,
]


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("code", SAID)
async def test_both_paths_answer_errors_of_the_coordinator_alike(code: ErrorCode, at_once: bool) -> None:
    short, general = Scene(), Scene(is_short=False)
    for version in VERSIONS:
        answers = []
        for scene in (short, general):
            coordinator = scene.coordinator = Answering(code, at_once=at_once)
            request = scene.request((version, transactional(0)), version=version, transactional_id="tx")
            scene.peer.send(request_bytes(request, version, 1, "c"))
            if not at_once:
                coordinator.held.pop()()
            scene.settle()
            answers.append(scene.peer.frames())
            if at_once and code is ErrorCode.NONE:
                assert len(coordinator.requests) == 1
        assert answers[0] == answers[1]
        assert len(answers[0]) == 1


async def test_the_first_batch_of_a_transaction_waits_for_the_end_of_the_previous_one() -> None:
    scene = Scene()
    busy = ErrorCode.CONCURRENT_TRANSACTIONS
    scene.coordinator = Answering(busy, busy, ErrorCode.NONE)
    assert scene.response_frames(scene.request((0, transactional(0)), version=12, transactional_id="tx"), 12) == []
    scene.timers.advance(20)
    scene.settle()
    assert len(scene.peer.frames()) == 1
    assert scene.partition(SHORT).log.log_end_offset == 2


async def test_without_a_coordinator_nothing_is_written() -> None:
    scene = Scene()
    answer = scene.answer(scene.request((0, transactional(0)), version=12, transactional_id="tx"), 12)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NOT_ENOUGH_REPLICAS.value
    assert scene.partition(SHORT).log.log_end_offset == 0


async def test_ordinary_requests_use_the_fast_path() -> None:
    scene = Scene()
    for version in VERSIONS:
        assert scene.takes_the_fast_path(scene.request((0, records()), version=version), version)
        assert scene.takes_the_fast_path(scene.request((3, records(1, 1_000_000)), version=version, acks=1), version)
        scene.coordinator = Answering(ErrorCode.NONE)
        in_transaction = scene.request((version, transactional(0)), version=version, transactional_id="tx")
        assert scene.takes_the_fast_path(in_transaction, version)


async def test_unusual_requests_use_the_general_path() -> None:
    scene = Scene()
    scene.topic("__consumer_offsets")
    scene.topic("compacted", cleanup_policy=frozenset({"compact"}))
    scene.topic("stamped", message_timestamp_type="LogAppendTime")
    unusual = [
        scene.request((0, records()), acks=0),
        scene.request((0, records()), acks=2),
        scene.request((0, records()), transactional_id="t"),
        scene.request((0, records()), (1, records())),
        scene.request((20, records())),
        scene.request((-1, records())),
        scene.request((0, records()), topic="__consumer_offsets"),
        scene.request((0, records()), topic="stamped"),
        scene.request((0, build_batch([NewRecord(None, b"v", NOW_MS)])), topic="compacted"),
        scene.request((0, records(compression=Compression.ZSTD))),
        scene.request((0, transactional(0))),
        scene.request((0, records(CHEAP_RECORDS + 1))),
    ]
    assert not any(scene.takes_the_fast_path(request) for request in unusual)


async def test_every_prefix_of_a_request_is_left_to_the_general_path() -> None:
    scene = Scene()
    scene.coordinator = Answering(ErrorCode.NONE)
    batches: list[tuple[bytearray, str | None]] = [(records(), None), (transactional(0), "tx")]
    for version, (batch, transactional_id) in product((9, 13), batches):
        request = scene.request((0, batch), version=version, transactional_id=transactional_id)
        frame = memoryview(bytearray(request_bytes(request, version, 1, "c")))[4:]
        fast_path = scene.fast_path(frame)
        assert all(fast_path.start_request(frame[:size], 1, 1, PEER) is None for size in range(10, len(frame)))
        assert fast_path.start_request(memoryview(frame.tobytes() + b"surplus"), 1, 1, PEER) is None
        misnamed = memoryview(frame.tobytes().replace(b"tx", b"\xff\xff"))
        assert fast_path.start_request(misnamed, 1, 1, PEER) is None or transactional_id is None


@pytest.mark.parametrize("is_short", [True, False])
async def test_the_next_request_overwrites_nothing_that_is_not_written_yet(is_short: bool) -> None:
    scene = Scene(is_short=is_short)
    # All frames arrive in the same receive buffer before the log writes them at the end of the tick.
    for fill in (b"1", b"2", b"3"):
        scene.peer.ask(scene.request((0, build_batch([NewRecord(b"k", fill * 900, NOW_MS)]))), 9)
    assert not scene.peer.frames()
    scene.settle()
    stored = b"".join(scene.partition(SHORT, 0).log.reader.read(0, max_bytes=10_000).chunks)
    values = [record.value for position, _ in batches(stored) for record in records_of(stored, position)]
    assert values == [b"1" * 900, b"2" * 900, b"3" * 900]


@pytest.mark.parametrize("version", VERSIONS)
async def test_both_paths_answer_a_failed_write_alike(version: int) -> None:
    answers = []
    for scene in (Scene(), Scene(is_short=False)):
        scene.answer(scene.request((0, records()), version=version), version)
        scene.disk.fail(1, Fault.ENOSPC)
        answers.append(scene.response_frames(scene.request((0, records()), version=version), version))
    assert answers[0] == answers[1]


async def test_the_fast_path_finds_a_recreated_topic() -> None:
    scene = Scene()
    assert scene.answer(scene.request((0, records()))).responses[0].partition_responses[0].base_offset == 0
    scene.delete_topic(SHORT)
    gone = scene.answer(scene.request((0, records())))
    assert gone.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.value
    scene.topic(SHORT)
    assert scene.answer(scene.request((0, records()))).responses[0].partition_responses[0].base_offset == 0
    assert scene.partition(SHORT).log.log_end_offset == 2


async def test_answers_leave_in_the_order_of_the_requests_of_both_kinds() -> None:
    scene = Scene()
    first = scene.request((0, records()))
    second = scene.request((0, records()), (1, records()))
    for number, request in enumerate((first, second, first)):
        scene.peer.ask(request, 9, correlation_id=number)
    scene.settle()
    assert scene.peer.correlation_ids() == [0, 1, 2]


async def test_the_fast_path_counts_its_requests() -> None:
    scene = Scene()
    for _ in range(3):
        scene.answer(scene.request((0, records())))
    (route,) = scene.dispatcher.routes
    assert route.requests == 3
    assert route.local_s > 0
    assert route.remote_s > 0
