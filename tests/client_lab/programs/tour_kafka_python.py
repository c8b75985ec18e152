import os
from collections.abc import Callable

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

SERVERS, CLIENT_ID = os.environ["ODRADEK_BOOTSTRAP"], "judged"


def step(action: Callable[[], object]) -> None:
    try:
        action()
    except (KafkaError, AssertionError) as error:
        print(repr(error))


def produces() -> None:
    producer = KafkaProducer(
        bootstrap_servers=SERVERS,
        client_id=CLIENT_ID,
        enable_idempotence=True,
        delivery_timeout_ms=10_000,
        request_timeout_ms=5_000,
    )
    for number in range(20):
        step(producer.send("orders", b"%d" % number, partition=0).get)
    producer.close(5)


def commits() -> None:
    producer = KafkaProducer(
        bootstrap_servers=SERVERS,
        client_id=CLIENT_ID,
        transactional_id="t",
        delivery_timeout_ms=10_000,
        request_timeout_ms=5_000,
    )
    producer.init_transactions()
    for number in range(4):
        producer.begin_transaction()
        producer.send("orders", b"%d" % number, partition=0).get(10)
        if number == 1:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close(5)


def consumes() -> None:
    consumer = KafkaConsumer(
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
    got = 0
    for _ in range(50):
        before = got
        got += sum(map(len, consumer.poll(100).values()))
        if got > before:
            step(consumer.commit)
    print("read", got)
    consumer.close()


step(produces)
step(commits)
step(consumes)
