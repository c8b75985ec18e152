"""Tests that a user can change the cluster on the page with buttons, dialogs and confirmations."""

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from confluent_kafka import Producer
from playwright.sync_api import Browser, Page, expect

from tests.page.opened import opened
from tests.support.broker_process import BrokerProcess


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", {"odradek.http.actions": "true"}) as running:
        assert isinstance(running, BrokerProcess)
        yield running


def confirm(page: Page, button: str, typed: str | None = None) -> str:
    """Confirms the dialog and returns the message that the page shows afterwards."""
    if typed is not None:
        expect(page.get_by_role("button", name=button, exact=True)).to_be_disabled()
        page.fill("#typed", typed)
    page.get_by_role("button", name=button, exact=True).click()
    page.wait_for_selector("dialog .good")
    return str(page.inner_text("dialog .good"))


def test_a_topic_is_created_and_deleted(browser: Browser, broker: BrokerProcess) -> None:
    page = opened(browser, broker.ready["http_port"], "topics")
    page.get_by_role("button", name="Create a topic…").click()
    page.fill("input[name=topic]", "made-here")
    page.fill("input[name=partitions]", "2")
    page.fill("input[name=configs]", "retention.ms=1000, cleanup.policy=compact,delete")
    assert Axe().run(page).violations_count == 0
    assert confirm(page, "Create") == "The topic made-here is created."
    page.get_by_role("button", name="Close").click()
    page.get_by_role("link", name="made-here").click()
    page.wait_for_selector("td:has-text('compact,delete')")
    page.get_by_role("button", name="Delete topic…").click()
    assert "made-here" in confirm(page, "Delete", "made-here")
    page.get_by_role("button", name="Close").click()
    page.wait_for_selector(".empty:has-text('No topics yet')")
    page.close()


def test_an_open_transaction_is_aborted(browser: Browser, broker: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "open-here"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("ledger", b"1")
    assert producer.flush(30) == 0
    page = opened(browser, broker.ready["http_port"], "transaction?id=open-here")
    page.get_by_role("button", name="Abort…").click()
    assert "aborted" in confirm(page, "Abort", "open-here")
    page.get_by_role("button", name="Close").click()
    page.wait_for_selector("li:has-text('aborted')")
    page.close()


def test_a_refusal_is_shown_in_words(browser: Browser, broker: BrokerProcess) -> None:
    page = opened(browser, broker.ready["http_port"], "topics")
    page.get_by_role("button", name="Create a topic…").click()
    page.fill("input[name=topic]", "not a name")
    page.get_by_role("button", name="Create", exact=True).click()
    page.wait_for_selector("dialog .bad")
    assert "Refused" in page.inner_text("dialog .bad")
    page.close()
