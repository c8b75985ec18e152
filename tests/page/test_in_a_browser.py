"""Tests every view of the page with real data, in headless Chromium with Playwright and axe-core."""

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from confluent_kafka import Producer
from playwright.sync_api import Browser

from tests.page.opened import opened
from tests.support.broker_process import BrokerProcess

WIDTHS = (360, 1280, 2000)
VIEWS = (
    "overview",
    "transactions",
    "transaction?id=pay-0",
    "topics",
    "topic?name=ledger",
    "partition?topic=ledger&partition=0",
    "records?topic=ledger&partition=0",
    "groups",
    "shares",
    "connections",
    "warnings",
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as running:
        assert isinstance(running, BrokerProcess)
        producers = []
        for number in range(3):
            producer = Producer({"bootstrap.servers": running.bootstrap, "transactional.id": f"pay-{number}"})
            producer.init_transactions(30)
            for value in (b'{"amount": 10}', b'{"amount": 20}'):
                producer.begin_transaction()
                producer.produce("ledger", value, key=b"account-7")
                producer.commit_transaction(30)
            producers.append(producer)
        producers[0].begin_transaction()
        producers[0].produce("ledger", b'{"amount": 30, "note": "<b>not markup</b>"}')
        producers[0].flush(30)
        yield running


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_accessible(browser: Browser, broker: BrokerProcess, view: str, scheme: str) -> None:
    page = opened(browser, broker.ready["http_port"], view, scheme=scheme)
    found = Axe().run(page)
    page.close()
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("view", VIEWS)
def test_no_view_is_wider_than_the_window(browser: Browser, broker: BrokerProcess, view: str, width: int) -> None:
    page = opened(browser, broker.ready["http_port"], view, width=width)
    beyond = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    page.close()
    assert beyond <= 0


def test_the_content_of_a_record_is_never_rendered_as_markup(browser: Browser, broker: BrokerProcess) -> None:
    page = opened(browser, broker.ready["http_port"], "records?topic=ledger&partition=0")
    assert "<b>not markup</b>" in page.inner_text("main")
    page.close()


def test_a_change_is_on_the_page_without_a_reload(browser: Browser, broker: BrokerProcess) -> None:
    page = opened(browser, broker.ready["http_port"], "topics")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("arrives-later", b"1")
    producer.flush(30)
    page.wait_for_selector("text=arrives-later")
    page.close()


def test_a_view_is_reached_and_searched_by_keyboard_alone(browser: Browser, broker: BrokerProcess) -> None:
    page = opened(browser, broker.ready["http_port"], "overview")
    page.keyboard.press("Tab")  # to the skip link
    for _ in range(3):  # to the start page, the overview and the transactions
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:text('Transactions')")
    page.keyboard.press("/")
    page.keyboard.type("pay-1")
    page.wait_for_selector("tbody tr:only-child")
    assert page.inner_text("tbody").startswith("pay-1")
    page.close()
