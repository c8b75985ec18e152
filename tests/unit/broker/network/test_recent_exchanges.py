"""Tests the exchanges that connections keep so that client tests can inspect them. Their number and their total size
are limited."""

from dataclasses import dataclass

import pytest

from odradek.broker.control.problems import Problem
from odradek.broker.control.recording.exchanges import Exchanges
from odradek.broker.network.controlled_connection import ControlledConnection, observe
from odradek.broker.network.recent_exchanges import (
    MAX_BYTES,
    MAX_EXCHANGES,
    MAX_KEPT_BYTES,
    RecentExchange,
)
from odradek.broker.network.server import Server
from odradek.broker.runtime.controlled_time import Pace
from odradek.broker.runtime.replies import CloseConnection
from odradek.protocol.file_slice import Chunk
from odradek.protocol.frames import request_bytes, response_chunks
from odradek.protocol.messages.alter_user_scram_credentials_request import AlterUserScramCredentialsRequest
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.protocol.struct import Message
from tests.support.peer import Answering, DelayedAnswer, Peer, server_around


def frame(name: str = "t", message: Message | None = None, version: int = 12) -> bytes:
    request = message or MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    return request_bytes(request, version, 7, "a-client")


@dataclass
class SetClock:
    """A clock whose time a test sets."""

    pace: Pace


def kept_by(*replies: list[Chunk] | DelayedAnswer | CloseConnection) -> tuple[Peer, Exchanges, SetClock]:
    time = SetClock(Pace(5, 0.0, 0.0, True))
    exchanges = Exchanges(time, lambda: 1.0)

    return peer_of(server_around(Answering(*replies)), exchanges), exchanges, time


def peer_of(server: Server, exchanges: Exchanges) -> Peer:
    if not server.observers:
        observe(server, [exchanges.recent])
    return Peer(server, make_connection=ControlledConnection)


def answer() -> list[Chunk]:
    return list(response_chunks(3, 12, 7, MetadataResponse(brokers=[], topics=[])))


def answer_of(exchange: RecentExchange) -> Chunk | None:
    return None if exchange.answered is None else exchange.answered[2]


async def test_the_last_exchanges_are_kept_and_can_be_filtered() -> None:
    peer, exchanges, _ = kept_by()
    for number in range(MAX_EXCHANGES + 250):
        peer.send(frame(f"t{number}"))
    found = list(exchanges.completed_since(0, None, None))
    assert [found[0]["number"], found[-1]["number"], len(found)] == [251, MAX_EXCHANGES + 250, MAX_EXCHANGES]
    assert list(exchanges.completed_since(MAX_EXCHANGES + 249, "Metadata", "a-client")) == found[-1:]
    assert list(exchanges.completed_since(0, "Produce", None)) == []
    assert list(exchanges.completed_since(0, None, "another")) == []


async def test_an_exchange_has_the_times_of_the_clock_as_it_was_then() -> None:
    later = DelayedAnswer()
    peer, exchanges, time = kept_by(later)
    peer.send(frame())
    (waiting,) = exchanges.completed_since(0, None, None)
    assert (waiting["received_ms"], waiting["answered_ms"], waiting["answer"]) == (5, None, None)
    time.pace = Pace(7, 0.5, 100.0, False)
    later.give(answer())
    (exchange,) = exchanges.completed_since(0, None, None)
    assert (exchange["received_ms"], exchange["answered_ms"], exchange["closed"]) == (5, 607, False)
    assert exchange["answer"] is not None
    assert exchange["client_id"] == "a-client"


async def test_an_answer_belongs_to_its_request_also_where_earlier_ones_have_none() -> None:
    first, second = DelayedAnswer(), DelayedAnswer()
    peer, exchanges, _ = kept_by(first, second)
    peer.send(frame("one") + frame("two"))
    second.give(answer())  # this response waits for the first one
    assert [each["answered_ms"] for each in exchanges.completed_since(0, None, None)] == [None, None]
    (client,) = exchanges.clients()
    assert (client.client_id, client.in_flight) == ("a-client", 2)
    first.give([])
    assert [each["answer_bytes"] for each in exchanges.completed_since(0, None, None)] == [0, sum(map(len, answer()))]
    assert [each.in_flight for each in exchanges.clients()] == [0]


@pytest.mark.parametrize("is_parked", [False, True])
async def test_a_connection_that_is_closed_instead_of_a_response_is_reported(is_parked: bool) -> None:
    later, earlier = DelayedAnswer(), DelayedAnswer()
    peer, exchanges, _ = kept_by(*((later, earlier) if is_parked else (earlier, CloseConnection("a fault"))))
    peer.send(frame("one") + frame("two"))
    if is_parked:
        later.give(CloseConnection("a fault"))
    else:
        earlier.give(answer())
    closed = [each["closed"] for each in exchanges.completed_since(0, None, None)]
    answered = [each["answered_ms"] for each in exchanges.completed_since(0, None, None)]
    assert closed == ([True, False] if is_parked else [False, True])
    assert answered == ([5, None] if is_parked else [5, 5])


async def test_a_client_is_forgotten_when_its_connection_is_lost() -> None:
    peer, exchanges, _ = kept_by()
    peer.send(frame())
    assert exchanges.client(peer.connection.info) is not None
    peer.connection.connection_lost(None)
    assert exchanges.client(peer.connection.info) is None


async def test_the_bytes_of_all_are_bounded_also_by_late_answers() -> None:
    waiting = [DelayedAnswer() for _ in range(MAX_EXCHANGES)]
    exchanges = Exchanges(SetClock(Pace(5, 0.0, 0.0, True)), lambda: 1.0)
    server = server_around(Answering(*waiting))
    for _ in waiting:
        peer_of(server, exchanges).send(frame())
    for each in waiting:
        each.give([bytes(MAX_KEPT_BYTES)])
    kept = list(exchanges.completed_since(0, None, None))
    assert 0 < len(kept) <= MAX_BYTES // MAX_KEPT_BYTES
    assert exchanges.recent.stored_bytes == sum(
        len(each.request) + len(answer_of(each) or b"") for each in exchanges.recent.exchanges
    )


async def test_an_answer_that_comes_when_its_request_is_left_behind_is_not_kept() -> None:
    late = DelayedAnswer()
    exchanges = Exchanges(SetClock(Pace(5, 0.0, 0.0, True)), lambda: 1.0)
    server = server_around(Answering(late))
    slow, quick = peer_of(server, exchanges), peer_of(server, exchanges)
    slow.send(frame())
    for _ in range(2 * MAX_EXCHANGES):
        quick.send(frame())
    bytes_before = exchanges.recent.stored_bytes
    late.give([bytes(MAX_KEPT_BYTES)])
    assert exchanges.recent.stored_bytes == bytes_before


async def test_bodies_that_are_too_large_are_replaced_by_their_size() -> None:
    large = frame("t" * MAX_KEPT_BYTES)
    peer, exchanges, _ = kept_by([bytes(MAX_KEPT_BYTES), b"1"])
    peer.send(large)
    (exchange,) = exchanges.completed_since(0, None, None)
    assert (exchange["request"], exchange["answer"]) == (None, None)
    assert (exchange["request_bytes"], exchange["answer_bytes"]) == (len(large) - 4, MAX_KEPT_BYTES + 1)


async def test_secrets_are_not_kept() -> None:
    peer, exchanges, _ = kept_by([b"a secret answer"])
    peer.send(frame(message=AlterUserScramCredentialsRequest(), version=0))
    (exchange,) = exchanges.completed_since(0, None, None)
    assert (exchange["api"], exchange["request"], exchange["answer"]) == ("AlterUserScramCredentials", None, None)
    (kept,) = exchanges.recent.exchanges
    assert (len(kept.request), answer_of(kept)) == (8, None)


async def test_bytes_of_a_login_are_no_exchange() -> None:
    peer, exchanges, _ = kept_by([b"1234"], answer())
    peer.connection.info.is_authenticated = False
    peer.send(b"\0\0\0\x0d\0alice\0secret")
    peer.connection.info.is_authenticated = True
    peer.send(frame())
    (exchange,) = exchanges.completed_since(0, None, None)
    assert exchange["answer_bytes"] == sum(map(len, answer()))
    assert exchanges.recent.stored_bytes < 200


async def test_frames_that_are_not_kafka_requests_are_left_out() -> None:
    peer, exchanges, _ = kept_by()
    peer.send(b"\0\0\0\x08\x7f\x7f\0\0\0\0\0\0" + b"\0\0\0\x02\0\3" + frame())
    assert [each["number"] for each in exchanges.completed_since(0, None, None)] == [3]


async def test_reading_exchanges_that_are_not_kept_names_the_setting() -> None:
    exchanges = Exchanges(SetClock(Pace(5, 0.0, 0.0, True)), lambda: 1.0)
    exchanges.are_kept = False
    with pytest.raises(Problem, match=r"odradek\.control\.requests\.enable"):
        list(exchanges.completed_since(0, None, None))
    with pytest.raises(Problem, match=r"odradek\.control\.requests\.enable"):
        exchanges.clients()
