"""Tests that a user can read and change topics, groups and permissions on the page."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from axe_playwright_python.sync_playwright import Axe
from confluent_kafka import Consumer, Producer
from playwright.sync_api import Browser, Page, expect

from tests.clients.own_share_consumers import first_of, share_group, worker
from tests.page.opened import opened
from tests.support.broker_process import BrokerProcess


@contextmanager
def started(tmp_path_factory: pytest.TempPathFactory, *, actions: bool) -> Iterator[BrokerProcess]:
    settings = {
        "odradek.http.actions": "true" if actions else "false",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings) as running:
        assert isinstance(running, BrokerProcess)
        yield running


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with started(tmp_path_factory, actions=True) as running:
        producer = Producer({"bootstrap.servers": running.bootstrap})
        for topic, count in (("few", 1), ("many", 30), ("some", 5)):
            for _ in range(count):
                producer.produce(topic, b"1")
        assert producer.flush(30) == 0
        yield running


def done(page: Page, button: str) -> str:
    page.locator("dialog").get_by_role("button", name=button, exact=True).click()
    page.wait_for_selector("dialog .good")
    said = str(page.inner_text("dialog .good"))
    page.get_by_role("button", name="Close").click()
    return said


def test_a_list_is_sorted_by_a_column(browser: Browser, broker: BrokerProcess) -> None:
    page = opened(browser, broker.ready["http_port"], "topics")
    names = page.locator("tbody tr td:first-child a")
    page.get_by_role("link", name="records", exact=True).click()
    expect(names).to_have_text(["few", "some", "many"])
    page.get_by_role("link", name="records ↑").click()
    expect(names).to_have_text(["many", "some", "few"])
    page.close()


def test_a_record_is_produced_and_its_json_checked(browser: Browser, broker: BrokerProcess) -> None:
    page = opened(browser, broker.ready["http_port"], "topic?name=few")
    page.get_by_role("button", name="Produce…").click()
    page.fill("input[name=key]", "k")
    page.fill("textarea[name=value]", '{"id": 9007199254740993,}')
    page.fill("textarea[name=headers]", "trace: abc\nkind: test")
    page.locator("dialog").get_by_role("button", name="Produce", exact=True).click()
    expect(page.locator("dialog .bad")).to_have_text("The value is not valid JSON.")
    page.fill("textarea[name=value]", '{"id": 9007199254740993, "price": 10.00}')
    assert Axe().run(page).violations_count == 0
    assert done(page, "Produce") == "The record has offset 1 in few-0."
    page.get_by_role("link", name="Records of all partitions").click()
    row = page.locator("table.records tbody tr").first
    expect(row).to_contain_text('{"id": 9007199254740993, "price": 10.00}')
    page.get_by_role("button", name="Record 1 of partition 0").click()
    expect(page.get_by_text("Header kind")).to_be_visible()
    page.close()


def test_a_setting_is_changed_and_partitions_are_added(browser: Browser, broker: BrokerProcess) -> None:
    page = opened(browser, broker.ready["http_port"], "topic?name=some")
    page.get_by_role("button", name="Change a setting…").click()
    page.select_option("select[name=setting]", "retention.ms")
    page.fill("input[name=value]", "777000")
    assert done(page, "Change") == "The settings of some are changed."
    page.wait_for_selector("td:has-text('777000')")
    page.get_by_role("button", name="Add partitions…").click()
    page.fill("input[name=partitions]", "3")
    assert done(page, "Add") == "The topic some has 3 partitions."
    expect(page.locator("[aria-label=Partitions] tbody tr")).to_have_count(3)
    page.close()


def test_a_condition_of_an_action_is_shown_before_the_user_violates_it(browser: Browser, broker: BrokerProcess) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "busy", "auto.offset.reset": "earliest"})
    consumer.subscribe(["few"])
    assert consumer.consume(1, 30)
    page = opened(browser, broker.ready["http_port"], "group?id=busy")
    page.get_by_role("button", name="Reset offsets…").click()
    expect(page.locator("dialog .bad")).to_contain_text("The group has 1 member. Stop them first")
    expect(page.locator("dialog").get_by_role("button", name="Reset", exact=True)).to_have_count(0)
    page.close()
    consumer.close()


def test_an_acl_a_user_and_a_quota_are_added_and_removed(browser: Browser, broker: BrokerProcess) -> None:
    page = opened(browser, broker.ready["http_port"], "acls")
    page.get_by_role("button", name="Add an ACL…").click()
    page.fill("input[name=principal]", "User:alice")
    page.fill("input[name=name]", "orders")
    assert Axe().run(page).violations_count == 0
    assert done(page, "Add") == "The ACL of User:alice for topic orders is added."
    expect(page.locator("[aria-label=ACLs] tbody tr")).to_contain_text("User:alice")
    page.get_by_role("button", name="Remove…").click()
    assert done(page, "Remove") == "The ACL of User:alice for topic orders is removed."
    expect(page.locator(".empty")).to_contain_text("There are none yet")
    page.get_by_role("link", name="Users", exact=True).click()
    page.get_by_role("button", name="Add a user…").click()
    page.fill("input[name=user]", "alice")
    page.fill("input[name=password]", "secret")
    assert done(page, "Add") == "alice can log in with SCRAM-SHA-512."
    page.get_by_role("button", name="Delete…").click()
    assert done(page, "Delete") == "alice no longer has a password for SCRAM-SHA-512."
    page.get_by_role("link", name="Quotas", exact=True).click()
    page.get_by_role("button", name="Set a quota…").click()
    page.fill("input[name=user]", "alice")
    page.fill("input[name=value]", "1024")
    assert done(page, "Set") == "The quota producer_byte_rate of user alice is set."
    page.get_by_role("button", name="Remove…").click()
    assert done(page, "Remove") == "The quota producer_byte_rate of user alice is removed."
    page.close()


def test_a_share_group_is_offered_only_the_positions_that_kafka_allows(browser: Browser, broker: BrokerProcess) -> None:
    with worker(broker.bootstrap, "few", share_group(broker.bootstrap, "jobs")) as consumer:
        assert first_of(consumer)
    page = opened(browser, broker.ready["http_port"], "group?id=jobs")
    page.get_by_role("button", name="Reset offsets…").click()
    targets = page.locator("select[name=to] option")
    expect(targets).to_have_text(["the first record", "the end", "a time"])
    page.fill("input[name=topic]", "few")
    page.fill("#typed", "jobs")
    assert done(page, "Reset") == "jobs resumes in few at offset 0 of partition 0."
    page.close()


def test_share_partitions_are_sorted(browser: Browser, broker: BrokerProcess) -> None:
    for topic in ("few", "many"):
        with worker(broker.bootstrap, topic, share_group(broker.bootstrap, f"of-{topic}")) as consumer:
            assert first_of(consumer)
    page = opened(browser, broker.ready["http_port"], "shares?find=of-")
    names = page.locator("tbody tr td:first-child a")
    page.get_by_role("link", name="group", exact=True).click()
    expect(names).to_have_text(["of-few", "of-many"])
    page.get_by_role("link", name="group ↑").click()
    expect(names).to_have_text(["of-many", "of-few"])
    page.close()


def test_only_buttons_that_lose_data_are_red(browser: Browser, broker: BrokerProcess) -> None:
    page = opened(browser, broker.ready["http_port"], "topics")
    page.get_by_role("button", name="Create a topic…").click()
    create = page.locator("dialog").get_by_role("button", name="Create", exact=True)
    expect(create).to_have_class("go")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("link", name="many").click()
    page.get_by_role("button", name="Delete topic…").click()
    expect(page.locator("dialog").get_by_role("button", name="Delete", exact=True)).to_have_class("go danger")
    page.close()


def test_without_actions_a_button_says_how_to_get_them(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with started(tmp_path_factory, actions=False) as running:
        page = opened(browser, running.ready["http_port"], "topics")
        page.get_by_role("button", name="Create a topic…").click()
        expect(page.locator("dialog")).to_contain_text("odradek serve --override odradek.http.actions=true")
        expect(page.locator("dialog")).to_contain_text("odradek topics create orders --partitions 3")
        assert Axe().run(page).violations_count == 0
        page.close()


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", ["acls", "users", "quotas", "group?id=busy", "topic?name=few", "nothing"])
def test_views_are_accessible_and_fit(
    browser: Browser, broker: BrokerProcess, view: str, scheme: str, width: int
) -> None:
    page = opened(browser, broker.ready["http_port"], view, width=width, scheme=scheme)
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
    page.close()
