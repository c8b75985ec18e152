"""An application based on aiokafka 0.3 and 0.4, for Python 3.6. The last line that it prints is its result."""

import asyncio
import os
import sys
import time

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

AT = os.environ["ODRADEK_BOOTSTRAP"]
LOOP = asyncio.get_event_loop()


async def know_new_topics() -> str:
    producer = AIOKafkaProducer(loop=LOOP, bootstrap_servers=AT, metadata_max_age_ms=500, request_timeout_ms=6_000)
    await producer.start()
    until_s = time.monotonic() + 10
    while time.monotonic() < until_s:
        await producer.partitions_for(f"orders-{int(time.monotonic())}")
        await asyncio.sleep(0.5)
    return "knows"


try:
    print(LOOP.run_until_complete(globals()[sys.argv[1]]()), flush=True)
except KafkaError as error:
    print(f"raised {error!r}", flush=True)
os._exit(0)
