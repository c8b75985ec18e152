"""The client of the commands: peers that are not brokers, older brokers, addresses."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from odradek.admin.cluster import parse_address
from odradek.admin.connection import AdminError, Connection, Refused, check
from odradek.transactions.listing import Described
from protocol.api_keys import ApiKey
from protocol.frames import LENGTH, response_chunks
from protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from protocol.messages.list_transactions_request import ListTransactionsRequest
from protocol.messages.metadata_request import MetadataRequest

Answer = Callable[[bytes], bytes]


@contextmanager
def peer(answer: Answer) -> Iterator[int]:
    """Listens on the port it gives, answers one request on one connection with these bytes, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def run() -> None:
            connection, _ = server.accept()
            with connection:
                (size,) = LENGTH.unpack(connection.recv(LENGTH.size))
                connection.sendall(answer(connection.recv(size)))

        thread = threading.Thread(target=run)
        thread.start()
        yield server.getsockname()[1]
        thread.join(10)


def versions(*rows: tuple[ApiKey, int, int]) -> Answer:
    keys = [ApiVersion(api_key=key.value, min_version=least, max_version=most) for key, least, most in rows]

    def answer(request: bytes) -> bytes:
        (correlation_id,) = LENGTH.unpack_from(request, 4)
        return b"".join(
            response_chunks(ApiKey.API_VERSIONS.value, 0, correlation_id, ApiVersionsResponse(api_keys=keys))
        )

    return answer


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        (b"", "closed the connection instead of answering"),
        (b"\0\0\0\7\0\0", "closed the connection instead of answering"),
        (b"HTTP/1.1 400 Bad Request\r\n", "does not speak Kafka's protocol: it announced 1213486160 bytes"),
        (b"\0\0\0\4\0\0\0\1", "does not speak Kafka's protocol: "),
        (b"\0\0\0\x0a\0\0\0\2\0\0\0\0\0\0", "does not speak Kafka's protocol: it answers something else"),
    ],
)
def test_a_peer_that_is_no_broker_is_said_to_be_none(said: bytes, complaint: str) -> None:
    with peer(lambda _: said) as port, pytest.raises(AdminError, match=complaint):
        Connection("127.0.0.1", port, 10)


def test_the_newest_version_that_both_know_is_spoken() -> None:
    rows = versions((ApiKey.METADATA, 0, 5), (ApiKey.LIST_TRANSACTIONS, 0, 99))
    with peer(rows) as port, Connection("127.0.0.1", port, 10) as connection:
        assert connection.version_for(MetadataRequest) == 5
        assert connection.version_for(MetadataRequest, highest=3) == 3
        assert connection.version_for(ListTransactionsRequest) == ListTransactionsRequest.MAX_VERSION


def test_what_a_broker_does_not_serve_is_said_before_it_is_asked() -> None:
    with peer(versions((ApiKey.METADATA, 90, 99))) as port, Connection("127.0.0.1", port, 10) as connection:
        for request in (MetadataRequest, ListTransactionsRequest):
            with pytest.raises(AdminError, match=rf"does not serve {ApiKey(request.API_KEY).name} in a version"):
                connection.version_for(request)


def test_codes_are_said_by_name_and_unknown_ones_by_number() -> None:
    check(0, "nothing")
    with pytest.raises(Refused, match=r"^the topic t: UNKNOWN_TOPIC_OR_PARTITION \(gone\)$"):
        check(3, "the topic t", "gone")
    with pytest.raises(Refused, match=r"^the topic t: error 9999$"):
        check(9999, "the topic t")


@pytest.mark.parametrize(
    ("address", "parsed"),
    [("host", ("host", 9092)), ("host:1", ("host", 1)), ("[::1]:7", ("::1", 7)), ("[::1]", ("::1", 9092))],
)
def test_addresses(address: str, parsed: tuple[str, int]) -> None:
    assert parse_address(address) == parsed


@pytest.mark.parametrize("address", ["host:", "host:kafka", ":9092"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(AdminError, match="it takes host:port"):
        parse_address(address)


def test_a_transaction_is_open_from_its_start_until_all_its_partitions_have_their_marker() -> None:
    def described(started_ms: int | None, *partitions: tuple[str, int]) -> Described:
        return Described("pay", 1, 7, 0, "any", 60_000, started_ms, partitions)

    assert described(1_000, ("t", 0)).open_for_ms(1_500) == 500
    assert described(1_000, ("t", 0)).open_for_ms(900) == 0  # another machine's clock
    assert described(1_000).open_for_ms(1_500) is None
    assert described(None).open_for_ms(1_500) is None
