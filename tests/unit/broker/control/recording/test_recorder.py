"""Tests that a recorder records clients' exchanges, uses little time on the loop, and uses a bounded amount of memory.
If too many bytes are waiting, the loop writes them itself, or the recording ends because its reader is too slow."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from io import BytesIO

from odradek.broker.api.context import ConnectionInfo
from odradek.broker.control.http.live_recording import UnreadBlocks, pass_on
from odradek.broker.control.recording.recorder import MAX_SYSTEM_CALLS, Recorder
from odradek.broker.network.admission import ConnectionLimits
from odradek.broker.network.connection_host import LoginCounts
from odradek.broker.network.controlled_connection import ControlledConnection, observe
from odradek.broker.network.server import Server
from odradek.broker.runtime.replies import CloseConnection, ParkedRequest
from odradek.protocol.compression import Compression
from odradek.protocol.file_slice import Chunk
from odradek.protocol.frames import request_bytes, response_writer
from odradek.protocol.messages.alter_configs_request import AlterConfigsRequest
from odradek.protocol.messages.fetch_request import FetchRequest
from odradek.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from odradek.protocol.recording import Kind, Recording, RecordingEntry
from odradek.protocol.records import NewRecord, build_batch
from odradek.testing.judge.judging import judge
from tests.support.peer import Answering, DelayedAnswer, FakeTransport, Peer, server_around
from tests.support.requests import produce_request

FRAME = request_bytes(MetadataRequest(topics=[]), 12, 7, "a-client")
ANSWER = b"\0\0\0\x04\0\0\0\x07"


class CountedWrites(BytesIO):
    """Counts writes. The written data can still be read after `close`."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    def write(self, data: object, /) -> int:
        self.writes += 1
        return super().write(data)  # type: ignore[arg-type]

    def close(self) -> None:
        """Does nothing, so that tests can read the written data."""

    def entries(self) -> list[RecordingEntry]:
        return list(Recording(BytesIO(self.getvalue()).read).entries())


class Answers:
    """Answers each request with the next of the given responses. None closes the connection."""

    logins: LoginCounts | None = None

    def __init__(self, *answers: Sequence[bytes] | None) -> None:
        self._answers = list(answers)

    def connected(self, connection: ConnectionInfo) -> None:
        """Accepts every connection."""

    def too_long(self, reason: str, connection: ConnectionInfo) -> ParkedRequest | None:
        return None

    def start(self, frame: memoryview, connection: ConnectionInfo) -> list[Chunk] | ParkedRequest:
        answer = self._answers.pop(0)
        if answer is None:
            raise CloseConnection("no more of you")
        return list(answer)


class SlowTransport(FakeTransport):
    """A transport that reports `unsent_bytes` as unsent."""

    unsent_bytes = 1

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes


def kinds(entries: list[RecordingEntry]) -> list[tuple[Kind, int, int]]:
    return [(entry.kind, entry.connection, entry.exchange) for entry in entries]


def peer_of(server: Server, *recorders: Recorder, transport: FakeTransport | None = None) -> Peer:
    if not server.observers:
        observe(server, [recorder.observer_of(1) for recorder in recorders])
    return Peer(server, make_connection=ControlledConnection, transport=transport)


async def test_the_loop_writes_blocks_itself_if_too_many_bytes_wait() -> None:
    disk = CountedWrites()
    recorder = Recorder(disk, asyncio.get_running_loop(), max_waiting_bytes=1000)
    peer = peer_of(server_around(Answers(*[[ANSWER], []] * 50)), recorder)
    for _ in range(100):  # all requests arrive in one turn of the loop, so no thread gets any work
        peer.send(FRAME)
    assert disk.writes > 5  # the head, and the writes made by the loop itself
    recorder.close()
    entries = disk.entries()
    assert [entry.exchange for entry in entries if entry.kind is Kind.RECEIVED] == list(range(1, 101))
    assert [entry.time_us for entry in entries] == sorted(entry.time_us for entry in entries)
    assert [entry.body for entry in entries if entry.kind is Kind.ANSWERED] == [ANSWER[4:]] * 50


async def test_an_answer_has_left_when_nothing_is_unsent_and_never_before_what_came_with_its_request() -> None:
    disk, unsent = CountedWrites(), SlowTransport()
    recorder = Recorder(disk, asyncio.get_running_loop(), compression=Compression.NONE)
    server = server_around(Answers(*[[ANSWER]] * 5))
    slow, quick = peer_of(server, recorder, transport=unsent), peer_of(server, recorder)
    slow.send(FRAME)
    quick.send(FRAME + FRAME)  # this peer reads its responses immediately
    slow.send(FRAME)
    quick.send(FRAME)
    while recorder.unwritten:  # until a tick writes the entries
        unsent.unsent_bytes = 0
        await asyncio.sleep(0.001)
    recorder.close()
    entries = disk.entries()
    assert [each for each in kinds(entries) if each[0] not in (Kind.ANSWERED, Kind.OPENED)] == [
        (Kind.RECEIVED, 1, 1),
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
    assert [entry.exchange for entry in entries if entry.is_behind] == [3, 4]


async def test_under_load_requests_are_marked_unsure_once_the_system_calls_are_used_up() -> None:
    disk, load = CountedWrites(), 2 * MAX_SYSTEM_CALLS
    recorder = Recorder(disk, asyncio.get_running_loop(), compression=Compression.NONE)
    peer = peer_of(server_around(Answers(*[[ANSWER]] * (load + 3))), recorder)
    # All requests arrive in one turn of the loop, so no tick adds to the query budget.
    for _ in range(load):
        peer.send(FRAME)
    while recorder.unwritten:  # a tick writes, and also queries the unsent bytes
        await asyncio.sleep(0.001)
    peer.send(FRAME)
    recorder.close()
    received = [entry for entry in disk.entries() if entry.kind is Kind.RECEIVED]
    unsure = [entry.exchange for entry in received if entry.is_unsure]
    assert unsure == list(range(MAX_SYSTEM_CALLS + 2, load + 1))
    assert not [entry for entry in received if entry.is_behind]


async def test_an_answer_belongs_to_the_oldest_request_that_has_none() -> None:
    disk, first, second = CountedWrites(), DelayedAnswer(), DelayedAnswer()
    recorder = Recorder(disk, asyncio.get_running_loop(), compression=Compression.NONE)
    peer = peer_of(server_around(Answering(first, second)), recorder)
    peer.send(FRAME + FRAME)
    second.give([ANSWER + b"2"])
    first.give([ANSWER + b"1"])
    recorder.close()
    answered = [(entry.exchange, entry.body[4:]) for entry in disk.entries() if entry.kind is Kind.ANSWERED]
    assert answered == [(1, b"1"), (2, b"2")]


async def test_responses_to_requests_from_before_the_recording_are_not_recorded() -> None:
    disk, early, late = CountedWrites(), DelayedAnswer(), DelayedAnswer()
    server = server_around(Answering(early, late))
    peer = Peer(server, make_connection=ControlledConnection)
    peer.send(FRAME)
    recorder = Recorder(disk, asyncio.get_running_loop(), compression=Compression.NONE)
    observe(server, [recorder.observer_of(1)])
    peer.send(FRAME)
    early.give([ANSWER + b"early"])
    late.give([ANSWER + b"late"])
    recorder.close()
    answered = [(entry.exchange, entry.body[4:]) for entry in disk.entries() if entry.kind is Kind.ANSWERED]
    assert answered == [(1, b"late")]


async def test_a_connection_that_is_closed_instead_of_a_response_is_recorded() -> None:
    disk = CountedWrites()
    recorder = Recorder(disk, asyncio.get_running_loop(), compression=Compression.NONE)
    peer = peer_of(server_around(Answers(None)), recorder)
    peer.send(FRAME)
    peer.hang_up()
    recorder.close()
    assert kinds(disk.entries())[1:] == [(Kind.RECEIVED, 1, 1), (Kind.HUNG_UP, 1, 1), (Kind.CLOSED, 1, 0)]


async def test_a_close_instead_of_a_response_is_recorded_before_the_response_to_an_older_request() -> None:
    disk, older = CountedWrites(), DelayedAnswer()
    recorder = Recorder(disk, asyncio.get_running_loop(), compression=Compression.NONE)
    peer = peer_of(server_around(Answering(older, CloseConnection("no more of you"))), recorder)
    peer.send(FRAME + FRAME)
    older.give([ANSWER])
    recorder.close()
    events = [each for each in kinds(disk.entries()) if each[0] is not Kind.WRITTEN]
    assert events[1:] == [(Kind.RECEIVED, 1, 1), (Kind.RECEIVED, 1, 2), (Kind.HUNG_UP, 1, 2), (Kind.ANSWERED, 1, 1)]


async def test_a_request_that_is_too_long_is_no_exchange() -> None:
    disk = CountedWrites()
    recorder = Recorder(disk, asyncio.get_running_loop(), compression=Compression.NONE)
    older = DelayedAnswer()
    peer = peer_of(server_around(Answering(older), ConnectionLimits(max_request_bytes=1000)), recorder)
    peer.send(FRAME + b"\0\1\0\0")
    older.give([ANSWER])
    recorder.close()
    events = [each for each in kinds(disk.entries()) if each[0] is not Kind.WRITTEN]
    assert events[1:] == [(Kind.RECEIVED, 1, 1), (Kind.ANSWERED, 1, 1)]


async def test_no_secret_gets_into_a_block() -> None:
    disk = CountedWrites()
    recorder = Recorder(disk, asyncio.get_running_loop(), compression=Compression.NONE)
    peer = peer_of(server_around(Answers(*[[ANSWER + b"hidden"]] * 5)), recorder)
    login = request_bytes(SaslAuthenticateRequest(auth_bytes=b"hidden"), 2, 7, "a-client")
    for frame in (login, request_bytes(AlterConfigsRequest(resources=[]), 2, 7, "hidden")):
        peer.send(frame)
    peer.connection.info.is_authenticated = False
    bare = b"\0\0\0\x0fhidden and bare"
    for frame in (login, request_bytes(MetadataRequest(topics=[]), 12, 7, "hidden"), bare):
        peer.send(frame)
    recorder.close()
    kept = disk.getvalue().count(b"hidden")
    assert kept == 1, "only what answers Metadata, which holds no secret"


async def test_a_judge_that_gets_no_records_decides_as_one_that_gets_them() -> None:
    loop = asyncio.get_running_loop()
    disks = [CountedWrites(), CountedWrites()]
    cut = Recorder(disks[0], loop, compression=Compression.NONE, keeps_records=False)
    whole = Recorder(disks[1], loop, compression=Compression.NONE)
    sound = build_batch([NewRecord(None, b"value" * 2000, 1)], producer_id=5, producer_epoch=0, base_sequence=0)
    damaged = bytearray(sound)
    damaged[-1] ^= 1
    partition = PartitionData(partition_index=0, high_watermark=1, records=[sound])
    fetched = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
    answer = response_writer(FetchResponse.API_KEY, FetchResponse, 12)(7, fetched)
    peer = peer_of(server_around(Answers([ANSWER], [ANSWER], answer)), cut, whole)  # type: ignore[arg-type]
    for batch in (sound, damaged):
        request = produce_request("t", batch, acks=1)
        peer.send(request_bytes(request, 9, 7, "a-client"))
    peer.send(request_bytes(FetchRequest(topics=[]), 12, 7, "a-client"))
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


async def test_only_a_recorder_that_keeps_records_turns_off_sending_from_files() -> None:
    for keeps_records in (True, False):
        server = server_around(Answers([ANSWER]))
        peer = Peer(server, make_connection=ControlledConnection)
        peer.connection.info.sends_files = True
        loop, disk = asyncio.get_running_loop(), CountedWrites()
        recorder = Recorder(disk, loop, compression=Compression.NONE, keeps_records=keeps_records)
        observe(server, [recorder.observer_of(1)])
        peer.send(FRAME)
        assert peer.connection.info.sends_files is not keeps_records
        recorder.close()


async def test_a_recorder_that_is_closed_leaves_connections_alone() -> None:
    disk, server = CountedWrites(), server_around(Answers([ANSWER], [ANSWER]))
    peer = Peer(server, make_connection=ControlledConnection)
    peer.connection.info.sends_files = True
    recorder = Recorder(disk, asyncio.get_running_loop())
    observe(server, [recorder.observer_of(1)])
    peer.send(FRAME)
    assert not peer.connection.info.sends_files  # the recorder cannot see bytes sent from a file
    recorder.close()
    written = disk.getvalue()
    peer.send(FRAME)
    assert peer.frames() == [ANSWER[4:]] * 2
    peer.hang_up()
    assert peer.connection.info.sends_files
    assert disk.getvalue() == written


async def test_a_reader_that_is_too_slow_is_told_how_much_it_missed() -> None:
    unread = UnreadBlocks(asyncio.get_running_loop(), max_bytes=10)
    unread.write(b"12345")
    unread.write(b"67890")
    unread.write(b"x")
    unread.write(b"y")  # nothing may follow a gap
    assert await unread.wait_for_blocks(1) == b"1234567890"
    assert unread.left_out == 2
    unread.write(b"z")
    assert unread.left_out == 3


async def test_the_last_exchanges_of_a_deleted_cluster_reach_the_reader() -> None:
    """Checks that the reader also receives a deleted cluster's latest exchanges, which had not filled a block yet."""
    loop = asyncio.get_running_loop()
    unread = UnreadBlocks(loop)
    recorder = Recorder(unread, loop, compression=Compression.NONE)
    received = [await unread.wait_for_blocks(1)]
    recorder.record_event({"called": "last"})

    async def write(data: bytes) -> None:
        received.append(data)

    await pass_on(recorder, unread, write, is_there=lambda: False, is_read=lambda: True, check_interval_s=0)
    (entry,) = Recording(BytesIO(b"".join(received)).read).entries()
    assert (entry.kind, entry.body) == (Kind.EVENT, b'{"called": "last"}')
