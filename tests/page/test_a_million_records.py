"""Tests that a topic with 10⁶ records costs no more than a small topic. The page immediately shows the newest records,
finds text, and follows new records.

The tests print the times (`pytest -s`), and assert that the size of responses does not depend on the topic's size.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Browser, expect

from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.protocol.records import NewRecord, build_batch
from tests.clients.admin import create_topic
from tests.page.opened import opened
from tests.support.broker_process import BrokerProcess
from tests.support.wire import Wire

PARTITIONS = 4
IN_BATCH, BATCHES = 10_000, 100
# A search that starts with the newest records reads this batch last. It is the first batch of the last partition, and
# all records have the same timestamp.
LAST_READ = PARTITIONS - 1
MILLION = IN_BATCH * BATCHES
ANSWER_BYTES = 100_000
NAMED_TOPICS = 12  # the newest version of Produce that has topic names instead of ids
NOW_MS = int(time.time() * 1000)  # Retention would delete older records while the test is running.
NEEDLE = "the-needle"
FOUND, NOWHERE = (f'$.of == "{each}"' for each in (NEEDLE, "nowhere"))  # A search by JSONPath decodes every record.


def records(value: str) -> bytes:
    values = (f'{{"of":"{value}","n":{number}}}' for number in range(IN_BATCH))
    return bytes(build_batch([NewRecord(None, each.encode(), NOW_MS) for each in values]))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as running:
        assert isinstance(running, BrokerProcess)
        create_topic(running.bootstrap, "million", PARTITIONS, exact=True)
        wire = Wire(running.bootstrap)
        needle, others = records(NEEDLE), records("record")  # The broker assigns the offsets.
        for number in range(BATCHES):
            data = PartitionProduceData(index=number % PARTITIONS, records=needle if number == LAST_READ else others)
            request = ProduceRequest(
                acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name="million", partition_data=[data])]
            )
            answer = wire.ask(request, NAMED_TOPICS, ProduceResponse)
            assert answer.responses[0].partition_responses[0].error_code == 0
        wire.close()
        yield running


@contextmanager
def timed(what: str) -> Iterator[None]:
    started = time.monotonic()
    yield
    print(f"\n10⁶ records, {what}: {1000 * (time.monotonic() - started):.0f} ms")


def answer(broker: BrokerProcess, **query: object) -> bytes:
    address = f"http://127.0.0.1:{broker.ready['http_port']}/api/records?{urlencode({'topic': 'million', **query})}"
    with urlopen(address, timeout=60) as found:
        return bytes(found.read())


@pytest.mark.parametrize("order", ["newest", "oldest"])
def test_one_answer_reads_and_returns_a_bounded_part(broker: BrokerProcess, order: str) -> None:
    with timed(f"the {order} by the API"):
        first = answer(broker, order=order)
    with timed(f"one search, the {order} first, by the API"):
        search = answer(broker, order=order, path=NOWHERE)
    assert len(first) < ANSWER_BYTES
    assert len(search) < ANSWER_BYTES
    assert 0 < json.loads(search)["looked_at"] <= MILLION / 10
    assert not json.loads(search)["is_done"]


def test_the_newest_records_appear_at_once_and_the_list_follows_the_end(
    browser: Browser, broker: BrokerProcess
) -> None:
    with timed("the newest 50 in the browser"):
        page = opened(browser, broker.ready["http_port"], "records?topic=million")
        expect(page.locator("table.records tbody tr")).to_have_count(50)
    assert f"{MILLION:,} offsets" in page.inner_text("main")
    with timed("a new record on top"):
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("million", b"arrived-now", partition=2)
        assert producer.flush(30) == 0
        expect(page.locator("table.records tbody tr").first).to_contain_text("arrived-now")
    page.close()


def test_the_oldest_of_all_is_found_by_its_text(browser: Browser, broker: BrokerProcess) -> None:
    page = opened(browser, broker.ready["http_port"], "records?topic=million")
    with timed("a text in the oldest batch, newest first"):
        page.fill("#find", NEEDLE)
        expect(page.locator("table.records tbody")).to_contain_text(NEEDLE)
    page.close()
    with timed("a JSONPath in the oldest batch, newest first"):
        page = opened(browser, broker.ready["http_port"], searching(FOUND))
        expect(page.locator("table.records tbody")).to_contain_text(NEEDLE, timeout=100_000)
    page.close()


def searching(path: str) -> str:
    return f"records?{urlencode({'topic': 'million', 'path': path})}"


def test_a_search_can_be_stopped(browser: Browser, broker: BrokerProcess) -> None:
    page = opened(browser, broker.ready["http_port"], searching(NOWHERE))
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Show more")).to_be_visible()
    page.close()
