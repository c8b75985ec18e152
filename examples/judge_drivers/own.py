"""A driver of `odradek judge --suite` for odradek.client."""

import asyncio
import json
import os
import sys

from odradek.client import ClientError, Consumer, Producer

SERVERS, CLIENT_ID, METADATA_MAX_AGE_MS = os.environ["ODRADEK_BOOTSTRAP"], "judged", 1000


class Application:
    producer: Producer | None = None
    consumer: Consumer | None = None

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

    async def subscribe(self, topic: str) -> dict[str, object]:
        group, instance = os.environ["ODRADEK_GROUP"], os.environ.get("ODRADEK_GROUP_INSTANCE_ID")
        self.consumer = Consumer(
            topic,
            bootstrap_servers=SERVERS,
            client_id=CLIENT_ID,
            metadata_max_age_ms=METADATA_MAX_AGE_MS,
            group_id=group,
            group_instance_id=instance,
        )
        await self.consumer.start()
        return {}

    async def poll(self, timeout_ms: str) -> dict[str, object]:
        assert self.consumer is not None
        found = await self.consumer.getmany(timeout_ms=int(timeout_ms))
        return {"records": [(record.value or b"").decode() for records in found.values() for record in records]}

    async def ack(self) -> dict[str, object]:
        assert self.consumer is not None
        await self.consumer.commit()
        return {}

    async def close(self) -> None:
        for client in (self.producer, self.consumer):
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
