"""Tests that a recording can be converted to a capture. The capture has complete TCP connections with valid checksums
and sequence numbers, and contains the recording's frames."""

from __future__ import annotations

import struct
from collections import defaultdict
from pathlib import Path

from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.protocol.recording import Kind, RecordingEntry, pack_block, pack_entries, pack_head
from odradek.tools.inspect.pcap import ACK, FIN, HEAD, MAX_SEGMENT_BYTES, SYN, internet_checksum, packets
from tests.support.commands import command
from tests.support.traces import Trace

Way = tuple[bytes, int, bytes, int]


def conversation() -> Trace:
    trace = Trace()
    peer = trace.connect()
    peer.ask(MetadataRequest(topics=[]), 12, MetadataResponse())
    peer.ask(MetadataRequest(topics=[]), 12, MetadataResponse(cluster_id="x" * 20_000))
    trace.add(Kind.CLOSED, peer.number)
    return trace


class Side:
    """One direction of a connection, as a reader of the capture reassembles it."""

    def __init__(self) -> None:
        self.data = b""
        self.next = 0
        self.flags = 0


def read(capture: bytes) -> dict[Way, Side]:
    """Checks every packet of the capture and returns the data of each direction."""
    sides: dict[Way, Side] = defaultdict(Side)
    position = len(HEAD)
    while position < len(capture):
        _, microseconds, kept, size = struct.unpack_from("<IIII", capture, position)
        assert kept == size
        assert microseconds < 1_000_000
        ip = capture[position + 16 + 14 : position + 16 + size]
        position += 16 + size
        assert internet_checksum(ip[:20]) in (0, 0xFFFF)
        assert int.from_bytes(ip[2:4]) == len(ip)
        segment = ip[20:]
        pseudo = ip[12:20] + struct.pack(">BBH", 0, 6, len(segment))
        assert internet_checksum(pseudo + segment) in (0, 0xFFFF)
        source, target, sequence, acknowledged, _, flags = struct.unpack_from(">HHIIBB", segment)
        side = sides[ip[12:16], source, ip[16:20], target]
        other = sides[ip[16:20], target, ip[12:16], source]
        assert flags & SYN or sequence == side.next
        assert not flags & ACK or acknowledged == other.next
        side.flags |= flags
        side.data += segment[20:]
        side.next = sequence + len(segment) - 20 + bool(flags & (SYN | FIN))
    return sides


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4) + body for body in bodies)


def bodies(trace: Trace, kind: Kind) -> list[bytes]:
    return [entry.body for entry in trace.entries if entry.kind is kind]


def test_each_connection_carries_its_frames_in_numbered_segments() -> None:
    trace = conversation()
    sides = read(b"".join(packets(trace.entries, 1_700_000_000_000)))
    requests, answers = sorted(sides.items(), key=lambda each: -each[0][3])
    assert len(sides) == 2
    client, broker = (requests[1], answers[1]) if requests[0][3] == 9092 else (answers[1], requests[1])
    assert client.data == framed(*bodies(trace, Kind.RECEIVED))
    assert broker.data == framed(*bodies(trace, Kind.ANSWERED))
    assert client.flags & broker.flags & (SYN | FIN | ACK) == SYN | FIN | ACK


def test_a_large_frame_takes_several_segments() -> None:
    trace = Trace()
    peer = trace.connect()
    peer.ask(MetadataRequest(topics=[]), 12, MetadataResponse(cluster_id="x" * 20_000))
    trace.entries[-2 if trace.entries[-1].kind is Kind.WRITTEN else -1].body *= 8
    data = b"".join(side.data for side in read(b"".join(packets(trace.entries, 0))).values())
    assert len(data) > 2 * MAX_SEGMENT_BYTES


def test_answers_stand_in_the_order_of_their_requests() -> None:
    entries = [
        RecordingEntry(Kind.RECEIVED, 1, 1, 10, b"first"),
        RecordingEntry(Kind.RECEIVED, 1, 2, 20, b"second"),
        RecordingEntry(Kind.RECEIVED, 1, 3, 20, b"third, which is never answered"),
        RecordingEntry(Kind.RECEIVED, 1, 4, 20, b"fourth"),
        RecordingEntry(Kind.ANSWERED, 1, 4, 30, b"IV"),
        RecordingEntry(Kind.UNANSWERED, 1, 3, 40),
        RecordingEntry(Kind.ANSWERED, 1, 2, 50, b"II"),
        RecordingEntry(Kind.ANSWERED, 1, 1, 60, b"I"),
    ]
    sides = read(b"".join(packets(entries, 0)))
    assert framed(b"I", b"II", b"IV") in [side.data for side in sides.values()]


def test_the_command_writes_a_capture(tmp_path: Path) -> None:
    trace = conversation()
    recording, capture = tmp_path / "recording", tmp_path / "capture"
    recording.write_bytes(pack_head(0) + pack_block(pack_entries(trace.entries)))
    assert command("inspect", "--pcap", str(capture), str(recording)).returncode == 0
    assert len(read(capture.read_bytes())) == 2
    assert command("inspect", "--pcap", str(capture), str(tmp_path / "none")).returncode == 1
