"""Applications based on aiokafka. Each function is an application; its return value is printed as the result."""

from __future__ import annotations

import asyncio
import os
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

AT = os.environ["ODRADEK_BOOTSTRAP"]


async def two_transactions() -> str:
    producer = AIOKafkaProducer(bootstrap_servers=AT, transactional_id="t", request_timeout_ms=3_000)
    await producer.start()
    for value in (b"a", b"b"):
        async with producer.transaction():
            await producer.send_and_wait("orders", value)
    return "committed"


async def two_transactions_with_offsets() -> str:
    producer = AIOKafkaProducer(bootstrap_servers=AT, transactional_id="t", request_timeout_ms=3_000)
    await producer.start()
    for offset in (1, 2):
        async with producer.transaction():
            await producer.send_and_wait("orders", b"a")
            await producer.send_offsets_to_transaction({TopicPartition("orders", 0): offset}, "g")
    return "committed"


async def read_one() -> str:
    at = {"bootstrap_servers": AT, "isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    consumer = AIOKafkaConsumer("orders", **at)
    await consumer.start()
    record = await consumer.getone()
    return f"read {record.value.decode()}"


async def send() -> str:
    producer = AIOKafkaProducer(bootstrap_servers=AT)
    await producer.start()
    await producer.send_and_wait("orders", b"a")
    return "sent"


async def send_two() -> str:
    producer = AIOKafkaProducer(bootstrap_servers=AT, enable_idempotence=True)
    await producer.start()
    for value in (b"a", b"b"):
        await producer.send_and_wait("orders", value)
    return "sent"


async def main() -> str:
    try:
        return str(await asyncio.wait_for(globals()[sys.argv[1]](), 25))
    except TimeoutError:
        return "hangs"
    except (KafkaError, KeyError) as error:
        return f"raised {error!r}"


print(asyncio.new_event_loop().run_until_complete(main()), flush=True)
os._exit(0)
