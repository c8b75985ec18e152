"""A driver of `odradek judge --suite` for aiokafka."""

from __future__ import annotations

import asyncio
import json
import os
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

AT = {"bootstrap_servers": os.environ["ODRADEK_BOOTSTRAP"], "client_id": "judged", "metadata_max_age_ms": 1000}


class Application:
    producer: AIOKafkaProducer | None = None
    consumer: AIOKafkaConsumer | None = None

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
        self.consumer = AIOKafkaConsumer(
            topic,
            **AT,
            group_id=os.environ["ODRADEK_GROUP"],
            group_instance_id=os.environ.get("ODRADEK_GROUP_INSTANCE_ID"),
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
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

    async def close(self) -> None:
        for client in (self.producer, self.consumer):
            if client is not None:
                await client.stop()


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
