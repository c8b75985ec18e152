"""Tests that each task in the table of docs/page.md takes as many clicks in a browser as the table states."""

import re
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer
from playwright.sync_api import Browser, Page, expect

from tests.page.opened import opened
from tests.support.broker_process import BrokerProcess
from tests.support.oracle import REPOSITORY

COUNTING = "window.clicks = 0; addEventListener('click', (event) => { window.clicks += event.isTrusted; }, true);"
COUNT = re.compile(r"(\d+) clicks?$")


def counted() -> dict[str, int]:
    """Returns the number of clicks for each task, from the `here` column of the table in docs/page.md."""
    rows = [line.strip("| ").split(" | ") for line in (REPOSITORY / "docs" / "page.md").read_text().splitlines()]
    found = {row[0]: COUNT.search(row[1]) for row in rows if len(row) == 6}
    return {task: int(count[1]) for task, count in found.items() if count is not None}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {
        "odradek.http.actions": "true",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings) as running:
        assert isinstance(running, BrokerProcess)
        producer = Producer({"bootstrap.servers": running.bootstrap})
        producer.produce("orders", '{"id": 7}')
        assert producer.flush(30) == 0
        consumer = Consumer(
            {"bootstrap.servers": running.bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["orders"])
        assert consumer.consume(1, 30)
        consumer.commit(asynchronous=False)
        consumer.close()
        held = Producer({"bootstrap.servers": running.bootstrap, "transactional.id": "pay"})
        held.init_transactions(30)
        held.begin_transaction()
        held.produce("orders", '{"id": 8}')
        assert held.flush(30) == 0
        yield running


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def follow(page: Page, name: str) -> None:
    page.get_by_role("link", name=name, exact=True).click()


def said(page: Page, words: str) -> None:
    expect(page.locator("dialog .good")).to_contain_text(words)


def finds_a_text(page: Page) -> None:
    follow(page, "orders")
    follow(page, "Records of all partitions")
    page.locator("#find").focus()
    page.keyboard.type('"id": 7')
    expect(page.locator("table.records tbody tr")).to_have_count(1)


def finds_a_field(page: Page) -> None:
    follow(page, "orders")
    follow(page, "Records of all partitions")
    page.get_by_text("Filters and order").click()
    page.fill("input[name=path]", "$.id == 7")
    press(page, "Show")
    expect(page.locator("table.records tbody tr")).to_have_count(1)


def follows_a_topic(page: Page) -> None:
    follow(page, "orders")
    follow(page, "Records of all partitions")
    expect(page.locator("table.records tbody tr").first).to_be_visible()


def produces(page: Page) -> None:
    follow(page, "orders")
    press(page, "Produce…")
    page.fill("textarea[name=value]", "one")
    press(page, "Produce")
    said(page, "The record has offset")


def changes_a_setting(page: Page) -> None:
    follow(page, "orders")
    press(page, "Change a setting…")
    page.select_option("select[name=setting]", "retention.ms")
    page.fill("input[name=value]", "777000")
    press(page, "Change")
    said(page, "are changed")


def resets_a_group(page: Page) -> None:
    follow(page, "billing")
    press(page, "Reset offsets…")
    page.fill("#typed", "billing")
    press(page, "Reset")
    said(page, "billing resumes in orders")


def sees_who_holds_back(page: Page) -> None:
    follow(page, "orders")
    expect(page.locator(".note").first).to_contain_text("for pay")


def allows(page: Page) -> None:
    follow(page, "Security")
    press(page, "Add an ACL…")
    page.fill("input[name=principal]", "User:alice")
    page.fill("input[name=name]", "orders")
    press(page, "Add")
    said(page, "is added")


def ends_a_transaction(page: Page) -> None:
    page.get_by_role("region", name="Transactions").get_by_role("link", name="pay", exact=True).click()
    press(page, "Abort…")
    page.fill("#typed", "pay")
    press(page, "Abort")
    said(page, "is aborted")


def sees_share_partitions(page: Page) -> None:
    follow(page, "Share partitions")
    expect(page.locator("h1")).to_have_text("Share partitions")


# The last task ends a transaction that other tasks need.
TASKS: dict[str, tuple[str, Callable[[Page], None]]] = {
    "find a record by a text": ("topics", finds_a_text),
    "find a record by a field of its JSON": ("topics", finds_a_field),
    "follow a topic": ("topics", follows_a_topic),
    "produce a record": ("topics", produces),
    "change a topic's setting": ("topics", changes_a_setting),
    "reset a group's offsets": ("groups", resets_a_group),
    "see who holds back readers of committed data": ("topics", sees_who_holds_back),
    "allow a principal something": ("topics", allows),
    "see acknowledgements that wait for a transaction": ("topics", sees_share_partitions),
    "end an open transaction": ("transactions", ends_a_transaction),
}


def test_every_task_of_the_table_is_played() -> None:
    assert counted().keys() == TASKS.keys()


@pytest.mark.parametrize("task", TASKS)
def test_a_task_takes_the_clicks_that_the_table_counts(browser: Browser, broker: BrokerProcess, task: str) -> None:
    view, play = TASKS[task]
    page = opened(browser, broker.ready["http_port"], view, before=COUNTING)
    play(page)
    assert page.evaluate("window.clicks") == counted()[task]
    page.close()
