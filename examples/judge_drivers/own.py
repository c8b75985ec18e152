"""A driver for `odradek judge --suite` that uses odradek.client."""

import asyncio
import json
import os
import sys

from odradek.client import Admin, ClientError, Consumer, NewTopic, Producer, ShareConsumer

SERVERS, CLIENT_ID, METADATA_MAX_AGE_MS = os.environ["ODRADEK_BOOTSTRAP"], "judged", 1000
MIN_SESSION_MS = 6000


class Application:
    producer: Producer | None = None
    consumer: Consumer | None = None
    sharer: ShareConsumer | None = None

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}

    async def set(self, name: str, value: str) -> dict[str, object]:
        self.settings[name] = value
        known = ("protocol", "assignor", "rack", "create_topics", "max_poll_interval_ms", "two_phase")
        return {} if name in known else {"unimplemented": True}

    async def producing(self) -> Producer:
        if self.producer is None:
            transactional_id = os.environ.get("ODRADEK_TRANSACTIONAL_ID")
            idempotence = os.environ.get("ODRADEK_IDEMPOTENCE") != "off"
            self.producer = Producer(
                bootstrap_servers=SERVERS,
                client_id=CLIENT_ID,
                metadata_max_age_ms=METADATA_MAX_AGE_MS,
                transactional_id=transactional_id,
                enable_idempotence=idempotence,
                two_phase_commit=self.settings.get("two_phase") == "on",
            )
            await self.producer.start()
            if transactional_id is not None:
                await self.producer.init_transactions()
        return self.producer

    async def produce(self, topic: str, partition: str, *values: str) -> dict[str, object]:
        producer = await self.producing()
        sent = [await producer.send(topic, value.encode(), partition=int(partition)) for value in values]
        for each in sent:
            await each
        return {}

    async def begin(self) -> dict[str, object]:
        await (await self.producing()).begin_transaction()
        return {}

    async def commit(self) -> dict[str, object]:
        await (await self.producing()).commit_transaction()
        return {}

    async def abort(self) -> dict[str, object]:
        await (await self.producing()).abort_transaction()
        return {}

    async def prepare(self) -> dict[str, object]:
        await (await self.producing()).prepare_transaction()
        return {}

    async def subscribe(self, topic: str) -> dict[str, object]:
        if self.consumer is None:
            said = self.settings.get
            interval_ms = int(said("max_poll_interval_ms", "300000"))
            self.consumer = Consumer(
                bootstrap_servers=SERVERS,
                client_id=CLIENT_ID,
                metadata_max_age_ms=METADATA_MAX_AGE_MS,
                group_id=os.environ["ODRADEK_GROUP"],
                group_instance_id=os.environ.get("ODRADEK_GROUP_INSTANCE_ID"),
                group_protocol=said("protocol", "classic"),
                partition_assignment_strategy=[said("assignor", "range")],
                client_rack=said("rack"),
                allow_auto_create_topics=said("create_topics") != "off",
                max_poll_interval_ms=interval_ms,
                session_timeout_ms=max(MIN_SESSION_MS, min(45_000, interval_ms)),
            )
            await self.consumer.start()
        self.consumer.subscribe([topic])
        return {}

    async def unsubscribe(self) -> dict[str, object]:
        assert self.consumer is not None
        await self.consumer.unsubscribe()
        return {}

    async def share(self, topic: str) -> dict[str, object]:
        self.sharer = ShareConsumer(
            topic,
            bootstrap_servers=SERVERS,
            client_id=CLIENT_ID,
            metadata_max_age_ms=METADATA_MAX_AGE_MS,
            group_id=os.environ["ODRADEK_GROUP"],
            share_acknowledgement_mode="implicit",
        )
        await self.sharer.start()
        return {}

    async def poll(self, timeout_ms: str) -> dict[str, object]:
        if self.sharer is not None:
            shared = await self.sharer.getmany(timeout_ms=int(timeout_ms))
            return {"records": [(each.value or b"").decode() for some in shared.values() for each in some]}
        assert self.consumer is not None
        found = await self.consumer.getmany(timeout_ms=int(timeout_ms))
        return {"records": [(record.value or b"").decode() for records in found.values() for record in records]}

    async def ack(self) -> dict[str, object]:
        if self.sharer is not None:
            refused = [each for each in (await self.sharer.commit()).values() if each is not None]
            return {"error": repr(refused[0])} if refused else {}
        assert self.consumer is not None
        await self.consumer.commit()
        return {}

    async def create(self, topic: str) -> dict[str, object]:
        async with Admin(bootstrap_servers=SERVERS, client_id=CLIENT_ID) as admin:
            await admin.create_topics([NewTopic(topic, partitions=1)])
        return {}

    async def groups(self) -> dict[str, object]:
        async with Admin(bootstrap_servers=SERVERS, client_id=CLIENT_ID) as admin:
            return {"records": [each.group_id for each in await admin.list_groups()]}

    async def offsets(self) -> dict[str, object]:
        async with Admin(bootstrap_servers=SERVERS, client_id=CLIENT_ID) as admin:
            await admin.list_share_group_offsets(os.environ["ODRADEK_GROUP"])
        return {}

    async def close(self) -> None:
        for client in (self.producer, self.consumer, self.sharer):
            if client is not None:
                await client.close()


async def main() -> None:
    application = Application()
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        verb, *words = line.split()
        try:
            act = getattr(application, verb, None)
            told = {"unimplemented": True} if act is None else await act(*words)
        except ClientError as error:
            told = {"error": repr(error)}
        print(json.dumps(told), flush=True)
    await application.close()


asyncio.run(main())
