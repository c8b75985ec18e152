"""Tests that a log contains each batch of an idempotent producer only once, even if the producer receives no response
and sends a stored batch again."""

import threading
from collections.abc import Iterator

import pytest

from tests.clients.admin import create_topic
from tests.clients.conftest import SETTINGS
from tests.clients.speakers import Message, Speaker
from tests.support.broker_process import Broker, new_broker
from tests.support.flaky_proxy import FlakyProxy

PRODUCE, INIT_PRODUCER_ID = 0, 22
COUNT = 600
CUTS = 20


@pytest.fixture(scope="module")
def behind_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FlakyProxy, Broker]]:
    """Yields a broker that advertises the proxy's address, so all clients go through the proxy."""
    with FlakyProxy() as proxy:
        advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
        broker = new_broker(tmp_path_factory.mktemp("broker") / "data", SETTINGS | advertised)
        with broker:
            proxy.target = (broker.host, broker.port)
            yield proxy, broker


@pytest.fixture
def proxy(behind_proxy: tuple[FlakyProxy, Broker]) -> Iterator[FlakyProxy]:
    proxy, _ = behind_proxy
    yield proxy
    proxy.forget()


def numbered(count: int) -> list[Message]:
    return [Message(b"%d" % n, partition=n % 2) for n in range(count)]


def values_there(speaker: Speaker, bootstrap: str, topic: str) -> list[list[bytes | None]]:
    found = []
    for partition in (0, 1):
        first, end = speaker.bounds(bootstrap, topic, partition)
        found.append([one.value for one in speaker.read(bootstrap, topic, end - first, partition=partition)])
    return found


EACH_ONCE = [[b"%d" % n for n in range(partition, COUNT, 2)] for partition in (0, 1)]


def in_slices(speaker: Speaker, bootstrap: str, topic: str) -> None:
    """Produces in several calls, each with a new producer, to write many batches."""
    for start in range(0, COUNT, COUNT // 3):
        speaker.produce(bootstrap, topic, numbered(COUNT)[start : start + COUNT // 3], linger_ms=0)


def test_a_batch_whose_answer_was_lost_is_there_once(proxy: FlakyProxy, speaker: Speaker) -> None:
    topic = create_topic(proxy.bootstrap, "lost-answers", partitions=2)
    proxy.loses = lambda key, _version, seen: key == PRODUCE and seen % 3 == 0
    in_slices(speaker, proxy.bootstrap, topic)
    assert PRODUCE in proxy.lost
    proxy.forget()
    assert values_there(speaker, proxy.bootstrap, topic) == EACH_ONCE


def test_five_batches_in_flight_that_all_lose_their_answers_are_there_once(proxy: FlakyProxy, speaker: Speaker) -> None:
    topic = create_topic(proxy.bootstrap, "five-in-flight", partitions=2)
    proxy.loses = lambda key, _version, seen: key == PRODUCE and seen < 5
    in_slices(speaker, proxy.bootstrap, topic)
    assert proxy.lost.count(PRODUCE) == 5
    proxy.forget()
    assert values_there(speaker, proxy.bootstrap, topic) == EACH_ONCE


def test_connections_cut_at_any_moment_lose_and_repeat_nothing(proxy: FlakyProxy, speaker: Speaker) -> None:
    topic = create_topic(proxy.bootstrap, "cut", partitions=2)
    # The first request is always lost, because a fast producer could otherwise finish before the first cut.
    proxy.drops = lambda key, _version, seen: key == PRODUCE and seen == 0
    with cutting(proxy):
        speaker.produce(proxy.bootstrap, topic, numbered(COUNT), linger_ms=0)
    assert PRODUCE in proxy.dropped
    proxy.forget()
    assert values_there(speaker, proxy.bootstrap, topic) == EACH_ONCE


def test_a_lost_answer_to_init_producer_id_costs_nothing(proxy: FlakyProxy, speaker: Speaker) -> None:
    topic = create_topic(proxy.bootstrap, "lost-init", partitions=2)
    proxy.loses = lambda key, _version, seen: key == INIT_PRODUCER_ID and seen == 0
    assert speaker.produce(proxy.bootstrap, topic, [Message(b"v")] * 10) == list(range(10))
    assert proxy.lost == [INIT_PRODUCER_ID]


def test_without_idempotence_no_record_is_lost_but_duplicates_are_possible(proxy: FlakyProxy, speaker: Speaker) -> None:
    topic = create_topic(proxy.bootstrap, "at-least-once", partitions=2)
    proxy.loses = lambda key, _version, seen: key == PRODUCE and seen == 0
    speaker.produce(proxy.bootstrap, topic, numbered(100), idempotent=False)
    assert proxy.lost == [PRODUCE]
    proxy.forget()
    for partition, there in enumerate(values_there(speaker, proxy.bootstrap, topic)):
        assert set(there) == {b"%d" % n for n in range(partition, 100, 2)}


class cutting:
    """Cuts every connection through the proxy CUTS times, after the first Produce request has arrived.

    Earlier cuts would make aiokafka's bootstrap fail. The number of cuts is limited, because otherwise, on a slow
    machine, no connection might last long enough.
    """

    def __init__(self, proxy: FlakyProxy) -> None:
        self._proxy, self._over = proxy, threading.Event()
        self._thread = threading.Thread(target=self._cut)

    def _cut(self) -> None:
        while self._proxy.request_count(PRODUCE) == 0 and not self._over.wait(0.001):
            pass
        for cut in range(CUTS):
            self._proxy.cut_all()
            if self._over.wait(0.01 * 1.25**cut):
                return

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
