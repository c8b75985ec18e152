"""Markdown descriptions of how clients behave in the state created by a preset. `make docs` writes the descriptions to
the site's page about presets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Behaviour:
    """The behaviour of correct and incorrect clients in the state of one preset.

    wrong  client bugs reported in public issues; empty if no bug is known
    """

    correct: str
    wrong: str


BEHAVIOUR: Mapping[str, Behaviour] = {
    "epoch-nearly-exhausted": Behaviour(
        "continues with the producer id that InitProducerId or EndTxn returns",
        "bumped the epoch themselves until no epoch was left (IBM/sarama#2178)",
    ),
    "open-transaction": Behaviour(
        "reads only committed records, and retries after UNSTABLE_OFFSET_COMMIT",
        "retried twice and gave up (confluentinc/librdkafka#3265)",
    ),
    "dead-producer": Behaviour(
        "repeats InitProducerId after CONCURRENT_TRANSACTIONS",
        "gave up (twmb/franz-go#1348, tulios/kafkajs#299); fenced themselves by requesting a second epoch"
        " (confluentinc/librdkafka#3928)",
    ),
    "half-written-markers": Behaviour(
        "reads partition 0 to its end, and partition 1 to its last stable offset; begins the next transaction when the "
        "broker allows it",
        "failed after CONCURRENT_TRANSACTIONS, and then were fenced (IBM/sarama#2915)",
    ),
    "aborted-tail": Behaviour(
        "reaches the end of the partition without receiving a record",
        "stopped at a batch that had only aborted and control records (tulios/kafkajs#1256)",
    ),
    "lone-marker": Behaviour(
        "skips the marker",
        "",
    ),
    "empty-aborted-transaction": Behaviour(
        "delivers the committed records",
        "treated the records as aborted (librdkafka before 1.7.0); raised KeyError (aio-libs/aiokafka#781);"
        " crashed if there were other aborted transactions (platformatic/kafka#391)",
    ),
    "abort-across-segments": Behaviour(
        "delivers the committed records that follow",
        "",
    ),
    "expired-producer-ids": Behaviour(
        "continues, or requests a new producer id",
        "passed UNKNOWN_PRODUCER_ID on to the application (aio-libs/aiokafka#510, dpkp/kafka-python#2663)",
    ),
    "expired-transactional-ids": Behaviour(
        "reports INVALID_PRODUCER_ID_MAPPING; a new producer continues",
        "",
    ),
    "prepared-transaction": Behaviour(
        "keeps the transaction with KeepPreparedTxn, and commits or aborts it as the external database decided",
        "",
    ),
    "kept-epoch-nearly-exhausted": Behaviour(
        "continues with the producer id and epoch that InitProducerId returns, and ends the transaction with them",
        "",
    ),
    "producer-ids-nearly-used": Behaviour(
        "uses the producer id that it is given",
        "",
    ),
    "sequence-wrap": Behaviour(
        "continues to read; a producer continues with sequence 0 after 2147483647",
        "let the sequence overflow (twmb/franz-go#227, tulios/kafkajs#1310)",
    ),
    "coordinator-loading": Behaviour(
        "repeats the request after COORDINATOR_LOAD_IN_PROGRESS",
        "gave up (IBM/sarama#2701)",
    ),
    "log-start-behind-commit": Behaviour(
        "resets its position as configured with `auto.offset.reset`",
        "sent requests to a follower forever (confluentinc/librdkafka#4616, which also needs a follower)",
    ),
    "log-end-before-commit": Behaviour(
        "resets its position as configured with `auto.offset.reset`",
        "",
    ),
    "static-twin": Behaviour(
        "stops with a fatal error if it is fenced; waits after UNRELEASED_INSTANCE_ID",
        "fenced itself after it forgot its id (apache/kafka#23266)",
    ),
    "classic-rebalance": Behaviour(
        "joins, and waits for up to the rebalance timeout, which is the longest of all members",
        "stalled the rebalance by committing (platformatic/kafka#370), never rejoined (dpkp/kafka-python#1782)",
    ),
    "revocation-outstanding": Behaviour(
        "continues to send heartbeats without a partition",
        "got stuck (confluentinc/librdkafka#4634)",
    ),
    "stale-member-epoch": Behaviour(
        "commits offsets of its partitions (KIP-1251); rejoins with epoch 0 if a later heartbeat is fenced",
        "continued to send heartbeats while fenced (apache/kafka#15392), rejoined without all fields"
        " (confluentinc/librdkafka#5541)",
    ),
    "streams-revocation-outstanding": Behaviour(
        "continues to send heartbeats without a task",
        "",
    ),
    "missing-source-topic": Behaviour(
        "Kafka Streams ends with MissingSourceTopicException after two heartbeat intervals",
        "",
    ),
    "stale-topology": Behaviour(
        "logs a warning, and processes the tasks that it is assigned",
        "",
    ),
    "share-lock-limit": Behaviour(
        "continues to poll",
        "",
    ),
    "last-delivery": Behaviour(
        "gets the record with the delivery count at its limit; if the record is released once more, it is archived",
        "",
    ),
    "tx-pending": Behaviour(
        "gets the record only after its lock has expired, which aborts the transaction",
        "",
    ),
    "recreated-topic": Behaviour(
        "learns the new topic id and resets its position",
        "crashed with a memory fault (confluentinc/librdkafka#4964)",
    ),
    "more-partitions": Behaviour(
        "finds the new partitions within its maximum metadata age",
        "",
    ),
    "large-batch": Behaviour(
        "reads the batch, because the first batch of an answer is always complete",
        "",
    ),
    "compacted-hole": Behaviour(
        "skips the missing offsets and continues",
        "",
    ),
    "throttled-client": Behaviour(
        "waits for the throttle time before its next request (KIP-219)",
        "did not wait (confluentinc/librdkafka#5592), or never continued (tulios/kafkajs#1532)",
    ),
    "rights-withdrawn": Behaviour(
        "reports TOPIC_AUTHORIZATION_FAILED to the application, and continues when the permission is granted again",
        "",
    ),
    "expiring-token": Behaviour(
        "reports SASL_AUTHENTICATION_FAILED when the token has expired, and requests another one",
        "",
    ),
    "bad-day": Behaviour(
        "still commits everything, and reads everything",
        "had any of the bugs above",
    ),
}
