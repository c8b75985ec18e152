"""Tests that the page and its API show a streams group: its topology, the topics, and the owners of its tasks."""

import json
from collections.abc import Iterator
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, expect

from odradek.client import NewTopic
from odradek.client.sync import Admin
from tests.clients.speakers import wait_for
from tests.clients.streams_members import NO_DELAY, StreamsMember
from tests.page.opened import opened
from tests.support.broker_process import BrokerProcess
from tests.support.wire import Wire


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Yields a broker with the group `counter`, which has two members. Each task has a standby on the other member."""
    settings = {**NO_DELAY, "group.streams.num.standby.replicas": 1}
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings) as running:
        assert isinstance(running, BrokerProcess)
        with Admin(bootstrap_servers=running.bootstrap, retry_backoff_ms=20) as admin:
            admin.create_topics([NewTopic("lines", 2)])
        with Wire(running.bootstrap) as wire:
            members = [StreamsMember(wire, "counter", name, process=f"process {name}") for name in ("m1", "m2")]
            for member in members:
                member.join()

            def has_tasks() -> bool:
                counts = [sum(len(partitions) for partitions in member.beat().values()) for member in members]
                return counts == [2, 2]

            wait_for("two tasks for each member", has_tasks)
            yield running


def test_the_picture_and_the_tables_show_the_topology_and_who_runs_its_tasks(
    browser: Browser, broker: BrokerProcess
) -> None:
    page = opened(browser, broker.ready["http_port"], "group?id=counter")
    drawn = page.locator("svg.picture")
    expect(drawn).to_contain_text("Subtopology 0")
    expect(drawn).to_contain_text("2 tasks, 1 store")
    expect(drawn.locator("rect")).to_have_count(2)
    expect(drawn.locator("path.flow")).to_have_count(2)  # for the source topic and the repartition topic
    expect(drawn).to_contain_text("lines")
    expect(drawn).to_contain_text("counter-by-word-repartition")
    topics = page.get_by_role("region", name="Topics of the topology")
    expect(topics).to_contain_text("counter-counts-changelog")
    expect(page.get_by_role("region", name="Members")).to_contain_text("process m1")
    expect(page.locator("main")).to_contain_text("topology of epoch 0: 2 subtopologies")
    page.close()


def test_the_http_api_shows_the_same_group_as_the_page(broker: BrokerProcess) -> None:
    with urlopen(f"http://127.0.0.1:{broker.ready['http_port']}/api/group?id=counter") as answer:
        view = json.load(answer)
    streams = view["streams"]
    reader, counter = streams["subtopologies"]
    assert (reader["sources"], reader["repartition_sinks"]) == (["lines"], ["counter-by-word-repartition"])
    assert counter["changelogs"] == [{"name": "counter-counts-changelog", "partitions": 2}]
    assert counter["repartition_sources"] == [{"name": "counter-by-word-repartition", "partitions": 2}]
    assert [each["tasks"] for each in streams["subtopologies"]] == [2, 2]
    assert (streams["subtopology_count"], streams["description"]) == (2, None)
    active = [task for each in streams["owners"] for task in each["active"]]
    assert sorted(active) == ["0_0", "0_1", "1_0", "1_1"]
    assert {each["partition"] for each in view["offsets"]} >= {"lines-0", "lines-1"}
