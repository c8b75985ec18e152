"""Provides a scenario's environment: a fresh cluster, the drivers, and the suite's own clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import IO, TYPE_CHECKING, Final, TypeAlias, TypeVar

from odradek.testing.suite.driver import DrivenClient
from odradek.testing.sync import Cluster

if TYPE_CHECKING:
    from odradek.client import Admin

T = TypeVar("T")
StartDriver: TypeAlias = Callable[[dict[str, str], IO[bytes]], DrivenClient]
CLIENT_ID: Final = "odradek-suite"  # client id of the suite's own clients, which are not judged
JUDGED: Final = "judged"  # client id of the drivers
TOPIC: Final = "orders"
GROUP: Final = "g"
PATIENCE_S: Final = 30.0
POLL_MS: Final = 500
READ_TIMEOUT_S: Final = 5.0


class ScenarioCluster:
    """A scenario's cluster, and the drivers started for it."""

    def __init__(
        self, kafka: Cluster, start: Callable[[dict[str, str], IO[bytes]], DrivenClient], log: IO[bytes]
    ) -> None:
        self.kafka = kafka
        self._start = start
        self._log = log
        self.drivers: list[DrivenClient] = []

    def driver(self, **environment: str) -> DrivenClient:
        """Starts a driver. Each keyword becomes an environment variable: `group="g"` sets ODRADEK_GROUP."""
        variables = {f"ODRADEK_{name.upper()}": value for name, value in environment.items()}
        driver = self._start({"ODRADEK_BOOTSTRAP": self.kafka.bootstrap, **variables}, self._log)
        self.drivers.append(driver)
        return driver

    def topic(self, partitions: int = 1) -> None:
        from odradek.client import NewTopic

        self._run_admin_call(lambda admin: admin.create_topics([NewTopic(TOPIC, partitions=partitions)]))

    def create_again(self) -> None:
        """Deletes the topic and creates a new topic with the same name."""
        self._run_admin_call(lambda admin: admin.delete_topics([TOPIC]))
        self.topic()

    def read_from_the_start(self) -> None:
        """Makes the share group start at the first record of the topic."""
        from odradek.client import AlterOperation, ConfigChange, ConfigResource, ConfigType

        change = ConfigChange(AlterOperation.SET, "share.auto.offset.reset", "earliest")
        self._run_admin_call(lambda admin: admin.alter_configs({ConfigResource(ConfigType.GROUP, GROUP): [change]}))

    def commit(self, *groups: str) -> None:
        """Commits an offset for each of `groups`, as an administrator can do for a group without members."""
        for group in groups:
            self._run_admin_call(partial(_commit_start, group=group))

    def _run_admin_call(self, action: Callable[[Admin], Coroutine[object, object, T]]) -> T:
        from odradek.client import Admin

        async def act() -> T:
            async with Admin(bootstrap_servers=self.kafka.bootstrap, client_id=CLIENT_ID) as admin:
                return await action(admin)

        return _run(act())

    def remove_members(self) -> None:
        """Removes all members of the classic group, as an administrator would. The members learn of their removal when
        their next request is rejected."""
        from odradek.client.network.cluster import Cluster
        from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
        from odradek.protocol.messages.leave_group_response import LeaveGroupResponse

        members = self._run_admin_call(lambda admin: admin.describe_group(GROUP)).members

        async def leave() -> None:
            cluster = Cluster(self.kafka.bootstrap, client_id=CLIENT_ID)
            await cluster.start()
            leaving = [MemberIdentity(member_id=each.member_id) for each in members]
            await cluster.ask(LeaveGroupRequest(group_id=GROUP, members=leaving), LeaveGroupResponse)
            await cluster.close()

        _run(leave())

    def send(self, *values: str, partition: int = 0) -> None:
        from odradek.client import Producer

        async def send() -> None:
            async with Producer(bootstrap_servers=self.kafka.bootstrap, client_id=CLIENT_ID) as producer:
                for value in values:
                    await (await producer.send(TOPIC, value.encode(), partition=partition))

        _run(send())

    def transaction(self, *values: str, commits: bool) -> None:
        """Writes the values in one transaction, in compressed batches, and then commits or aborts it."""
        from odradek.client import Producer

        async def send() -> None:
            async with Producer(
                bootstrap_servers=self.kafka.bootstrap,
                client_id=CLIENT_ID,
                transactional_id=CLIENT_ID,
                compression_type="gzip",
            ) as producer:
                await producer.init_transactions()
                await producer.begin_transaction()
                sent: list[Awaitable[object]] = [
                    await producer.send(TOPIC, value.encode(), partition=0) for value in values
                ]
                await asyncio.gather(*sent)
                await (producer.commit_transaction() if commits else producer.abort_transaction())

        _run(send())

    def leave_offsets_open(self, group: str) -> None:
        """Begins a transaction that contains an offset for the group. Its producer is never closed, so the transaction
        remains open."""
        from odradek.client import OffsetAndMetadata, Producer, TopicPartition

        async def send() -> None:
            producer = Producer(bootstrap_servers=self.kafka.bootstrap, client_id=CLIENT_ID, transactional_id=CLIENT_ID)
            await producer.start()
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction({TopicPartition(TOPIC, 0): OffsetAndMetadata(0)}, group)

        _run(send())

    def end_open_transaction(self) -> None:
        """Aborts the transaction of `leave_offsets_open` by starting another producer with its transactional id."""
        from odradek.client import Producer

        async def end() -> None:
            async with Producer(
                bootstrap_servers=self.kafka.bootstrap, client_id=CLIENT_ID, transactional_id=CLIENT_ID
            ) as producer:
                await producer.init_transactions()

        _run(end())

    def committed(self, count: int) -> list[str]:
        """Returns the values of `count` committed records, or fewer if no more records arrive within READ_TIMEOUT_S."""
        from odradek.client import Consumer, TopicPartition

        async def read() -> list[str]:
            found: list[str] = []
            async with Consumer(bootstrap_servers=self.kafka.bootstrap, client_id=CLIENT_ID) as consumer:
                consumer.assign([TopicPartition(TOPIC, 0)])
                while len(found) < count:
                    try:
                        record = await asyncio.wait_for(consumer.getone(), READ_TIMEOUT_S)
                    except TimeoutError:
                        break
                    found.append((record.value or b"").decode(errors="replace"))
            return found

        return _run(read())


def poll_values(driver: DrivenClient, count: int, more: int = 2) -> list[str]:
    """Polls until the application has received `count` records, and then polls `more` more times. Returns all received
    values."""
    return poll_drivers([driver], count, more)


def poll_drivers(drivers: Sequence[DrivenClient], count: int, more: int = 2) -> list[str]:
    """Polls several applications in turn, like `poll_values`. Returns the values that they received."""
    received: list[str] = []
    until_s = time.monotonic() + PATIENCE_S
    while (len(received) < count or more) and time.monotonic() < until_s:
        more -= len(received) >= count
        for driver in drivers:
            received += driver.run_command("poll", str(POLL_MS))
    return received


def difference(received: Iterable[str], expected: Iterable[str]) -> str | None:
    received, expected = list(received), list(expected)
    return None if received == expected else f"the application received {received} instead of {expected}"


async def _commit_start(admin: Admin, group: str) -> None:
    from odradek.client import TopicPartition

    await admin.alter_group_offsets(group, {TopicPartition(TOPIC, 0): 0})


def _run(action: Coroutine[object, object, T]) -> T:
    return asyncio.run(action)
