"""A recorder costs the loop little, and its memory is bounded: by writing on the loop, or by ending a recording that
nobody reads fast enough."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from io import BytesIO

from odradek.broker.api.context import ConnectionInfo
from odradek.broker.clusters.live_recording import UnreadBlocks
from odradek.broker.clusters.recorder import Recorder
from odradek.broker.network.connection_host import LoginCounts
from odradek.broker.runtime.delayed import CloseConnection, Parked
from odradek.protocol.compression import Compression
from odradek.protocol.file_slice import Chunk
from odradek.protocol.frames import request_bytes, response_writer
from odradek.protocol.messages.alter_configs_request import AlterConfigsRequest
from odradek.protocol.messages.fetch_request import FetchRequest
from odradek.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from odradek.protocol.recording import Kind, Recording, RecordingEntry
from odradek.protocol.records import NewRecord, build_batch
from odradek.testing.judge.judging import judge

FRAME = memoryview(request_bytes(MetadataRequest(topics=[]), 12, 7, "a-client"))[4:]
ANSWER = b"\0\0\0\x04\0\0\0\x07"


class CountedWrites(BytesIO):
    """Counts writes, and stays readable."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    def write(self, data: object, /) -> int:
        self.writes += 1
        return super().write(data)  # type: ignore[arg-type]

    def close(self) -> None:
        """What was written stays readable."""

    def entries(self) -> list[RecordingEntry]:
        return list(Recording(BytesIO(self.getvalue()).read).entries())


class Answers:
    """Gives each request the next of these answers; None hangs up."""

    logins: LoginCounts | None = None

    def __init__(self, *answers: Sequence[bytes] | None) -> None:
        self._answers = list(answers)

    def connected(self, connection: ConnectionInfo) -> None:
        """All are welcome."""

    def too_long(self, reason: str, connection: ConnectionInfo) -> Parked | None:
        return None

    def start(self, frame: memoryview, connection: ConnectionInfo) -> list[Chunk] | Parked:
        answer = self._answers.pop(0)
        if answer is None:
            raise CloseConnection("no more of you")
        return list(answer)


def kinds(entries: list[RecordingEntry]) -> list[tuple[Kind, int, int]]:
    return [(entry.kind, entry.connection, entry.exchange) for entry in entries]


async def test_more_than_may_wait_is_written_by_the_loop_itself_in_order_and_whole() -> None:
    disk, connection = CountedWrites(), ConnectionInfo(1, "localhost", 1)
    recorder = Recorder(disk, asyncio.get_running_loop(), most_waiting_bytes=1000)
    requests = recorder.wrap(Answers(*[[ANSWER], []] * 50), 1)
    for _ in range(100):  # in one turn of the loop, so that no thread is given anything
        requests.start(FRAME, connection)
    assert disk.writes > 5  # the head, and what the loop wrote
    recorder.close()
    entries = disk.entries()
    assert [entry.exchange for entry in entries if entry.kind is Kind.RECEIVED] == list(range(1, 101))
    assert [entry.time_us for entry in entries] == sorted(entry.time_us for entry in entries)
    assert [entry.body for entry in entries if entry.kind is Kind.ANSWERED] == [ANSWER[4:]] * 50


async def test_an_answer_has_left_when_nothing_is_unsent_and_never_before_what_came_with_its_request() -> None:
    disk = CountedWrites()
    slow, quick = ConnectionInfo(1, "localhost", 1, reads=1), ConnectionInfo(2, "localhost", 2, reads=1)
    slow.unsent_bytes = lambda: 1
    recorder = Recorder(disk, asyncio.get_running_loop(), compression=Compression.NONE)
    requests = recorder.wrap(Answers(*[[ANSWER]] * 5), 1)
    for connection in (slow, quick, quick):
        requests.start(FRAME, connection)
    slow.reads = quick.reads = 2
    for connection in (slow, quick):
        requests.start(FRAME, connection)
    while recorder.unwritten:  # until a tick
        slow.unsent_bytes = lambda: 0
        await asyncio.sleep(0.001)
    recorder.close()
    assert [each for each in kinds(disk.entries()) if each[0] is not Kind.ANSWERED] == [
        (Kind.OPENED, 1, 0),
        (Kind.RECEIVED, 1, 1),
        (Kind.OPENED, 2, 0),
        (Kind.RECEIVED, 2, 2),
        (Kind.RECEIVED, 2, 3),
        (Kind.RECEIVED, 1, 4),
        (Kind.WRITTEN, 2, 2),
        (Kind.WRITTEN, 2, 3),
        (Kind.RECEIVED, 2, 5),
        (Kind.WRITTEN, 1, 1),
        (Kind.WRITTEN, 1, 4),
        (Kind.WRITTEN, 2, 5),
    ]


async def test_a_request_that_is_answered_by_hanging_up_is_told_so() -> None:
    disk, connection = CountedWrites(), ConnectionInfo(1, "localhost", 1)
    recorder = Recorder(disk, asyncio.get_running_loop(), compression=Compression.NONE)
    requests = recorder.wrap(Answers(None), 1)
    try:
        requests.start(FRAME, connection)
    except CloseConnection:
        connection.closed()
    recorder.close()
    assert kinds(disk.entries())[1:] == [(Kind.RECEIVED, 1, 1), (Kind.HUNG_UP, 1, 1), (Kind.CLOSED, 1, 0)]


async def test_no_secret_gets_into_a_block() -> None:
    disk, connection = CountedWrites(), ConnectionInfo(1, "localhost", 1)
    recorder = Recorder(disk, asyncio.get_running_loop(), compression=Compression.NONE)
    requests = recorder.wrap(Answers(*[[ANSWER + b"hidden"]] * 5), 1)
    login = request_bytes(SaslAuthenticateRequest(auth_bytes=b"hidden"), 2, 7, "a-client")
    configs = request_bytes(AlterConfigsRequest(resources=[]), 2, 7, "hidden")
    for frame in (login, configs):
        requests.start(memoryview(frame)[4:], connection)
    connection.is_authenticated = False
    for frame in (login, request_bytes(MetadataRequest(topics=[]), 12, 7, "hidden"), b"\0\0\0\0hidden and bare"):
        requests.start(memoryview(frame)[4:], connection)
    recorder.close()
    kept = disk.getvalue().count(b"hidden")
    assert kept == 1, "only what answers Metadata, which holds no secret"


async def test_a_judge_that_gets_no_records_decides_as_one_that_gets_them() -> None:
    loop, connection = asyncio.get_running_loop(), ConnectionInfo(1, "localhost", 1, sends_files=True)
    disks = [CountedWrites(), CountedWrites()]
    cut = Recorder(disks[0], loop, compression=Compression.NONE, keeps_records=False)
    whole = Recorder(disks[1], loop, compression=Compression.NONE)
    sound = build_batch([NewRecord(None, b"value" * 2000, 1)], producer_id=5, producer_epoch=0, base_sequence=0)
    damaged = bytearray(sound)
    damaged[-1] ^= 1
    partition = PartitionData(partition_index=0, high_watermark=1, records=[sound])
    fetched = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
    answer = response_writer(FetchResponse.API_KEY, FetchResponse, 12)(7, fetched)
    requests = cut.wrap(whole.wrap(Answers([ANSWER], [ANSWER], answer), 1), 1)  # type: ignore[arg-type]
    for batch in (sound, damaged):
        data = PartitionProduceData(index=0, records=batch)
        request = ProduceRequest(acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=[data])])
        requests.start(memoryview(request_bytes(request, 9, 7, "a-client"))[4:], connection)
    requests.start(memoryview(request_bytes(FetchRequest(topics=[]), 12, 7, "a-client"))[4:], connection)
    cut.close()
    whole.close()
    assert disks[1].getvalue().count(b"valuevalue") == 3000
    assert disks[0].getvalue().count(b"valuevalue") == 1000, "only of the batch whose CRC is wrong"
    assert [len(entry.body) for entry in disks[0].entries()] == [len(entry.body) for entry in disks[1].entries()]
    verdicts = [
        {rule: (tally.kept, tally.broken) for rule, tally in judge(disk.entries).clients()[0].tallies.items()}
        for disk in disks
    ]
    assert verdicts[0] == verdicts[1]
    assert verdicts[0]["PRD.1"] == (1, 1)


async def test_only_who_keeps_records_has_answers_read_from_files() -> None:
    loop = asyncio.get_running_loop()
    for keeps_records in (True, False):
        connection = ConnectionInfo(1, "localhost", 1, sends_files=True)
        recorder = Recorder(CountedWrites(), loop, compression=Compression.NONE, keeps_records=keeps_records)
        recorder.wrap(Answers([ANSWER]), 1).start(FRAME, connection)
        assert connection.sends_files is not keeps_records
        recorder.close()


async def test_a_recorder_that_is_closed_leaves_connections_alone() -> None:
    connection = ConnectionInfo(1, "localhost", 1, sends_files=True)
    disk = CountedWrites()
    recorder = Recorder(disk, asyncio.get_running_loop())
    requests = recorder.wrap(Answers([ANSWER], [ANSWER]), 1)
    requests.start(FRAME, connection)
    assert not connection.sends_files  # what a file sends, nobody sees
    recorder.close()
    written = disk.getvalue()
    assert requests.start(FRAME, connection) == [ANSWER]
    connection.closed()
    assert connection.sends_files
    assert disk.getvalue() == written


async def test_a_reader_that_is_too_slow_is_told_how_much_it_missed() -> None:
    unread = UnreadBlocks(asyncio.get_running_loop(), most_bytes=10)
    unread.write(b"12345")
    unread.write(b"67890")
    unread.write(b"x")
    unread.write(b"y")  # nothing after a hole
    assert await unread.taken(1) == b"1234567890"
    assert unread.left_out == 2
    unread.write(b"z")
    assert unread.left_out == 3
