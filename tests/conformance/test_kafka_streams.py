"""Tests that Kafka Streams counts words exactly once with `group.protocol=streams`: docs/spec/streams-groups.md#s12.

The word count has a repartition topic, a changelog and standby tasks. The updates of each word are 1, 2, 3 and so on,
without gaps or repetitions, no matter which process is killed. If BROKER=kafka is set, the tests run against Kafka and
expect the same results.
"""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance.streams_instances import (
    BEFORE,
    BROKER_SETTINGS,
    NEWEST,
    Application,
    Instance,
    class_path,
    wait_for_tasks,
    wait_until,
)
from tests.conformance.streams_scene import Scene, talk_to
from tests.support.broker_process import Broker, new_broker
from tests.support.oracle import needs_kafka

pytestmark = needs_kafka

WORDS = ("to", "be", "or", "not", "that", "is")
NUMBERS = itertools.count()
NewApplication = Callable[[str], Application]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with new_broker(tmp_path_factory.mktemp("kafka-streams") / "data", BROKER_SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def class_paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {release: class_path(release, tmp_path_factory.mktemp(release)) for release in (NEWEST, BEFORE)}


@pytest.fixture
def new_application(broker: Broker, class_paths: dict[str, str], tmp_path: Path) -> Iterator[NewApplication]:
    """Yields a function that creates an application for a release of kafka-streams."""
    made: list[Application] = []

    def make(release: str) -> Application:
        name = f"count{next(NUMBERS)}"
        application = Application(broker.bootstrap, name, tmp_path, class_paths[release], [], {})
        made.append(application)
        return application

    yield make
    for each in made:
        each.end()


@pytest.fixture
def application(new_application: NewApplication) -> Application:
    made = new_application(NEWEST)
    made.make_topics()
    return made


def state_of(broker: Broker, application: Application) -> tuple[str, int, int]:
    talk = talk_to(broker)
    try:
        return Scene(talk, application.name).state
    finally:
        talk.close()


def test_scenario_118_words_are_counted_once_although_instances_and_the_broker_are_killed(
    broker: Broker, application: Application
) -> None:
    x = application.start("x")
    application.say(*WORDS, times=20)
    wait_for_tasks(x)
    y = application.start("y")
    wait_for_tasks(x, y)
    application.say(*WORDS, times=20)
    x.kill9()
    application.say(*WORDS, times=20)
    x, z = application.start("x"), application.start("z")
    wait_for_tasks(x, y, z)
    application.say(*WORDS, times=20)
    broker.kill9()
    broker.start()
    application.say(*WORDS, times=20)
    y.kill9()
    z.kill9()
    application.say(*WORDS, times=20)
    wait_for_tasks(x)
    application.assert_counted_once_in_order()
    x.close()


@pytest.mark.parametrize("release", [NEWEST, BEFORE])
def test_scenarios_117_and_121_two_instances_share_the_tasks(
    broker: Broker, new_application: NewApplication, release: str
) -> None:
    application = new_application(release)
    application.make_topics()
    x = application.start("x")
    application.say(*WORDS, times=3)
    wait_for_tasks(x)
    y = application.start("y")
    wait_for_tasks(x, y)
    assert {len(each.tasks[0]) for each in (x, y)} == {3}
    assert not x.tasks[0] & x.tasks[1]
    application.say(*WORDS, times=3)
    y.close("leave")
    wait_for_tasks(x)
    application.say(*WORDS, times=3)
    application.assert_counted_once_in_order()
    x.close("leave")
    assert state_of(broker, application)[0] == "Empty"


def test_scenario_072_a_rolling_restart_of_static_members_moves_no_task(
    broker: Broker, application: Application
) -> None:
    talk = talk_to(broker)
    Scene(talk, application.name).configure(session_timeout_ms=45_000)
    talk.close()
    running: dict[str, Instance] = {}

    def start(name: str) -> None:
        running[name] = application.start(name, main_consumer_group_instance_id=name)

    start("x")
    start("y")
    wait_for_tasks(*running.values())
    wait_until("a stable group", lambda: state_of(broker, application)[0] == "Stable", *running.values())
    before = state_of(broker, application)
    owned = {name: instance.tasks for name, instance in running.items()}
    for name in ("x", "y"):
        application.say(*WORDS, times=5)
        running[name].close()
        start(name)
        wait_for_tasks(*running.values())
        wait_until("a stable group", lambda: state_of(broker, application)[0] == "Stable", *running.values())
        assert {each: instance.tasks for each, instance in running.items()} == owned
    assert state_of(broker, application) == before
    application.assert_counted_once_in_order()
    for each in running.values():
        each.close("leave")


def test_scenario_054_an_application_whose_topology_has_changed_is_refused(
    broker: Broker, application: Application
) -> None:
    x = application.start("x")
    application.say(*WORDS)
    wait_for_tasks(x)
    x.close("leave")
    changed = application.start("changed", "counts-and-lengths")
    changed.wait_for_end()
    assert set(changed.failures) == {
        "StreamsException: InvalidRequestException: Topology updates are not supported yet."
    }
    talk = talk_to(broker)
    Scene(talk, application.name).delete()
    talk.close()
    again = application.start("again", "counts-and-lengths")
    wait_until("it runs", lambda: len(again.tasks[0]) == 3 * 3, again)
    assert again.failures == []
    again.close("leave")


def test_scenario_119_an_application_without_its_source_topic_ends(new_application: NewApplication) -> None:
    application = new_application(NEWEST)
    x = application.start("x")
    x.wait_for_end()
    (failure,) = x.failures
    assert failure.startswith("MissingSourceTopicException: MissingSourceTopicException: ")


def test_scenario_120_one_instance_shuts_down_all_of_them(application: Application) -> None:
    x, y = application.start("x"), application.start("y")
    wait_for_tasks(x, y)
    application.say("boom")
    x.wait_for_end()
    y.wait_for_end()
    assert sum(len(each.failures) for each in (x, y)) >= 1
