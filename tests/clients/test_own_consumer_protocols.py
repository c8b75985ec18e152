"""Tests rebalances in which members keep most of their partitions: cooperative-sticky (KIP-429) and KIP-848, with
Odradek's consumer."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from odradek.client import IllegalState, OffsetAndMetadata, TopicPartition
from odradek.client.sync import Consumer, Producer
from tests.clients.admin import create_topic
from tests.clients.own_consumers import member, produce, values_of
from tests.clients.speakers import wait_for

COOPERATIVE: dict[str, object] = {"partition_assignment_strategy": ["cooperative-sticky"]}
CONSUMER: dict[str, object] = {"group_protocol": "consumer"}
Heard = list[tuple[str, frozenset[int]]]


@pytest.fixture(params=[COOPERATIVE, CONSUMER], ids=["cooperative", "consumer"])
def protocol(request: pytest.FixtureRequest) -> dict[str, object]:
    found: dict[str, object] = request.param
    return found


def listening(consumer: Consumer, topic: str) -> Heard:
    """Subscribes to the topic. Returns a list that collects the rebalance listener's calls."""
    heard: Heard = []

    def note(what: str, partitions: list[TopicPartition]) -> None:
        if partitions:
            heard.append((what, frozenset(each.partition for each in partitions)))

    consumer.subscribe(
        [topic],
        on_assigned=lambda partitions: note("assigned", partitions),
        on_revoked=lambda partitions: note("revoked", partitions),
        on_lost=lambda partitions: note("lost", partitions),
    )
    return heard


def owned(consumer: Consumer) -> frozenset[int]:
    return frozenset(each.partition for each in consumer.assignment())


@pytest.fixture
def several(request: pytest.FixtureRequest) -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def settle(*consumers: Consumer, shares: list[int]) -> None:
    def are_settled() -> bool:
        for consumer in consumers:
            consumer.getmany(timeout_ms=50)
        return [len(owned(consumer)) for consumer in consumers] == shares

    wait_for(f"shares of {shares}", are_settled)


def test_a_remaining_member_loses_only_the_partitions_that_move(
    bootstrap: str, protocol: dict[str, object], several: ExitStack, request: pytest.FixtureRequest
) -> None:
    topic = create_topic(bootstrap, request.node.name, partitions=4)
    first = several.enter_context(member(bootstrap, group=topic, **protocol))
    heard = listening(first, topic)
    settle(first, shares=[4])
    second = several.enter_context(member(bootstrap, topic, group=topic, **protocol))
    settle(first, second, shares=[2, 2])
    assert owned(first) | owned(second) == {0, 1, 2, 3}
    assert heard == [("assigned", frozenset({0, 1, 2, 3})), ("revoked", owned(second))]
    moved = owned(second)
    second.close()
    settle(first, shares=[4])
    assert heard[2:] == [("assigned", moved)]


def test_positions_are_committed_before_partitions_move_and_nothing_is_read_twice(
    bootstrap: str, protocol: dict[str, object], several: ExitStack, request: pytest.FixtureRequest
) -> None:
    topic = create_topic(bootstrap, request.node.name, partitions=2)
    for partition in (0, 1):
        produce(bootstrap, topic, *(b"%d-%d" % (partition, number) for number in range(20)), partition=partition)
    settings = {**protocol, "enable_auto_commit": True, "auto_commit_interval_ms": 60_000}
    first = several.enter_context(member(bootstrap, topic, group=topic, **settings))
    read = values_of(first, 40)
    second = several.enter_context(member(bootstrap, topic, group=topic, **settings))
    settle(first, second, shares=[1, 1])
    for partition in (0, 1):
        produce(bootstrap, topic, b"%d-last" % partition, partition=partition)
    read += values_of(first, 1) + values_of(second, 1)
    assert sorted(filter(None, read)) == sorted(
        [b"%d-%d" % (partition, number) for partition in (0, 1) for number in range(20)] + [b"0-last", b"1-last"]
    )


def test_records_are_still_returned_while_the_group_rebalances(
    bootstrap: str, several: ExitStack, request: pytest.FixtureRequest
) -> None:
    """A new member joins, and the rebalance waits for an old member that does not poll. Meanwhile the other old member
    continues to read."""
    topic = create_topic(bootstrap, request.node.name, partitions=2)
    group = {**COOPERATIVE, "max_poll_interval_ms": 60_000}
    first = several.enter_context(member(bootstrap, topic, group=topic, **group))
    second = several.enter_context(member(bootstrap, topic, group=topic, **group))
    settle(first, second, shares=[1, 1])
    third = several.enter_context(member(bootstrap, topic, group=topic, **group))
    third.getmany(timeout_ms=300)  # The broker answers JoinGroup only after the second member has rejoined.
    (partition,) = owned(first)
    produce(bootstrap, topic, b"meanwhile", partition=partition)
    assert values_of(first, 1) == [b"meanwhile"]


def test_a_member_that_was_expelled_loses_everything_and_comes_back(
    bootstrap: str, protocol: dict[str, object], several: ExitStack, request: pytest.FixtureRequest
) -> None:
    topic = create_topic(bootstrap, request.node.name)
    produce(bootstrap, topic, b"a", b"b")
    slow = several.enter_context(member(bootstrap, group=topic, max_poll_interval_ms=300, **protocol))
    heard = listening(slow, topic)
    assert values_of(slow, 1)[0] == b"a"
    other = several.enter_context(member(bootstrap, topic, group=topic, **protocol))
    settle(other, shares=[1])
    other.close()
    assert values_of(slow, 1)[0] == b"a"  # Nothing has been committed.
    assert heard[:2] == [("assigned", frozenset({0})), ("lost", frozenset({0}))]
    slow.commit()


def test_transactions_commit_offsets_in_the_name_of_the_member(
    bootstrap: str, protocol: dict[str, object], several: ExitStack, request: pytest.FixtureRequest
) -> None:
    topic = create_topic(bootstrap, request.node.name)
    produce(bootstrap, topic, b"a", b"b")
    consumer = several.enter_context(member(bootstrap, topic, group=topic, **protocol))
    values_of(consumer, 2)
    partition = TopicPartition(topic, 0)
    with Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({partition: 2}, consumer.group_metadata())
        producer.commit_transaction()
    assert consumer.committed([partition]) == {partition: OffsetAndMetadata(2, "", None)}


def test_topics_whose_whole_name_matches_a_pattern_are_read(
    bootstrap: str, several: ExitStack, request: pytest.FixtureRequest
) -> None:
    topic = create_topic(bootstrap, request.node.name, partitions=2)
    create_topic(bootstrap, f"{request.node.name}-not")
    consumer = several.enter_context(member(bootstrap, group=topic, **CONSUMER))
    consumer.subscribe(pattern=f"{request.node.name}-[0-9a-f]+")
    settle(consumer, shares=[2])
    assert {each.topic for each in consumer.assignment()} == {topic}


def test_the_classic_protocol_refuses_a_pattern(bootstrap: str) -> None:
    with member(bootstrap, group="classic") as consumer, pytest.raises(IllegalState, match="group_protocol"):
        consumer.subscribe(pattern="a.*")
