"""Tests that the page shows clients' names and records as text, and that markup in them does not run in any view."""

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from confluent_kafka import Consumer, Producer
from playwright.sync_api import Browser

from tests.clients.own_share_consumers import first_of, share_group, worker
from tests.page.opened import opened
from tests.support.broker_process import BrokerProcess

RUN = "window.__ran=1"
MARKUP = (
    f"<!--<script>\"'><img src=x onerror={RUN}><script>{RUN}</script><svg onload={RUN}>`${{{RUN}}}</style></script>"
)
NAME = quote(MARKUP, safe="")
GROUPS = {kind: f"{MARKUP}{kind}" for kind in ("classic", "consumer", "share")}
VIEWS = (
    "overview",
    "transactions",
    f"transaction?id={NAME}",
    "topics",
    "topic?name=ledger",
    f"topic?name={NAME}",
    "partition?topic=ledger&partition=0",
    f"partition?topic={NAME}&partition={NAME}",
    "records?topic=ledger&partition=0",
    f"records?topic=ledger&partition=0&offset={NAME}",
    "groups",
    f"group?id={NAME}",
    *(f"group?id={quote(group, safe='')}" for group in GROUPS.values()),
    "shares",
    "connections",
    "warnings",
    NAME,
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as running:
        assert isinstance(running, BrokerProcess)
        settings = {"bootstrap.servers": running.bootstrap, "client.id": MARKUP}
        producer = Producer({**settings, "transactional.id": MARKUP})
        producer.init_transactions(30)
        for ends in (producer.commit_transaction, producer.abort_transaction, None):
            producer.begin_transaction()
            producer.produce("ledger", MARKUP, key=MARKUP, headers={MARKUP: MARKUP.encode()})
            assert producer.flush(30) == 0
            if ends is not None:
                ends(30)
        groups = []
        for protocol in ("classic", "consumer"):
            name = GROUPS[protocol]
            group = {"group.id": name, "group.protocol": protocol, "auto.offset.reset": "earliest"}
            consumer = Consumer({**settings, **group, "group.instance.id": name})
            consumer.subscribe(["ledger"])
            message = consumer.poll(30)
            assert message is not None
            consumer.commit(message=message, asynchronous=False)
            groups.append(consumer)
        share_group(running.bootstrap, GROUPS["share"])
        with worker(running.bootstrap, "ledger", GROUPS["share"], client_id=MARKUP) as sharer:
            assert first_of(sharer)
            yield running
        for consumer in groups:
            consumer.close()


@pytest.mark.parametrize("view", VIEWS, ids=range(len(VIEWS)))
def test_markup_in_names_keys_values_and_headers_is_text(browser: Browser, broker: BrokerProcess, view: str) -> None:
    page = opened(browser, broker.ready["http_port"], view)
    page.wait_for_timeout(200)  # If an image fails to load, its error event comes later.
    assert page.evaluate("window.__ran") is None
    assert page.evaluate("document.querySelectorAll('img[src=x], svg[onload], main script').length") == 0
    page.close()


@pytest.mark.parametrize(
    "view",
    [
        "transactions",
        "records?topic=ledger&partition=0",
        "groups",
        "shares",
        *(f"group?id={quote(group, safe='')}" for group in GROUPS.values()),
    ],
    ids=range(4 + len(GROUPS)),
)
def test_markup_is_shown_literally(browser: Browser, broker: BrokerProcess, view: str) -> None:
    page = opened(browser, broker.ready["http_port"], view)
    page.wait_for_selector("td, li")
    assert f"onerror={RUN}" in page.inner_text("body")
    page.close()
