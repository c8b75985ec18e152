"""Tests that the page shows the clusters controlled by tests, and that a user can change their clocks, rules and
holds."""

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from playwright.sync_api import Browser, Page, expect

from odradek.testing.sync import Cluster, Odradek
from tests.page.opened import opened
from tests.support.broker_process import BrokerProcess

MARKUP = "<img src=x onerror=window.__ran=1>"
WIDTHS = (360, 1280)
CUT_OFF = """(() => {
  const box = document.querySelector("svg.picture").getBoundingClientRect();
  const beyond = (each) => {
    const at = each.getBoundingClientRect();
    return at.right > box.right + 1 || at.bottom > box.bottom + 1;
  };
  return [...document.querySelectorAll("svg.picture *")].filter(beyond).map((each) => each.textContent);
})()"""


@pytest.fixture(scope="module")
def odradek() -> Iterator[Odradek]:
    with Odradek.start() as started:
        yield started


@pytest.fixture
def kafka(odradek: Odradek) -> Iterator[Cluster]:
    """Yields a cluster with a commit held between its two markers, and with an unused rule whose name contains
    markup."""
    cluster = odradek.cluster(nodes=2)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("orders", 2)])["orders"].result(30)
    cluster.fault({"at": "marker", "match": {"topic": "orders", "partition": 1}, "do": {"hold": "second"}})
    cluster.fault({"name": MARKUP, "match": {"api": "EndTxn", "client_id": MARKUP}, "do": {"hold": MARKUP}})
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "pay"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce("orders", "a", partition=partition)
    producer.commit_transaction(30)
    cluster.wait(hold="second")
    yield cluster
    if cluster.id in [each["id"] for each in odradek.call("GET", "/clusters")[1]]:
        cluster.delete()


def visited(browser: Browser, odradek: Odradek, view: str, *, width: int = 1280, scheme: str = "light") -> Page:
    return opened(browser, odradek.port, view, width=width, scheme=scheme)


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1280, "light"), (1280, "dark")])
def test_the_views_are_accessible_and_fit(
    browser: Browser, odradek: Odradek, kafka: Cluster, width: int, scheme: str
) -> None:
    for view in ("clusters", f"cluster?id={kafka.id}", f"transaction?id=pay&cluster={kafka.id}", "cluster?id=none"):
        page = visited(browser, odradek, view, width=width, scheme=scheme)
        found = Axe().run(page)
        assert found.violations_count == 0, (view, found.generate_report())
        assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
        assert page.evaluate("[...document.querySelectorAll('.scroll')].every((e) => e.scrollWidth <= e.clientWidth)")
        assert page.evaluate("window.__ran") is None
        page.close()


def test_a_hold_is_released(browser: Browser, odradek: Odradek, kafka: Cluster) -> None:
    page = visited(browser, odradek, f"cluster?id={kafka.id}")
    row = page.get_by_role("row", name="second").first
    expect(row).to_contain_text("orders-1 – marker: marker not written")
    page.get_by_role("button", name="Release second").click()
    kafka.wait(topic="orders", partition=1, last_stable_offset=2)
    page.wait_for_selector(".empty:has-text('Nothing waits at a hold')")
    page.close()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("view", ["transaction?id=pay", "partition?topic=orders&partition=1"])
def test_the_picture_shows_where_a_hold_stands(
    browser: Browser, odradek: Odradek, kafka: Cluster, view: str, width: int
) -> None:
    page = visited(browser, odradek, f"{view}&cluster={kafka.id}", width=width)
    expect(page.locator("svg.picture .hold").first).to_be_visible()
    page.wait_for_selector("svg.picture .stable", state="attached")  # The line has no width, so it is never visible.
    expect(page.get_by_text("The marker in orders-1 waits at the hold second")).to_be_visible()
    assert "before 1 record" in page.inner_text("main")
    assert "1 records" not in page.inner_text("main")
    assert page.evaluate(CUT_OFF) == []
    page.get_by_role("button", name="Release second").click()
    expect(page.locator("svg.picture .hold")).to_have_count(0, timeout=60_000)
    page.close()


def test_the_clock_is_frozen_advanced_and_resumed(browser: Browser, odradek: Odradek, kafka: Cluster) -> None:
    page = visited(browser, odradek, f"cluster?id={kafka.id}")
    page.get_by_role("button", name="Freeze").click()
    page.wait_for_selector(".tag:text('frozen')")
    before_ms = kafka.clock.now_ms
    page.get_by_role("button", name="Advance by 1 min").click()
    page.wait_for_selector(f".clock[data-ms='{before_ms + 60_000}']")
    page.get_by_role("button", name="Resume").click()
    page.wait_for_selector(".tag:text('runs')")
    assert kafka.clock.now_ms >= before_ms + 60_000
    page.close()


def test_rules_are_counted_and_deleted(browser: Browser, odradek: Odradek, kafka: Cluster) -> None:
    page = visited(browser, odradek, f"cluster?id={kafka.id}")
    expect(page.get_by_text("1 rule matched nothing so far.")).to_be_visible()
    assert MARKUP in page.inner_text("main")
    page.get_by_role("button", name=f"Delete {MARKUP}").click()
    expect(page.get_by_text("matched nothing so far")).to_have_count(0)
    page.get_by_role("button", name="Delete all rules").click()
    page.wait_for_selector(".empty:has-text('No rule')")
    assert kafka.faults() == []
    page.close()


def test_a_cluster_is_made_crashed_restarted_and_deleted(browser: Browser, odradek: Odradek) -> None:
    page = visited(browser, odradek, "clusters")
    page.get_by_role("button", name="Create a cluster…").click()
    page.fill("input[name=nodes]", "1, 4")
    page.get_by_role("button", name="Create", exact=True).click()
    page.wait_for_selector("dialog .good")
    page.get_by_role("button", name="Close").click()
    page.wait_for_selector("h1:has-text('Cluster c')")
    name = page.inner_text("h1").removeprefix("Cluster ")
    assert [each["id"] for each in odradek.call("GET", f"/clusters/{name}")[1]["nodes"]] == [1, 4]
    page.get_by_role("button", name="Crash…").click()
    page.get_by_role("button", name="Crash", exact=True).click()
    page.wait_for_selector("dialog .good")
    page.get_by_role("button", name="Close").click()
    page.wait_for_selector(".tag:text('crashed')")
    page.get_by_role("button", name="Restart").click()
    page.wait_for_selector(".tag:text('running')")
    page.get_by_role("button", name="Delete…").click()
    page.fill("#typed", name)
    page.get_by_role("button", name="Delete", exact=True).click()
    page.wait_for_selector("dialog .good")
    page.get_by_role("button", name="Close").click()
    page.wait_for_selector("h1:text('Clusters')")
    assert name not in [each["id"] for each in odradek.call("GET", "/clusters")[1]]
    page.close()


def test_a_refusal_is_shown_in_words(browser: Browser, odradek: Odradek) -> None:
    page = visited(browser, odradek, "clusters")
    page.get_by_role("button", name="Create a cluster…").click()
    page.fill("input[name=fork]", "nobody")
    page.get_by_role("button", name="Create", exact=True).click()
    page.wait_for_selector("dialog .bad:has-text('there is no cluster nobody')")
    page.close()


def test_the_views_of_a_cluster_are_its_own(browser: Browser, odradek: Odradek, kafka: Cluster) -> None:
    page = visited(browser, odradek, f"cluster?id={kafka.id}")
    page.get_by_role("link", name="topics", exact=True).click()
    page.get_by_role("link", name="orders").click()
    page.wait_for_selector("h1:text('orders')")
    assert f"cluster={quote(kafka.id)}" in page.url
    page.get_by_role("link", name="Back to the broker of the process").click()
    page.get_by_role("link", name="Topics", exact=True).click()
    page.wait_for_selector(".empty:has-text('No topics yet')")
    page.close()


def test_without_control_the_page_explains_how_to_enable_it(browser: Browser, broker: BrokerProcess) -> None:
    page = opened(browser, broker.ready["http_port"], "clusters")
    expect(page.get_by_text("odradek serve --control")).to_be_visible()
    page.close()


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as running:
        assert isinstance(running, BrokerProcess)
        yield running
