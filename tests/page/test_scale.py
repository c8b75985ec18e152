"""Tests that the page stays small with a thousand topics and ten thousand transactional ids.

The tests print rendering times for docs/performance.md (`pytest -s`) and assert that the size of responses does not
grow.
"""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from playwright.sync_api import Browser

from odradek.client.network.connection import Connection
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from tests.page.opened import opened
from tests.support.broker_process import BrokerProcess

TOPICS, IDS = 1_000, 10_000
IN_FLIGHT = 500
PAGE_BYTES = 150_000
VIEW_BYTES = 150_000
ROWS = 200


async def remember(broker: BrokerProcess) -> None:
    connection = await Connection.open("127.0.0.1", broker.port, client_id="scale", request_timeout_ms=60_000)
    for first in range(0, IDS, IN_FLIGHT):
        responses = [
            connection.ask(
                InitProducerIdRequest(transactional_id=f"app-{number}", transaction_timeout_ms=60_000),
                InitProducerIdResponse,
            )
            for number in range(first, first + IN_FLIGHT)
        ]
        assert {each.error_code for each in await asyncio.gather(*responses)} == {0}
    connection.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as running:
        assert isinstance(running, BrokerProcess)
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        made = admin.create_topics([NewTopic(f"topic-{number}", 1) for number in range(TOPICS)], request_timeout=60)
        for each in made.values():
            each.result(60)
        # The first transactional id makes the broker create `__transaction_state`.
        Producer({"bootstrap.servers": running.bootstrap, "transactional.id": "first"}).init_transactions(60)
        with ThreadPoolExecutor(1) as thread:  # Playwright runs an event loop in the current thread.
            thread.submit(lambda: asyncio.run(remember(running))).result()
        yield running


@pytest.mark.parametrize(
    ("path", "at_most"), [("", PAGE_BYTES), ("api/topics", VIEW_BYTES), ("api/transactions", VIEW_BYTES)]
)
def test_responses_do_not_grow_with_the_number_of_topics_and_transactions(
    broker: BrokerProcess, path: str, at_most: int
) -> None:
    with urlopen(f"http://127.0.0.1:{broker.ready['http_port']}/{path}", timeout=60) as answer:
        body = answer.read()
    assert len(body) < at_most
    if path:
        shown = json.loads(body)
        total, rows = shown["total"], shown["topics" if path == "api/topics" else "transactions"]
        assert total >= (TOPICS if path == "api/topics" else IDS)
        assert len(rows) == ROWS


@pytest.mark.parametrize("view", ["overview", "topics", "transactions"])
def test_a_view_paints_and_the_rest_is_found(browser: Browser, broker: BrokerProcess, view: str) -> None:
    opened(browser, broker.ready["http_port"], view).close()  # The first request makes the broker import the page.
    page = opened(browser, broker.ready["http_port"], view)
    painted_ms = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    live_ms = page.evaluate("performance.now()")
    print(f"\n{view}: first contentful paint after {painted_ms:.0f} ms, live after at most {live_ms:.0f} ms")
    if view != "overview":
        name = "topic-777" if view == "topics" else "app-7777"
        page.fill("#find", name)
        page.wait_for_selector("tbody tr:only-child")
        assert name in page.inner_text("tbody")
    page.close()
