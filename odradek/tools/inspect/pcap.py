"""Converts a recording to a capture file (pcap) for Wireshark and tshark, with invented Ethernet, IPv4 and TCP headers.

Each connection has a handshake and sequence numbers, and if it was closed, also packets that close it. Responses appear
in the order of their requests, as they were sent.

A broker's address is 10.0.0.1 plus its node id. Its port is 9092, on which Wireshark expects Kafka. A client keeps its
own address if it is an IPv4 address. Masked frames are as short as in the recording.
"""

from __future__ import annotations

import ipaddress
import json
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from struct import Struct as Packing
from typing import Final

from odradek.protocol.frames import LENGTH
from odradek.protocol.recording import Kind, RecordingEntry

HEAD: Final = Packing("<IHHiIII").pack(0xA1B2C3D4, 2, 4, 0, 0, 262_144, 1)  # times in µs; link type 1 (Ethernet)
_PACKET: Final = Packing("<IIII")
_ETHERNET: Final = bytes.fromhex("020000000001 020000000002 0800")
_IP: Final = Packing(">BBHHHBBH4s4s")
_TCP: Final = Packing(">HHIIBBHHH")
_PSEUDO: Final = Packing(">4s4sBBH")
MAX_SEGMENT_BYTES: Final = 60_000  # an IPv4 packet has at most 65,535 bytes
KAFKA_PORT: Final = 9092
FIRST_CLIENT: Final = int(ipaddress.IPv4Address("10.1.0.0"))
FIRST_NODE: Final = int(ipaddress.IPv4Address("10.0.0.1"))
TCP: Final = 6
FIN, SYN, PUSH, ACK = 1, 2, 8, 16


@dataclass(slots=True)
class _Endpoint:
    """One end of a TCP connection. `sequence` is the sequence number of the next byte that it sends."""

    address: bytes
    port: int
    sequence: int


@dataclass(slots=True)
class _Capture:
    """One TCP connection.

    exchanges  the exchanges whose responses have not yet been written, in order
    responses  responses waiting for the responses to earlier requests, keyed by exchange
    """

    client: _Endpoint
    broker: _Endpoint
    exchanges: deque[int] = field(default_factory=deque)
    responses: dict[int, bytes] = field(default_factory=dict)


def packets(entries: Iterable[RecordingEntry], started_ms: int) -> Iterator[bytes]:
    """Yields the capture file in pieces: its header, and then its packets."""
    yield HEAD
    captures: dict[int, _Capture] = {}
    for entry in entries:
        at_us = started_ms * 1000 + entry.time_us
        capture = captures.get(entry.connection)
        if entry.kind is Kind.CLOSED:
            if capture is not None:
                del captures[entry.connection]
                yield from _closing_packets(capture, at_us)
            continue
        if entry.kind in (Kind.WRITTEN, Kind.EVENT):
            continue
        if capture is None:  # the entry is OPENED, or the recording started after the connection was opened
            details = json.loads(entry.body) if entry.kind is Kind.OPENED else {}
            capture = captures[entry.connection] = _capture(entry.connection, details)
            yield from _opening_packets(capture, at_us)
        if entry.kind is Kind.RECEIVED:
            capture.exchanges.append(entry.exchange)
            yield from _frame_packets(capture.client, capture.broker, entry.body, at_us)
        elif entry.kind is not Kind.OPENED and entry.exchange in capture.exchanges:
            capture.responses[entry.exchange] = entry.body
            while capture.exchanges and (answer := capture.responses.pop(capture.exchanges[0], None)) is not None:
                capture.exchanges.popleft()
                yield from _frame_packets(capture.broker, capture.client, answer, at_us)


def _capture(number: int, details: dict[str, object]) -> _Capture:
    try:
        client = ipaddress.IPv4Address(str(details.get("host"))).packed
        port = int(str(details.get("port")))
    except ValueError:
        client, port = (FIRST_CLIENT + number).to_bytes(4), 40_000
    node = max(0, int(str(details.get("node", 0)))) % 65_536
    return _Capture(_Endpoint(client, port, 1_000), _Endpoint((FIRST_NODE + node).to_bytes(4), KAFKA_PORT, 5_000))


def _opening_packets(capture: _Capture, at_us: int) -> Iterator[bytes]:
    client, broker = capture.client, capture.broker
    yield _packet(client, broker, SYN, b"", at_us, with_ack=False)
    client.sequence += 1
    yield _packet(broker, client, SYN | ACK, b"", at_us)
    broker.sequence += 1
    yield _packet(client, broker, ACK, b"", at_us)


def _closing_packets(capture: _Capture, at_us: int) -> Iterator[bytes]:
    for one, other in ((capture.client, capture.broker), (capture.broker, capture.client)):
        yield _packet(one, other, FIN | ACK, b"", at_us)
        one.sequence += 1
    yield _packet(capture.client, capture.broker, ACK, b"", at_us)


def _frame_packets(sender: _Endpoint, receiver: _Endpoint, frame: bytes, at_us: int) -> Iterator[bytes]:
    """Yields a frame's packets. The frame is passed without its length. Yields nothing for an empty frame."""
    data = LENGTH.pack(len(frame)) + frame if frame else b""
    for start in range(0, len(data), MAX_SEGMENT_BYTES):
        part = data[start : start + MAX_SEGMENT_BYTES]
        yield _packet(sender, receiver, PUSH | ACK, part, at_us)
        sender.sequence = (sender.sequence + len(part)) % 2**32


def _packet(
    sender: _Endpoint, receiver: _Endpoint, flags: int, data: bytes, at_us: int, *, with_ack: bool = True
) -> bytes:
    acknowledged = receiver.sequence if with_ack else 0
    size = _TCP.size + len(data)
    pseudo = _PSEUDO.pack(sender.address, receiver.address, 0, TCP, size)
    ports = sender.port, receiver.port
    head = _TCP.pack(*ports, sender.sequence, acknowledged, _TCP.size // 4 << 4, flags, 65_535, 0, 0)
    checksum = internet_checksum(pseudo + head + data)
    segment = _TCP.pack(*ports, sender.sequence, acknowledged, _TCP.size // 4 << 4, flags, 65_535, checksum, 0) + data
    addresses = sender.address, receiver.address
    blank = _IP.pack(0x45, 0, _IP.size + size, 0, 0x4000, 64, TCP, 0, *addresses)
    ip = _IP.pack(0x45, 0, _IP.size + size, 0, 0x4000, 64, TCP, internet_checksum(blank), *addresses)
    packet = _ETHERNET + ip + segment
    seconds, microseconds = divmod(at_us, 1_000_000)
    return _PACKET.pack(seconds, microseconds, len(packet), len(packet)) + packet


def internet_checksum(data: bytes) -> int:
    """Computes the internet checksum (RFC 1071) from the sum of 16-bit words in ones' complement. The checksum of data
    that contains its own checksum is 0."""
    whole = int.from_bytes(data + b"\0" * (len(data) % 2)) % 0xFFFF  # 2¹⁶ is 1 modulo 2¹⁶ - 1
    return 0xFFFF - whole
