"""Bugs in real clients, each with a way to reproduce it: presets, rare answers, control calls, or rules of `serve
--control`."""

from __future__ import annotations

from collections.abc import Mapping

LIB, JAVA, FRANZ, SARAMA = "confluentinc/librdkafka", "apache/kafka", "twmb/franz-go", "IBM/sarama"
KAFKAJS, AIO, PYTHON = "tulios/kafkajs", "aio-libs/aiokafka", "dpkp/kafka-python"

BY_PRESET: Mapping[str, tuple[str, ...]] = {
    "epoch-nearly-exhausted": (f"{SARAMA}#2178",),
    "open-transaction": (f"{LIB}#3265", f"{LIB}#3297"),
    "dead-producer": (f"{LIB}#3928", f"{FRANZ}#1348", f"{AIO}#510", f"{KAFKAJS}#299"),
    "half-written-markers": (f"{SARAMA}#2915",),
    "aborted-tail": (f"{LIB}#3020", f"{KAFKAJS}#1256", "kafka4beam/brod#659"),
    "empty-aborted-transaction": ("librdkafka before 1.7.0", f"{AIO}#781", "platformatic/kafka#391"),
    "expired-producer-ids": (f"{PYTHON}#2663",),
    "sequence-wrap": (f"{FRANZ}#227", f"{KAFKAJS}#1310"),
    "coordinator-loading": (f"{SARAMA}#2701",),
    "static-twin": (f"{JAVA}#23266", "robinhood/aiokafka#26"),
    "classic-rebalance": (f"{PYTHON}#1782", "platformatic/kafka#370"),
    "revocation-outstanding": (f"{LIB}#4634",),
    "stale-member-epoch": (f"{LIB}#5541", f"{JAVA}#15392", "Blizzard/node-rdkafka#1146"),
    "recreated-topic": (f"{LIB}#4964",),
    "throttled-client": (f"{LIB}#5592", f"{KAFKAJS}#1532"),
}
BY_ODDITY: Mapping[str, tuple[str, ...]] = {
    "other order": (f"{FRANZ}#1348",),
    "old metadata": (f"{LIB}#4687",),
    "high group epoch": ("librdkafka 2.16, from 2²⁴ on",),
}
BY_CALLS: Mapping[str, tuple[str, ...]] = {  # by method of `odradek.testing`
    "move_coordinator": (f"{LIB}#3571", f"{LIB}#2944", f"{AIO}#1134", f"{AIO}#1145", f"{FRANZ}#1330"),
    "move_leader": (f"{LIB}#4433", f"{KAFKAJS}#335", f"{SARAMA}#1927"),
    "stop_node": (
        *(f"{LIB}#3971", f"{LIB}#3584", f"{LIB}#5088", "confluentinc/confluent-kafka-dotnet#1321"),
        *(f"{FRANZ}#239", f"{AIO}#1151", f"{KAFKAJS}#1402"),
    ),
    "cut_off": (f"{SARAMA}#1661",),
    "put_in_rack, then stop_node": (f"{LIB}#2830", f"{SARAMA}#2090"),
    "put_in_rack, then follow": (f"{LIB}#4616",),
    "crash, then restart": (f"{JAVA}#21824",),
    "cluster, with emulate or nodes": (f"{LIB}#4806", f"{FRANZ}#1348", f"{PYTHON}#3084", f"{KAFKAJS}#1616"),
    "clock, then wait, with any client": (f"{KAFKAJS}#1388", f"{SARAMA}#1644", "platformatic/kafka#315"),
}
BY_RULES: tuple[tuple[Mapping[str, object], tuple[str, ...]], ...] = (
    (
        {"match": {"api": "Produce"}, "do": {"error": "OUT_OF_ORDER_SEQUENCE_NUMBER"}, "after": 1, "times": 1},
        (
            f"{LIB}#3575",
            f"{LIB}#4058",
            f"{JAVA}#9832",
            "confluentinc/confluent-kafka-python#1125",
            "thomhurst/Dekaf#3342",
        ),
    ),
    (
        {"match": {"api": "Produce"}, "do": {"error": "NOT_LEADER_OR_FOLLOWER"}, "times": 1},
        (f"{LIB}#2749", f"{FRANZ}#967", f"{SARAMA}#3354", f"{SARAMA}#2619"),
    ),
    (
        {"match": {"api": "Produce"}, "at": "applied", "do": {"drop": True}, "times": 1},
        (f"{LIB}#4736", f"{LIB}#4438", f"{JAVA}#17849"),
    ),
    ({"match": {"api": "Produce"}, "do": {"hold": "produce"}}, (f"{JAVA}#12392", f"{KAFKAJS}#598")),
    ({"match": {"api": "FindCoordinator"}, "do": {"error": "COORDINATOR_NOT_AVAILABLE"}}, (f"{LIB}#4020",)),
    ({"match": {"api": "InitProducerId"}, "do": {"error": "PRODUCER_FENCED"}}, (f"{LIB}#4420",)),
    ({"match": {"api": "EndTxn"}, "do": {"hold": "end"}, "times": 1}, (f"{LIB}#5423",)),
    ({"match": {"api": "EndTxn"}, "at": "applied", "do": {"error": "UNKNOWN_SERVER_ERROR"}}, (f"{FRANZ}#1348",)),
    ({"match": {"api": "EndTxn"}, "do": {"error": "TRANSACTION_ABORTABLE"}}, (f"{JAVA}#19656",)),
    (
        {"match": {"api": "Metadata"}, "at": "applied", "do": {"edit": {"Topics[0].ErrorCode": 3}}, "times": 1},
        ("librdkafka before 1.9.0", f"{LIB}#4907"),
    ),
    ({"match": {"api": "Metadata", "node": 1}, "do": {"hold": "metadata"}}, (f"{LIB}#4970", "franz-go before 1.21.6")),
    ({"match": {"api": "ApiVersions", "versions": "4+"}, "do": {"error": "UNSUPPORTED_VERSION"}}, (f"{FRANZ}#1011",)),
    (
        {"match": {"api": "ApiVersions"}, "at": "applied", "do": {"edit": {"ApiKeys[3].MaxVersion": 9}}},
        (f"{FRANZ}#1312",),
    ),
    (
        {
            "match": {"api": "Fetch", "when": "IsolationLevel == 0"},
            "at": "applied",
            "do": {"edit": {"Responses[0].Partitions[0].AbortedTransactions": [{"ProducerId": 0, "FirstOffset": 0}]}},
        },
        (f"{FRANZ}#758",),
    ),
    (
        {"match": {"api": "ConsumerGroupHeartbeat"}, "at": "applied", "do": {"hold": "heartbeat"}},
        (f"{LIB}#4672", f"{JAVA}#19818", "thomhurst/Dekaf#2364"),
    ),
    ({"match": {"api": "OffsetCommit"}, "do": {"error": "ILLEGAL_GENERATION"}}, (f"{LIB}#4059",)),
    ({"match": {"api": "OffsetCommit"}, "do": {"error": "NOT_COORDINATOR"}, "times": 2}, (f"{LIB}#3398",)),
    ({"match": {"api": "Heartbeat"}, "do": {"error": "REBALANCE_IN_PROGRESS"}, "times": 1}, (f"{PYTHON}#3082",)),
    ({"match": {"api": "Metadata"}, "after": 3, "do": {"delay_ms": 300}}, (f"{PYTHON}#571",)),
    ({"match": {"api": "Metadata"}, "at": "applied", "do": {"edit": {"Brokers": []}}, "times": 1}, (f"{AIO}#267",)),
    ({"match": {"api": "Heartbeat"}, "do": {"hold": "heartbeat"}}, (f"{PYTHON}#2064", f"{JAVA}#8445")),
    ({"match": {"api": "Heartbeat"}, "do": {"error": "ILLEGAL_GENERATION"}, "times": 1}, ("kafkaex/kafka_ex#554",)),
    ({"match": {"api": "JoinGroup"}, "at": "applied", "do": {"hold": "join"}, "times": 1}, (f"{JAVA}#16567",)),
    ({"match": {"api": "ShareFetch"}, "do": {"error": "SHARE_SESSION_NOT_FOUND"}, "times": 1}, (f"{JAVA}#20135",)),
    ({"match": {"api": "ShareFetch"}, "do": {"hold": "fetch"}}, (f"{JAVA}#17824", "franz-go before 1.21.5")),
    (
        {"match": {"api": "ShareAcknowledge"}, "at": "applied", "do": {"disconnect": True}, "times": 1},
        (f"{JAVA}#18029",),
    ),
    ({"match": {"api": "ShareAcknowledge"}, "do": {"hold": "acknowledgement"}}, (f"{JAVA}#17136",)),
)
BY_NOTHING: Mapping[str, tuple[str, ...]] = {
    "nothing: client telemetry (KIP-714) is not served, as by Kafka without a plugin for it": (f"{LIB}#5106",),
}
