"""A driver for `odradek judge --suite` that uses aiokafka."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

AT = {"bootstrap_servers": os.environ["ODRADEK_BOOTSTRAP"], "client_id": "judged", "metadata_max_age_ms": 1000}


class Application:
    producer: AIOKafkaProducer | None = None
    consumer: AIOKafkaConsumer | None = None

    def __init__(self) -> None:
        self.asked: dict[str, object] = {}  # settings from the `set` command

    async def set(self, name: str, value: str) -> dict[str, object]:
        if name == "max_poll_interval_ms":
            self.asked.update(max_poll_interval_ms=int(value), session_timeout_ms=6000)
        elif name == "rack" and "client_rack" in inspect.signature(AIOKafkaConsumer).parameters:
            self.asked["client_rack"] = value
        else:
            return {"unimplemented": True}
        return {}

    async def producing(self) -> AIOKafkaProducer:
        if self.producer is None:
            transactional_id = os.environ.get("ODRADEK_TRANSACTIONAL_ID")
            idempotence = os.environ.get("ODRADEK_IDEMPOTENCE") != "off"
            self.producer = AIOKafkaProducer(**AT, transactional_id=transactional_id, enable_idempotence=idempotence)
            await self.producer.start()
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

    async def subscribe(self, topic: str) -> dict[str, object]:
        if self.consumer is not None:
            self.consumer.subscribe([topic])
            return {}
        self.consumer = AIOKafkaConsumer(
            topic,
            **AT,
            group_id=os.environ["ODRADEK_GROUP"],
            group_instance_id=os.environ.get("ODRADEK_GROUP_INSTANCE_ID"),
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            **self.asked,
        )
        await self.consumer.start()
        return {}

    async def poll(self, timeout_ms: str) -> dict[str, object]:
        assert self.consumer is not None
        found = await self.consumer.getmany(timeout_ms=int(timeout_ms))
        return {"records": [(each.value or b"").decode(errors="replace") for some in found.values() for each in some]}

    async def ack(self) -> dict[str, object]:
        assert self.consumer is not None
        await self.consumer.commit()
        return {}

    async def unsubscribe(self) -> dict[str, object]:
        assert self.consumer is not None
        self.consumer.unsubscribe()
        return {}

    async def create(self, topic: str) -> dict[str, object]:
        admin = await administering()
        answer = await admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
        await admin.close()
        errors = [each for each in answer.topic_errors if each[1]]
        return {"error": repr(errors[0])} if errors else {}

    async def groups(self) -> dict[str, object]:
        admin = await administering()
        found = await admin.list_consumer_groups()
        await admin.close()
        return {"records": [group for group, _ in found]}

    async def close(self) -> None:
        for client in (self.producer, self.consumer):
            if client is not None:
                await client.stop()


async def administering() -> AIOKafkaAdminClient:
    admin = AIOKafkaAdminClient(**AT)
    await admin.start()
    return admin


async def main() -> None:
    application = Application()
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        verb, *words = line.split()
        act = getattr(application, verb, None)
        try:
            told = {"unimplemented": True} if act is None else await act(*words)
        except KafkaError as error:
            told = {"error": repr(error)}
        print(json.dumps(told), flush=True)
    await application.close()


asyncio.run(main())
