"""Tests that a user can browse a topic's records in one list, and can search, expand, copy, follow and pause them."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from playwright.sync_api import Browser, Page, expect

from tests.page.opened import opened
from tests.support.broker_process import BrokerProcess
from tests.support.registry_caller import SETTINGS, RegistryCaller

WRITTEN = '{"id":9007199254740993,"price":10.00,"id":1,"text":"\\u00e9","deep":' + "[" * 3_000 + "]" * 3_000 + "}"
LINES = '{\n  "id": 9007199254740993,\n  "price": 10.00,\n  "id": 1,\n  "text": "\\u00e9",\n  "deep": ['
LARGE = json.dumps({"list": ["1.50"] * 900_000, "end": "here"})  # more than 8 MB
MANY = 100_000
AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "lines", "type": {"type": "array", "items": "int"}}],
    }
)
FIRST = bytes.fromhex("82 80 80 80 80 80 80 20")  # the Avro long 9007199254740993
ORDER, LONG_ORDER = FIRST + b"\x02\x06\0", FIRST + b"\x90\x4e" + bytes(5_000) + b"\0"

HELD_SEARCHES = """() => {
  const real = window.fetch;
  window.held = [];
  window.fetch = (url) =>
    url.includes("order=newest") ? new Promise((go) => held.push(() => go(real(url)))) : real(url);
  window.release = () => {
    window.fetch = real;
    held.forEach((go) => go());
  };
}"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"message.max.bytes": "16000000", **SETTINGS}
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings) as running:
        assert isinstance(running, BrokerProcess)
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic("orders", 3)])["orders"].result(30)
        producer = Producer({"bootstrap.servers": running.bootstrap, "message.max.bytes": 16_000_000})
        for number in range(120):
            producer.produce(
                "orders", f"value-{number}", key=f"key-{number}", partition=number % 3, timestamp=1000 + number
            )
        producer.produce("written", WRITTEN, headers=[("trace", b"abc")])
        producer.produce("large", LARGE)
        producer.produce("headed", b"1", headers=[(f"h-{number}", f"header {number}") for number in range(45)])
        status, answer = RegistryCaller(running).ask("POST", "/subjects/avro-value/versions", {"schema": AVRO})
        assert status == 200, answer
        for schema_id, payload in ((answer["id"], ORDER), (answer["id"], LONG_ORDER), (99, b"\xff")):
            producer.produce("avro", struct.pack(">bI", 0, schema_id) + payload)
        for number in range(MANY):
            producer.produce("many", f'{{"number":{number}}}')
            if number % 20_000 == 0:
                producer.flush(30)
        assert producer.flush(60) == 0
        yield running


def visited(browser: Browser, broker: BrokerProcess, view: str, *, width: int = 1280, scheme: str = "light") -> Page:
    return opened(browser, broker.ready["http_port"], view, width=width, scheme=scheme)


def rows(page: Page) -> list[str]:
    return [str(each) for each in page.locator("table.records tbody tr td:nth-child(5)").all_inner_texts()]


def test_the_newest_of_all_partitions_come_first_and_more_on_demand(browser: Browser, broker: BrokerProcess) -> None:
    page = visited(browser, broker, "records?topic=orders")
    expect(page.locator("table.records tbody tr")).to_have_count(50)
    assert rows(page) == [f"key-{number}" for number in range(119, 69, -1)]
    page.get_by_role("button", name="Show more").click()
    expect(page.locator("table.records tbody tr")).to_have_count(100)
    page.get_by_role("button", name="Show more").click()
    expect(page.locator("table.records tbody tr")).to_have_count(120)
    assert rows(page) == [f"key-{number}" for number in range(119, -1, -1)]
    expect(page.get_by_role("button", name="Show more")).to_have_count(0)
    page.close()


def test_a_list_continues_when_the_broker_answers_again(browser: Browser, broker: BrokerProcess) -> None:
    page = visited(browser, broker, "records?topic=orders")
    expect(page.locator("table.records tbody tr")).to_have_count(50)
    page.route("**/api/records?*", lambda route: route.abort())
    page.get_by_role("button", name="Show more").click()
    expect(page.locator("#live-words")).to_contain_text("not connected since")
    page.unroute("**/api/records?*")
    expect(page.locator("#live-words")).to_have_text("live")
    page.get_by_role("button", name="Show more").click()
    expect(page.locator("table.records tbody tr")).to_have_count(100)
    page.close()


def test_a_search_that_is_stopped_and_continued_shows_no_record_twice(browser: Browser, broker: BrokerProcess) -> None:
    page = visited(browser, broker, "records?topic=orders")
    expect(page.locator("table.records tbody tr")).to_have_count(50)
    page.evaluate(HELD_SEARCHES)
    page.get_by_role("button", name="Show more").click()
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Show more").click()
    page.wait_for_function("() => held.length === 2")
    page.evaluate("release()")
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    page.get_by_role("button", name="Show more").click()
    expect(page.get_by_role("button", name="Show more")).to_have_count(0)
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    assert rows(page) == [f"key-{number}" for number in range(119, -1, -1)]
    page.close()


def test_filters_are_chosen_in_a_form(browser: Browser, broker: BrokerProcess) -> None:
    page = visited(browser, broker, "records?topic=orders")
    page.get_by_text("Filters and order").click()
    page.fill("input[name=partition]", "1")
    page.select_option("select[name=order]", "oldest")
    page.fill("input[name=offset]", "38")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator("table.records tbody tr")).to_have_count(2)
    assert rows(page) == ["key-115", "key-118"]
    assert page.input_value("input[name=offset]") == "38"
    page.close()


def test_a_text_is_found_in_a_hundred_thousand_records(browser: Browser, broker: BrokerProcess) -> None:
    page = visited(browser, broker, "records?topic=many")
    page.fill("#find", '"number":7777}')
    expect(page.locator("table.records tbody tr")).to_have_count(1)
    expect(page.locator("table.records")).to_contain_text('{"number":7777}')
    page.fill("#find", "")
    expect(page.locator("table.records tbody tr")).to_have_count(50)
    page.get_by_text("Filters and order").click()
    page.fill("input[name=path]", "$.number == 55555")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator("table.records tbody tr")).to_have_count(1)
    expect(page.locator("table.records")).to_contain_text('{"number":55555}')
    page.close()


def test_json_is_shown_as_it_was_written(browser: Browser, broker: BrokerProcess) -> None:
    page = visited(browser, broker, "records?topic=written")
    page.get_by_role("button", name="Record 0 of partition 0").click()
    value = page.locator("pre.whole").first
    expect(value).to_contain_text("9007199254740993")
    expect(page.get_by_role("button", name="As written")).to_be_visible()
    assert value.inner_text().startswith(LINES)
    expect(page.get_by_text("Header trace")).to_be_visible()
    page.get_by_role("button", name="As written").click()
    assert value.inner_text() == WRITTEN
    page.close()


def test_a_value_of_the_schema_registry_is_decoded_and_its_bytes_stay_reachable(
    browser: Browser, broker: BrokerProcess, tmp_path: Path
) -> None:
    page = visited(browser, broker, "records?topic=avro")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    values = page.locator("table.records tbody tr td:nth-child(6)")
    expect(values.nth(2)).to_have_text('{"id": 9007199254740993, "lines": [3]}')
    page.get_by_role("button", name="Record 0 of partition 0").click()
    opened_record = page.locator("tr.open")
    expect(opened_record).to_contain_text("Decoded by schema avro-value version 1 (AVRO, id 1)")
    expect(opened_record.locator("pre.whole")).to_have_text('{\n  "id": 9007199254740993,\n  "lines": [\n    3\n  ]\n}')
    page.get_by_role("button", name="Stored bytes").click()
    expect(opened_record.locator("pre.whole")).to_have_text("00 00 00 00 01 82 80 80 80 80 80 80 20 02 06 00")
    page.get_by_role("button", name="Copy").click()
    expect(page.locator(".open [role=status]")).to_have_text("copied")
    copied = page.evaluate("async () => await navigator.clipboard.readText()")
    assert bytes.fromhex(copied) == struct.pack(">bI", 0, 1) + ORDER
    with page.expect_download() as downloaded:
        page.get_by_role("link", name="Download").click()
    downloaded.value.save_as(tmp_path / "bytes")
    assert (tmp_path / "bytes").read_bytes() == struct.pack(">bI", 0, 1) + ORDER
    page.get_by_role("button", name="Decoded", exact=True).click()
    with page.expect_download() as downloaded:
        page.get_by_role("link", name="Download").click()
    assert downloaded.value.suggested_filename == "avro-0-0.json"
    downloaded.value.save_as(tmp_path / "json")
    assert (tmp_path / "json").read_text() == '{"id": 9007199254740993, "lines": [3]}'
    page.close()


def test_a_value_that_the_list_does_not_decode_is_decoded_when_it_is_opened(
    browser: Browser, broker: BrokerProcess
) -> None:
    page = visited(browser, broker, "records?topic=avro")
    page.get_by_role("button", name="Record 1 of partition 0").click()
    expect(page.locator("tr.open pre.whole")).to_contain_text('"id": 9007199254740993')
    expect(page.locator("tr.open")).to_contain_text("Decoded by schema avro-value version 1")
    page.close()


def test_bytes_of_an_unknown_schema_are_shown_with_the_reason(browser: Browser, broker: BrokerProcess) -> None:
    page = visited(browser, broker, "records?topic=avro")
    page.get_by_role("button", name="Record 2 of partition 0").click()
    expect(page.locator("tr.open")).to_contain_text("Not decoded by schema id 99: Schema 99 not found.")
    expect(page.locator("tr.open pre.whole")).to_have_text("00 00 00 00 63 ff")
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    page.close()


def test_a_record_shows_all_its_headers(browser: Browser, broker: BrokerProcess) -> None:
    page = visited(browser, broker, "records?topic=headed")
    page.get_by_role("button", name="Record 0 of partition 0").click()
    headers = page.locator("tr.open h2", has_text="Header h-")
    expect(headers).to_have_count(20)
    page.get_by_role("button", name="Show 20 more headers of 25").click()
    expect(headers).to_have_count(40)
    page.get_by_role("button", name="Show 5 more headers of 5").click()
    expect(headers).to_have_count(45)
    expect(page.locator("tr.open pre.whole").last).to_have_text("header 44")
    expect(page.get_by_role("button", name="more header")).to_have_count(0)
    page.close()


def test_a_large_value_is_read_in_pieces_copied_and_downloaded(
    browser: Browser, broker: BrokerProcess, tmp_path: Path
) -> None:
    page = visited(browser, broker, "records?topic=large")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Record 0 of partition 0").click()
    expect(page.get_by_role("button", name="More, from byte 262,144")).to_be_visible()
    page.get_by_role("button", name="More, from byte 262,144").click()
    expect(page.get_by_role("button", name="More, from byte 524,288")).to_be_visible()
    with page.expect_download() as downloaded:
        page.get_by_role("link", name="Download").click()
    downloaded.value.save_as(tmp_path / "value")
    assert (tmp_path / "value").read_text() == LARGE
    page.get_by_role("button", name="Copy").click()
    expect(page.locator(".open [role=status]")).to_have_text("copied")
    assert page.evaluate("async () => (await navigator.clipboard.readText()).length") == len(LARGE)
    page.get_by_role("button", name="Show all").click()
    expect(page.get_by_role("button", name="As written")).to_be_visible(timeout=60_000)
    assert page.evaluate("() => document.querySelector('pre.whole').textContent.endsWith('\\n  \"end\": \"here\"\\n}')")
    page.close()


def test_the_tail_goes_on_and_is_paused(browser: Browser, broker: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("tail", b"1", key=b"first")
    assert producer.flush(30) == 0
    page = visited(browser, broker, "records?topic=tail")
    page.get_by_role("button", name="Record 0 of partition 0").click()
    producer.produce("tail", b"2", key=b"second")
    assert producer.flush(30) == 0
    expect(page.locator("table.records tbody tr:not(.open)")).to_have_count(2)
    expect(page.locator("table.records tbody tr.open")).to_have_count(1)  # The expanded record stays expanded.
    page.get_by_role("button", name="Pause").click()
    other = visited(browser, broker, "records?topic=tail")
    for key in (b"third", b"fourth"):  # The other page requests new records at least once between these two records.
        producer.produce("tail", b"3", key=key)
        assert producer.flush(30) == 0
        expect(other.locator("table.records")).to_contain_text(key.decode())
    other.close()
    expect(page.locator("table.records tbody tr:not(.open)")).to_have_count(2)
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("table.records tbody tr:not(.open)")).to_have_count(4)
    page.close()


def test_a_paused_list_answers_its_user(browser: Browser, broker: BrokerProcess) -> None:
    page = visited(browser, broker, "records?topic=many")
    expect(page.locator("table.records tbody tr")).to_have_count(50)
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Show more").click()
    expect(page.locator("table.records tbody tr")).to_have_count(100)
    page.fill("#find", '"number":77')
    expect(page.locator(".pages")).to_contain_text("50 records shown")
    page.fill("#find", '"number":7777}')
    expect(page.locator(".pages")).to_contain_text("1 record shown")
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    expect(page.get_by_role("button", name="Show more")).to_have_count(0)
    page.close()


def test_the_tail_keeps_up_with_a_topic_that_grows_quickly(browser: Browser, broker: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("quick", b"1", key=b"k-0")
    assert producer.flush(30) == 0
    page = visited(browser, broker, "records?topic=quick")
    expect(page.locator("table.records tbody tr")).to_have_count(1)
    for number in range(1, 20_000):
        producer.produce("quick", b"1", key=f"k-{number}")
    assert producer.flush(60) == 0
    expect(page.locator("table.records tbody tr").first).to_contain_text("k-19999")
    shown = page.locator("table.records tbody tr").count()
    page.get_by_role("button", name="Show more").click()
    expect(page.locator("table.records tbody tr")).to_have_count(shown + 50)
    assert rows(page) == [f"k-{number}" for number in range(19_999, 19_949 - shown, -1)]
    page.close()


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1280, "light"), (1280, "dark")])
def test_an_expanded_record_is_accessible_and_fits(
    browser: Browser, broker: BrokerProcess, width: int, scheme: str
) -> None:
    page = visited(browser, broker, "records?topic=written", width=width, scheme=scheme)
    page.get_by_role("button", name="Record 0 of partition 0").click()
    expect(page.locator("pre.whole").first).to_be_visible()
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
    page.close()
