"""Extracts broker addresses from responses to clients, and checks whether an address reaches a listener."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Final, TypeAlias

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.exchange import read_answer
from odradek.protocol.messages.describe_cluster_response import DescribeClusterResponse
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.protocol.struct import Buffer

Address: TypeAlias = tuple[str, int]  # host and port

WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})


def addresses_in(answer: Buffer, api: ApiKey, version: int) -> list[Address]:
    """Returns the broker addresses in a response, or an empty list if the response cannot be read. `answer` is the
    frame without its length prefix."""
    try:
        message = read_answer(api.value, version, answer, has_length=False).message
    except (MalformedMessage, ValueError, IndexError):
        return []
    return [(host, port) for host, port in _addresses(message) if host and port > 0]


def _addresses(message: object) -> Iterator[Address]:
    if isinstance(message, MetadataResponse | DescribeClusterResponse):
        yield from ((broker.host, broker.port) for broker in message.brokers)
    elif isinstance(message, FindCoordinatorResponse):
        yield message.host, message.port
        yield from ((coordinator.host, coordinator.port) for coordinator in message.coordinators)


async def is_same_place(address: Address, listener: Address) -> bool:
    """Returns whether a connection to `address` reaches `listener`. The host of `listener` can be a wildcard, which
    stands for every address of this machine."""
    (host, port), (listens, listens_at) = address, listener
    if port != listens_at or host == listens:
        return port == listens_at
    found = await _resolved(host, port)
    if listens in WILDCARDS:
        return any(map(_is_local, found))
    return not found.isdisjoint(await _resolved(listens, port))


async def _resolved(host: str, port: int) -> set[str]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return set()
    return {str(socket_address[0]) for *_, socket_address in found}


def _is_local(ip: str) -> bool:
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    with closing(socket.socket(family, socket.SOCK_DGRAM)) as probe:
        try:
            probe.bind((ip, 0))
        except OSError:
            return False
    return True
