import os

from kafka import KafkaProducer
from kafka.errors import KafkaError

producer = KafkaProducer(
    bootstrap_servers=os.environ["ODRADEK_BOOTSTRAP"],
    client_id="judged",
    enable_idempotence=True,
    retry_backoff_ms=200,
    delivery_timeout_ms=5000,
    request_timeout_ms=4000,
)
for number in range(10):
    try:
        producer.send("orders", b"%d" % number).get(6)
    except KafkaError as error:
        print(repr(error))
producer.close(5)
