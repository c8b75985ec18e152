"""Tests classic consumer groups, with the consumers of each client library."""

import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.clients.admin import create_topic
from tests.clients.conftest import StartBroker
from tests.clients.speakers import SPEAKERS, Member, Message, ReceivedRecord, RequestRefused, Speaker, wait_for
from tests.support.oracle import REPOSITORY

PARTITIONS = 4


@pytest.fixture
def topic(bootstrap: str, request: pytest.FixtureRequest) -> str:
    return create_topic(bootstrap, request.node.name, partitions=PARTITIONS)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


def messages(count: int, tag: str = "m") -> list[Message]:
    return [Message(f"{tag}{n}".encode(), partition=n % PARTITIONS) for n in range(count)]


def values(expected: list[Message]) -> Counter[bytes | None]:
    return Counter(message.value for message in expected)


class Crowd:
    """Group members polled in threads until a condition holds. The crowd stores the records that its members
    receive."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self.members: list[Member] = []
        self.received: list[ReceivedRecord] = []
        self._owned: dict[Member, set[frozenset[int]]] = defaultdict(set)

    def join(self, speaker: Speaker, bootstrap: str, topic: str, group: str, **how: object) -> Member:
        # Joining may depend on polls of other members, because aiokafka waits for its first assignment.
        joining = self._pool.submit(speaker.join, bootstrap, topic, group, **how)  # type: ignore[arg-type]
        self.until(joining.done)
        self.members.append(joining.result())
        return self.members[-1]

    def leave(self, member: Member) -> None:
        self.members.remove(member)
        leaving = self._pool.submit(member.close)
        self.until(leaving.done)
        leaving.result()

    def poll(self) -> None:
        for found in self._pool.map(lambda member: member.poll(0.05), self.members):
            self.received += found
        for member in self.members:
            self._owned[member].add(frozenset(member.assignment()))

    def until(self, condition: Callable[[], bool]) -> None:
        def is_true() -> bool:
            self.poll()
            return condition()

        wait_for("the group to get there", is_true)

    def owned_meanwhile(self, member: Member) -> set[frozenset[int]]:
        """Returns every set of partitions that this member has owned so far."""
        return self._owned[member]

    def until_shared(self) -> list[set[int]]:
        """Polls until every partition has exactly one owner and every member owns at least one partition.

        Returns the partitions of each member.
        """

        def shared() -> bool:
            owned = [member.assignment() for member in self.members]
            return all(owned) and sorted(p for one in owned for p in one) == list(range(PARTITIONS))

        self.until(shared)
        return [member.assignment() for member in self.members]

    def until_received(self, count: int) -> Counter[bytes | None]:
        """Polls until `count` records have arrived since the last call. Returns the number of times that each value has
        arrived."""
        self.until(lambda: len(self.received) >= count)
        found, self.received = self.received, []
        return Counter(one.value for one in found)

    def close(self) -> None:
        for member in list(self.members):
            self.leave(member)


@pytest.fixture
def crowd(pool: ThreadPoolExecutor) -> Iterator[Crowd]:
    found = Crowd(pool)
    yield found
    found.close()


def test_a_single_member_reads_everything_and_its_commits_outlive_it(
    bootstrap: str, topic: str, speaker: Speaker, crowd: Crowd
) -> None:
    speaker.produce(bootstrap, topic, messages(100))
    member = crowd.join(speaker, bootstrap, topic, topic)
    assert crowd.until_received(100) == values(messages(100))
    member.commit()
    assert [member.committed(partition) for partition in range(PARTITIONS)] == [25] * PARTITIONS
    crowd.leave(member)
    speaker.produce(bootstrap, topic, messages(8, "later"))
    crowd.join(speaker, bootstrap, topic, topic)
    assert crowd.until_received(8) == values(messages(8, "later"))


def test_partitions_are_reassigned_when_members_join_and_leave(
    bootstrap: str, topic: str, speaker: Speaker, crowd: Crowd
) -> None:
    first = crowd.join(speaker, bootstrap, topic, topic)
    assert crowd.until_shared() == [{0, 1, 2, 3}]
    crowd.join(speaker, bootstrap, topic, topic)
    assert [len(owned) for owned in crowd.until_shared()] == [2, 2]
    crowd.join(speaker, bootstrap, topic, topic)
    assert sorted(len(owned) for owned in crowd.until_shared()) == [1, 1, 2]
    speaker.produce(bootstrap, topic, messages(40))
    assert crowd.until_received(40) == values(messages(40))
    crowd.leave(first)
    assert sorted(len(owned) for owned in crowd.until_shared()) == [2, 2]


def test_members_of_different_libraries_share_one_group(bootstrap: str, topic: str, crowd: Crowd) -> None:
    crowd.join(SPEAKERS["kafka-python"], bootstrap, topic, topic)
    crowd.until_shared()
    crowd.join(SPEAKERS["confluent-kafka"], bootstrap, topic, topic)
    assert sorted(len(owned) for owned in crowd.until_shared()) == [2, 2]
    SPEAKERS["aiokafka"].produce(bootstrap, topic, messages(40))
    assert crowd.until_received(40) == values(messages(40))


def test_a_member_whose_process_dies_loses_its_partitions_after_its_session_timeout(
    bootstrap: str, topic: str, crowd: Crowd
) -> None:
    command = [sys.executable, "-m", "tests.clients.lone_member", bootstrap, topic, topic, "1000"]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as dying:
        assert dying.stdout is not None
        assert dying.stdout.readline() == "assigned\n"
        crowd.join(SPEAKERS["kafka-python"], bootstrap, topic, topic)
        crowd.until(lambda: [len(member.assignment()) for member in crowd.members] == [2])
        dying.kill()
    assert crowd.until_shared() == [{0, 1, 2, 3}]


def test_a_static_member_that_returns_keeps_its_partitions_and_disturbs_nobody(
    bootstrap: str, topic: str, speaker: Speaker, crowd: Crowd
) -> None:
    returning = crowd.join(speaker, bootstrap, topic, topic, instance="one")
    crowd.until_shared()
    staying = crowd.join(speaker, bootstrap, topic, topic, instance="two")
    before = crowd.until_shared()
    crowd.owned_meanwhile(staying).clear()
    # A static member does not leave the group, because it may return within its session timeout.
    crowd.leave(returning)
    crowd.join(speaker, bootstrap, topic, topic, instance="one")
    after_staying, after_returning = crowd.until_shared()
    assert [after_returning, after_staying] == before
    assert crowd.owned_meanwhile(staying) == {frozenset(after_staying)}


def test_a_second_static_member_of_the_same_name_fences_the_first(
    bootstrap: str, topic: str, pool: ThreadPoolExecutor
) -> None:
    confluent = SPEAKERS["confluent-kafka"]
    first = confluent.join(bootstrap, topic, topic, instance="same")
    wait_for("the first to be assigned", lambda: first.poll() or first.assignment())
    second = confluent.join(bootstrap, topic, topic, instance="same")
    with pytest.raises(RequestRefused) as refusal:
        wait_for("the fence", lambda: second.poll() or first.poll() or False)
    assert "fenced" in str(refusal.value).lower()
    wait_for("the second to be assigned", lambda: second.poll() or second.assignment())
    second.close()


@pytest.mark.slow  # runs in `make test-slow`
def test_committed_offsets_and_membership_survive_a_restart(
    start_broker: StartBroker, speaker: Speaker, crowd: Crowd
) -> None:
    broker = start_broker({})
    topic = create_topic(broker.bootstrap, "restart", partitions=PARTITIONS)
    speaker.produce(broker.bootstrap, topic, messages(40))
    member = crowd.join(speaker, broker.bootstrap, topic, "survivors", session_timeout_ms=30_000)
    crowd.until_received(40)
    member.commit()
    broker.restart()
    speaker.produce(broker.bootstrap, topic, messages(4, "after"))
    assert crowd.until_received(4) == values(messages(4, "after"))
    member.commit()
    assert [member.committed(partition) for partition in range(PARTITIONS)] == [11] * PARTITIONS
    broker.kill9()
    broker.start()
    speaker.produce(broker.bootstrap, topic, messages(4, "again"))
    assert crowd.until_received(4) == values(messages(4, "again"))
    member.commit()
    assert [member.committed(partition) for partition in range(PARTITIONS)] == [12] * PARTITIONS


def test_a_group_without_members_starts_where_a_commit_says(bootstrap: str, topic: str, speaker: Speaker) -> None:
    speaker.produce(bootstrap, topic, messages(40))
    first = SPEAKERS["confluent-kafka"].join(bootstrap, topic, topic)
    wait_for("records", lambda: first.poll() != [])
    first.commit()
    committed = [first.committed(partition) for partition in range(PARTITIONS)]
    first.close()
    second = speaker.join(bootstrap, topic, topic)
    assert [second.committed(partition) for partition in range(PARTITIONS)] == committed
    second.close()
