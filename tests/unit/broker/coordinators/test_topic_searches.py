"""Tests that groups' regular expressions are matched against all topics in slices, once for all groups, and later only
against new names."""

import asyncio
import random

import pytest

from odradek.broker.coordinators.topic_searches import STEPS_PER_ROUND, TopicSearches, check_regex
from odradek.broker.patterns.re2 import WORK_PER_STEP
from odradek.protocol.errors import ErrorCode, KafkaError

CHOICE = random.Random(37)
HOSTILE = ".*a.{100}"
LONG_NAMES = ["".join(CHOICE.choice("ab") for _ in range(240)) for _ in range(2_000)]
ROUND_WORK = STEPS_PER_ROUND * WORK_PER_STEP
# The work on one character is not interrupted at the end of a slice, so a slice may exceed its limit by this much.
LARGEST_NAME_WORK = 10_000


def is_public(name: str) -> bool:
    return "secret" not in name


class Cluster:
    def __init__(self, *names: str, max_work: int = 10**9) -> None:
        self.version = 1
        self.names = list(names)
        self.searches = TopicSearches(lambda: (self.version, self.names), max_work)
        self.found_by: list[str] = []
        self.searches.when_found(self.found_by.append)

    def add(self, name: str) -> None:
        self.names.append(name)
        self.version += 1

    def find(self, group_id: str, *regexes: str) -> dict[str, set[str]] | None:
        found = self.searches.find(group_id, regexes, is_public)
        return None if found is None else {regex: set(names) for regex, names in found.topics.items()}

    async def until_found(self, *group_ids: str) -> int:
        """Waits for these groups' searches to finish. Returns the number of turns of the loop."""
        turns = 0
        while not set(group_ids) <= set(self.found_by):
            await asyncio.sleep(0)
            turns += 1
        return turns


def test_a_simple_expression_is_resolved_at_once_to_the_visible_topics() -> None:
    cluster = Cluster("orders-1", "orders-secret", "payments")
    assert cluster.find("g", "orders-.*", ".*s") == {"orders-.*": {"orders-1"}, ".*s": {"payments"}}


def test_the_loop_does_other_work_while_a_costly_expression_is_matched() -> None:
    async def scene() -> None:
        cluster = Cluster(*LONG_NAMES)
        assert cluster.find("g", HOSTILE) is None
        assert cluster.searches.work <= ROUND_WORK + LARGEST_NAME_WORK
        most, before = 0, cluster.searches.work
        while not cluster.found_by:
            await asyncio.sleep(0)
            most = max(most, cluster.searches.work - before)
            before = cluster.searches.work
        assert before >= 240 * 1_000  # the search has read the names
        assert most < before / 10  # the work was spread over many turns
        assert cluster.find("g", HOSTILE) == {HOSTILE: {name for name in LONG_NAMES if name[-101] == "a"}}

    asyncio.run(scene())


def test_the_work_per_character_does_not_grow_with_the_pattern() -> None:
    async def scene() -> None:
        cluster = Cluster(*LONG_NAMES)
        cluster.find("g", HOSTILE)
        await cluster.until_found("g")
        assert cluster.searches.work < 2 * 240 * len(LONG_NAMES)  # 50 of 100 states are active all the time

    asyncio.run(scene())


def test_groups_with_the_same_expression_share_the_work() -> None:
    async def scene() -> None:
        cluster = Cluster(*LONG_NAMES)
        groups = [f"g{number}" for number in range(50)]
        assert [cluster.find(group, HOSTILE) for group in groups] == [None] * 50
        await cluster.until_found(*groups)
        assert all(cluster.find(group, HOSTILE) for group in groups)
        work = cluster.searches.work
        assert work < 2 * 240 * len(LONG_NAMES)
        cluster.find("another", HOSTILE)
        assert cluster.searches.work == work  # known names are not searched again

    asyncio.run(scene())


def test_only_the_names_of_new_topics_are_compared() -> None:
    async def scene() -> None:
        cluster = Cluster(*LONG_NAMES)
        cluster.find("g", HOSTILE)
        await cluster.until_found("g")
        before = cluster.find("g", HOSTILE)
        assert before is not None
        work = cluster.searches.work
        cluster.add("a" * 101)
        gone = cluster.names.pop(0)
        cluster.found_by.clear()
        cluster.find("g", HOSTILE)
        await cluster.until_found("g")
        assert cluster.find("g", HOSTILE) == {HOSTILE: before[HOSTILE] - {gone} | {"a" * 101}}
        assert cluster.searches.work - work < 1_000

    asyncio.run(scene())


def test_a_result_has_the_version_of_the_topics_at_the_start_of_the_search() -> None:
    async def scene() -> None:
        cluster = Cluster(*LONG_NAMES)
        cluster.find("g", HOSTILE)
        cluster.add("a" * 101)
        await cluster.until_found("g")
        found = cluster.searches.find("g", [HOSTILE], is_public)
        assert found is not None
        assert found.version == 1
        assert "a" * 101 not in found.topics[HOSTILE]

    asyncio.run(scene())


def test_a_search_that_its_group_no_longer_needs_is_not_finished() -> None:
    async def scene() -> None:
        cluster = Cluster(*LONG_NAMES)
        assert cluster.find("g", HOSTILE) is None
        assert cluster.find("g", "payments") is None  # this search waits for the first one
        await cluster.until_found("g")
        assert cluster.find("g", "payments") == {"payments": set()}
        assert cluster.searches.work < 240 * 1_000

    asyncio.run(scene())


def test_a_new_group_does_not_get_the_result_of_an_earlier_group_with_its_id_and_other_rights() -> None:
    async def scene() -> None:
        cluster = Cluster(*LONG_NAMES, "a" * 101)
        assert cluster.find("g", HOSTILE) is None
        await cluster.until_found("g")
        found = cluster.searches.find("g", [HOSTILE], sees_nothing := lambda name: False)
        if found is None:
            found = cluster.searches.find("g", [HOSTILE], sees_nothing)
        assert found is not None
        assert found.topics == {HOSTILE: frozenset()}

    asyncio.run(scene())


def test_a_forgotten_search_is_given_up_and_a_forgotten_result_is_dropped() -> None:
    async def scene() -> None:
        cluster = Cluster(*LONG_NAMES)
        cluster.find("g", HOSTILE)
        cluster.searches.forget("g")
        cluster.find("h", "payments")
        await cluster.until_found("h")
        assert cluster.found_by == ["h"]
        assert cluster.searches.count == 1
        cluster.searches.forget("h")
        assert cluster.searches.count == 0
        cluster.searches.forget("never searched")

    asyncio.run(scene())


def test_a_simple_expression_does_not_wait_until_the_costly_ones_have_ended() -> None:
    async def scene() -> None:
        cluster = Cluster(*LONG_NAMES)
        for number in range(5):
            cluster.find(f"hostile-{number}", f".*a.{{{100 + number}}}")
        cluster.find("g", "payments")
        await cluster.until_found("g")
        assert cluster.found_by == ["g"]

    asyncio.run(scene())


def test_an_expression_that_needs_too_much_work_is_refused_from_then_on() -> None:
    async def scene() -> None:
        cluster = Cluster(*LONG_NAMES, max_work=100_000)
        cluster.searches.check_cost(HOSTILE)
        cluster.find("g", HOSTILE)
        await cluster.until_found("g")
        assert cluster.find("g", HOSTILE) == {HOSTILE: set()}
        with pytest.raises(KafkaError, match=r"\.\*a\.\{100\}` needs more than 100,000 steps") as refused:
            cluster.searches.check_cost(HOSTILE)
        assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
        cluster.searches.check_cost("payments")

    asyncio.run(scene())


def test_a_refusal_quotes_the_beginning_of_a_long_expression_only() -> None:
    with pytest.raises(KafkaError) as refused:
        check_regex("(" + "\\" * 30_000)
    assert len(str(refused.value)) < 1_000
