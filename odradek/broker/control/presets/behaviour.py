"""How clients behave in the state that a preset creates, in Markdown. docs/presets.md is generated from these texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Behaviour:
    """The behaviour of correct and of wrong clients in one preset.

    wrong  bugs of clients that public issues report; empty if none is known
    """

    correct: str
    wrong: str


BEHAVIOUR: Mapping[str, Behaviour] = {
    "epoch-nearly-exhausted": Behaviour(
        "goes on with the producer id that InitProducerId or EndTxn answers",
        "bumped epochs themselves until none was left (IBM/sarama#2178)",
    ),
    "open-transaction": Behaviour(
        "reads committed ones only, and retries UNSTABLE_OFFSET_COMMIT",
        "retried twice and gave up (confluentinc/librdkafka#3265)",
    ),
    "dead-producer": Behaviour(
        "repeats InitProducerId on CONCURRENT_TRANSACTIONS",
        "gave up (twmb/franz-go#1348, tulios/kafkajs#299); fenced themselves by a second epoch "
        "(confluentinc/librdkafka#3928)",
    ),
    "half-written-markers": Behaviour(
        "reads partition 0 to its end, 1 to its last stable offset; begins the next transaction once that is allowed",
        "failed on CONCURRENT_TRANSACTIONS, then were fenced (IBM/sarama#2915)",
    ),
    "aborted-tail": Behaviour(
        "reaches the end of the partition without a record",
        "locked on a batch of aborted and control records (tulios/kafkajs#1256)",
    ),
    "lone-marker": Behaviour(
        "skips it",
        "",
    ),
    "empty-aborted-transaction": Behaviour(
        "delivers these",
        "took them for aborted (librdkafka before 1.7.0); KeyError (aio-libs/aiokafka#781); crash, where others were "
        "aborted besides (platformatic/kafka#391)",
    ),
    "abort-across-segments": Behaviour(
        "delivers what follows",
        "",
    ),
    "expired-producer-ids": Behaviour(
        "goes on, or takes a new producer id",
        "gave UNKNOWN_PRODUCER_ID to the user (aio-libs/aiokafka#510, dpkp/kafka-python#2663)",
    ),
    "expired-transactional-ids": Behaviour(
        "says INVALID_PRODUCER_ID_MAPPING; a new producer goes on",
        "",
    ),
    "prepared-transaction": Behaviour(
        "keeps it with KeepPreparedTxn, and ends it as its database says",
        "",
    ),
    "kept-epoch-nearly-exhausted": Behaviour(
        "goes on with the pair that InitProducerId answers, and ends the transaction with it",
        "",
    ),
    "producer-ids-nearly-used": Behaviour(
        "takes the id that it is given",
        "",
    ),
    "sequence-wrap": Behaviour(
        "reads on; a producer that goes on counts from 2147483647 to 0",
        "sequence overflow (twmb/franz-go#227, tulios/kafkajs#1310)",
    ),
    "coordinator-loading": Behaviour(
        "repeats on COORDINATOR_LOAD_IN_PROGRESS",
        "gave up (IBM/sarama#2701)",
    ),
    "log-start-behind-commit": Behaviour(
        "resets as `auto.offset.reset` says",
        "asked a follower for ever (confluentinc/librdkafka#4616, which needs a follower besides)",
    ),
    "log-end-before-commit": Behaviour(
        "resets as `auto.offset.reset` says",
        "",
    ),
    "static-twin": Behaviour(
        "stops with a fatal error; waits on UNRELEASED_INSTANCE_ID",
        "fenced itself after it forgot its id (apache/kafka#23266)",
    ),
    "classic-rebalance": Behaviour(
        "joins, and waits as long as the rebalance timeout, the longest of all members",
        "stalled it by committing (platformatic/kafka#370), never came back (dpkp/kafka-python#1782)",
    ),
    "revocation-outstanding": Behaviour(
        "goes on with heartbeats, and has no partition",
        "stayed stuck (confluentinc/librdkafka#4634)",
    ),
    "stale-member-epoch": Behaviour(
        "commits what it holds (KIP-1251); fenced by its heartbeat after that, joins again with epoch 0",
        "went on with heartbeats while fenced (apache/kafka#15392), rejoined without its full fields "
        "(confluentinc/librdkafka#5541)",
    ),
    "streams-revocation-outstanding": Behaviour(
        "continues to send heartbeats, and has no task",
        "",
    ),
    "missing-source-topic": Behaviour(
        "Kafka Streams ends with MissingSourceTopicException after two heartbeat intervals",
        "",
    ),
    "stale-topology": Behaviour(
        "logs a warning, and processes the tasks that it gets",
        "",
    ),
    "share-lock-limit": Behaviour(
        "polls on",
        "",
    ),
    "last-delivery": Behaviour(
        "gets it with that delivery count; released once more, it is archived",
        "",
    ),
    "tx-pending": Behaviour(
        "does not get it before its lock is over, which aborts the transaction",
        "",
    ),
    "recreated-topic": Behaviour(
        "learns the new id and resets",
        "memory fault (confluentinc/librdkafka#4964)",
    ),
    "more-partitions": Behaviour(
        "finds them within its metadata's age",
        "",
    ),
    "large-batch": Behaviour(
        "reads it: the first batch of an answer comes whole",
        "",
    ),
    "compacted-hole": Behaviour(
        "goes on behind the hole",
        "",
    ),
    "throttled-client": Behaviour(
        "does so (KIP-219)",
        "did not (confluentinc/librdkafka#5592), or stood still for good (tulios/kafkajs#1532)",
    ),
    "rights-withdrawn": Behaviour(
        "says TOPIC_AUTHORIZATION_FAILED to the application, and works again once it is allowed to",
        "",
    ),
    "expiring-token": Behaviour(
        "says SASL_AUTHENTICATION_FAILED once the token has expired, and asks for another one",
        "",
    ),
    "bad-day": Behaviour(
        "commits and reads all the same",
        "each of the above",
    ),
}
