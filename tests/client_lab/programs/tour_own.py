import asyncio
import os
from collections.abc import Awaitable

from odradek.client import ClientError, Consumer, Producer

SERVERS, CLIENT_ID = os.environ["ODRADEK_BOOTSTRAP"], "judged"


async def step(action: Awaitable[object]) -> None:
    try:
        await asyncio.wait_for(action, 40)
    except (ClientError, TimeoutError) as error:
        print(repr(error))


async def produces() -> None:
    async with Producer(bootstrap_servers=SERVERS, client_id=CLIENT_ID) as producer:
        for number in range(20):
            await step(await producer.send("orders", b"%d" % number, partition=0))


async def commits() -> None:
    async with Producer(bootstrap_servers=SERVERS, client_id=CLIENT_ID, transactional_id="t") as producer:
        await producer.init_transactions()
        for number in range(4):
            await producer.begin_transaction()
            await producer.send("orders", b"%d" % number, partition=0)
            await (producer.abort_transaction() if number == 1 else producer.commit_transaction())


async def consumes(group: str, protocol: str) -> None:
    async with Consumer(
        "orders",
        bootstrap_servers=SERVERS,
        client_id=CLIENT_ID,
        group_id=group,
        group_protocol=protocol,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        got = 0
        for _ in range(50):
            try:
                await asyncio.wait_for(consumer.getone(), 0.2)
            except TimeoutError:
                continue
            got += 1
            if got % 10 == 1:
                await step(consumer.commit())
        print("read", got)


async def main() -> None:
    await step(produces())
    await step(commits())
    await step(consumes("g", "classic"))
    await step(consumes("h", "consumer"))


asyncio.run(main())
