import asyncio
import os
from collections.abc import Awaitable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

SERVERS, CLIENT_ID = os.environ["ODRADEK_BOOTSTRAP"], "judged"


async def step(action: Awaitable[object]) -> None:
    try:
        await asyncio.wait_for(action, 40)
    except (KafkaError, TimeoutError) as error:
        print(repr(error))


async def produces() -> None:
    producer = AIOKafkaProducer(bootstrap_servers=SERVERS, client_id=CLIENT_ID, enable_idempotence=True)
    await producer.start()
    for number in range(20):
        await step(producer.send_and_wait("orders", b"%d" % number, partition=0))
    await producer.stop()


async def commits() -> None:
    producer = AIOKafkaProducer(bootstrap_servers=SERVERS, client_id=CLIENT_ID, transactional_id="t")
    await producer.start()
    for number in range(4):
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"%d" % number, partition=0)
        await (producer.abort_transaction() if number == 1 else producer.commit_transaction())
    await producer.stop()


async def consumes() -> None:
    consumer = AIOKafkaConsumer(
        "orders",
        bootstrap_servers=SERVERS,
        client_id=CLIENT_ID,
        group_id="g",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        heartbeat_interval_ms=500,
        session_timeout_ms=6_000,
        enable_auto_commit=False,
    )
    await consumer.start()
    got = 0
    for _ in range(50):
        before = got
        got += sum(map(len, (await consumer.getmany(timeout_ms=100)).values()))
        if got > before:
            await step(consumer.commit())
    print("read", got)
    await consumer.stop()


async def main() -> None:
    await step(produces())
    await step(commits())
    await step(consumes())


asyncio.run(main())
