"""Tests that typed text, selected text, the focus and the scroll position remain unchanged while events arrive."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Browser, Page, expect

from tests.page.opened import opened
from tests.support.broker_process import BrokerProcess

TYPED = "service-17"
WITH_A_FIELD = ("topics", "groups", "transactions", "shares", "connections")
COUNTED = """
const Source = window.EventSource;
window.events = 0;
window.EventSource = class extends Source {
  constructor(...given) {
    super(...given);
    this.addEventListener("message", () => window.events++);
  }
};
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as running:
        assert isinstance(running, BrokerProcess)
        producer = Producer({"bootstrap.servers": running.bootstrap})
        for number in range(60):
            producer.produce(f"service-{number}", b"1")
        assert producer.flush(30) == 0
        yield running


@contextmanager
def traffic(broker: BrokerProcess) -> Iterator[None]:
    """Sends records continuously, so that events arrive every second."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    stopped = Event()

    def send() -> None:
        while not stopped.wait(0.05):
            producer.produce("service-17", b"1")
            producer.flush(5)

    thread = Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def watched(browser: Browser, broker: BrokerProcess, view: str) -> Page:
    """Opens a view, counts its events in `window.events`, and waits for the first event."""
    page = opened(browser, broker.ready["http_port"], view, before=COUNTED)
    page.wait_for_function("() => window.events > 0")
    return page


def after_events(page: Page, count: int) -> None:
    page.wait_for_function("most => window.events >= most", arg=page.evaluate("window.events") + count)


@pytest.mark.parametrize("delay_ms", [50, 250, 800])
@pytest.mark.parametrize("view", WITH_A_FIELD)
def test_a_search_field_loses_no_key(browser: Browser, broker: BrokerProcess, view: str, delay_ms: int) -> None:
    page = watched(browser, broker, view)
    with traffic(broker):
        page.click("#find")
        page.keyboard.type(TYPED, delay=delay_ms)
        page.wait_for_url(f"**find={TYPED}*")
        page.wait_for_function("() => window.events > 1")
    assert page.input_value("#find") == TYPED
    assert page.evaluate("document.activeElement.id") == "find"
    page.close()


def test_a_key_at_the_start_of_a_search_stays_there(browser: Browser, broker: BrokerProcess) -> None:
    page = watched(browser, broker, "topics")
    with traffic(broker):
        page.click("#find")
        page.keyboard.type("ervice-17", delay=50)
        page.wait_for_url("**find=ervice-17*")
        page.keyboard.press("Home")
        after_events(page, 2)
        page.keyboard.type("s")
        page.wait_for_url("**find=service-17*")
    assert page.input_value("#find") == "service-17"
    expect(page.locator("tbody tr")).to_have_count(1)
    page.close()


def test_going_back_empties_the_search(browser: Browser, broker: BrokerProcess) -> None:
    page = watched(browser, broker, "topics")
    page.fill("#find", "service-17")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name="service-17").click()
    page.wait_for_selector("h1:text('service-17')")
    page.go_back()
    expect(page.locator("tbody tr")).to_have_count(1)
    assert page.input_value("#find") == "service-17"
    page.get_by_role("link", name="Topics", exact=True).click()
    expect(page.locator("#find")).to_have_value("")
    page.close()


def test_events_change_rows_in_place(browser: Browser, broker: BrokerProcess) -> None:
    page = watched(browser, broker, "topics?find=service-17")
    page.evaluate("window.row = document.querySelector('tbody tr')")
    before = page.inner_text("tbody tr")
    with traffic(broker):
        after_events(page, 2)
        expect(page.locator("tbody tr")).not_to_have_text(before)
    assert page.evaluate("window.row.isConnected && window.row === document.querySelector('tbody tr')")
    page.close()


def test_focus_and_scroll_stay(browser: Browser, broker: BrokerProcess) -> None:
    page = watched(browser, broker, "topics")
    page.get_by_role("link", name="service-30", exact=True).focus()
    page.evaluate("scrollTo(0, 500)")
    page.wait_for_function("() => scrollY > 100")
    at = page.evaluate("scrollY")
    with traffic(broker):
        after_events(page, 3)
    assert page.evaluate("document.activeElement.textContent") == "service-30"
    assert page.evaluate("scrollY") == at
    page.close()


def test_a_selection_is_never_destroyed(browser: Browser, broker: BrokerProcess) -> None:
    page = watched(browser, broker, "topics?find=service-17")
    select = """() => {
      const row = document.querySelector("tbody tr");
      getSelection().selectAllChildren(row);
      return getSelection().toString();
    }"""
    selected = page.evaluate(select)
    assert "service-17" in selected
    with traffic(broker):
        after_events(page, 3)
        assert page.evaluate("getSelection().toString()") == selected
        expect(page.locator("#live-words")).to_have_text("paused while text is selected")
        page.evaluate("getSelection().removeAllRanges()")
        expect(page.locator("#live-words")).to_have_text("live")
    assert page.inner_text("tbody tr") != selected
    page.close()


def test_a_pause_holds_the_view_until_it_ends(browser: Browser, broker: BrokerProcess) -> None:
    page = watched(browser, broker, "topics?find=service-17")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#live-words")).to_have_text("paused")
    before = page.inner_text("tbody tr")
    with traffic(broker):
        after_events(page, 3)
        assert page.inner_text("tbody tr") == before
        page.get_by_role("button", name="Resume").click()
        expect(page.locator("tbody tr")).not_to_have_text(before)
    page.close()


def test_an_unknown_view_shows_an_error(browser: Browser, broker: BrokerProcess) -> None:
    page = watched(browser, broker, "tpoics")
    expect(page.locator("h1")).to_have_text("There is no view tpoics")
    page.close()


@pytest.mark.parametrize("view", ["topics", "topic?name=service-1", "topics?find=service-1"])
def test_a_deep_link_draws_no_outline(browser: Browser, broker: BrokerProcess, view: str) -> None:
    page = watched(browser, broker, "overview")
    page.keyboard.press("Tab")  # After Tab is pressed, the browser outlines the focused element.
    page.evaluate("view => { location.hash = view }", view)
    page.wait_for_selector("h1:not(:text('Overview'))")
    assert page.evaluate("getComputedStyle(document.getElementById('main')).outlineStyle") == "none"
    page.close()


def test_headers_of_a_table_have_one_font(browser: Browser, broker: BrokerProcess) -> None:
    page = watched(browser, broker, "connections")
    fonts = "[...new Set([...document.querySelectorAll('th')].map((each) => getComputedStyle(each).fontFamily))].length"
    page.wait_for_selector("th")
    assert page.evaluate(fonts) == 1
    page.close()


def test_a_page_that_has_lost_its_broker_greys_its_numbers(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with BrokerProcess(tmp_path_factory.mktemp("lost") / "data") as running:
        assert isinstance(running, BrokerProcess)
        page = opened(browser, running.ready["http_port"], "overview")
    expect(page.locator("#live-words")).to_contain_text("not connected since")
    expect(page.locator("main")).to_have_class("stale")
    page.close()
