"""Transactions with offsets and records, so that AddOffsetsToTxn is sent behind AddPartitionsToTxn."""

import os

from kafka import KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.consumer.group import ConsumerGroupMetadata

producer = KafkaProducer(
    bootstrap_servers=os.environ["ODRADEK_BOOTSTRAP"], client_id="judged", transactional_id="t", retry_backoff_ms=50
)
producer.init_transactions()
for number in range(10):
    producer.begin_transaction()
    producer.send("orders", b"%d" % number, partition=0)
    offsets = {TopicPartition("orders", 0): OffsetAndMetadata(number, "", -1)}
    producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata("g", -1, "", None))
    producer.commit_transaction()
producer.close(5)
