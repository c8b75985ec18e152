import os
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, Producer

BASE = {"bootstrap.servers": os.environ["ODRADEK_BOOTSTRAP"], "client.id": "judged"}


def step(action: Callable[[], object]) -> None:
    try:
        action()
    except KafkaException as error:
        print(repr(error))


def produces() -> None:
    producer = Producer({**BASE, "enable.idempotence": True, "linger.ms": 0})
    for number in range(20):
        producer.produce("orders", b"%d" % number, partition=0)
        producer.flush(10)


def commits() -> None:
    producer = Producer({**BASE, "transactional.id": "t"})
    producer.init_transactions(15)
    for number in range(4):
        producer.begin_transaction()
        producer.produce("orders", b"%d" % number, partition=0)
        producer.flush(10)
        if number == 1:
            producer.abort_transaction(15)
        else:
            producer.commit_transaction(15)


def consumes(protocol: dict[str, str]) -> None:
    consumer = Consumer({**BASE, **protocol, "auto.offset.reset": "earliest", "isolation.level": "read_committed"})
    consumer.subscribe(["orders"])
    got = 0
    for _ in range(50):
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            got += 1
            if got % 10 == 1:
                step(lambda: consumer.commit(asynchronous=False))
    print("read", got)
    consumer.close()


step(produces)
step(commits)
step(lambda: consumes({"group.id": "g", "heartbeat.interval.ms": "500", "session.timeout.ms": "6000"}))
step(lambda: consumes({"group.id": "h", "group.protocol": "consumer"}))
