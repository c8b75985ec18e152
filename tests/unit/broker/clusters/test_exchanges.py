"""How many exchanges a cluster remembers, and how many of their bytes."""

from odradek.broker.api.context import ConnectionInfo
from odradek.broker.clusters.exchanges import MOST_BYTES, MOST_EXCHANGES, MOST_KEPT_BYTES, ClusterExchange, Exchanges
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from tests.support.clock import ManualClock

CONNECTION = ConnectionInfo(1, "localhost", 1)


def frame(name: str = "t") -> memoryview:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    return memoryview(request_bytes(request, 12, 7, "a-client"))[4:]


def begun(exchanges: Exchanges, request: memoryview) -> ClusterExchange:
    exchange = exchanges.begin(request, CONNECTION)
    assert exchange is not None
    return exchange


def test_the_last_ones_are_remembered_and_chosen() -> None:
    exchanges = Exchanges(ManualClock(5))
    for number in range(MOST_EXCHANGES + 10):
        begun(exchanges, frame(f"t{number}"))
    found = list(exchanges.since(0, None, None))
    assert [found[0]["number"], found[-1]["number"], len(found)] == [11, MOST_EXCHANGES + 10, MOST_EXCHANGES]
    assert list(exchanges.since(MOST_EXCHANGES + 9, "Metadata", "a-client")) == found[-1:]
    assert list(exchanges.since(0, "Produce", None)) == []
    assert list(exchanges.since(0, None, "another")) == []


def test_the_bytes_of_all_are_bounded_also_by_late_answers() -> None:
    exchanges = Exchanges(ManualClock(5))
    waiting = [begun(exchanges, frame()) for _ in range(MOST_EXCHANGES)]
    for each in waiting:
        exchanges.end(each, [bytes(MOST_KEPT_BYTES)])
    kept = list(exchanges.since(0, None, None))
    assert 0 < len(kept) <= MOST_BYTES // MOST_KEPT_BYTES
    for each in waiting:  # of those that are left behind nothing is kept
        exchanges.end(each, [b""])
    assert len(list(exchanges.since(0, None, None))) == len(kept)


def test_what_is_too_large_is_named_by_its_size() -> None:
    exchanges = Exchanges(ManualClock(5))
    large = frame("t" * MOST_KEPT_BYTES)
    exchange = begun(exchanges, large)
    exchanges.end(exchange, [bytes(MOST_KEPT_BYTES), b"1"])
    (told,) = exchanges.since(0, None, None)
    assert (told["request"], told["answer"]) == (None, None)
    assert (told["request_bytes"], told["answer_bytes"]) == (len(large), MOST_KEPT_BYTES + 1)


def test_bytes_of_a_login_are_no_exchange() -> None:
    exchanges = Exchanges(ManualClock(5))
    assert exchanges.begin(frame(), ConnectionInfo(1, "localhost", 1, is_authenticated=False)) is None
    assert exchanges.begin(memoryview(b"\0alice\0secret"), CONNECTION) is None
