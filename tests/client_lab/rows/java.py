"""Bugs in old releases of Kafka's own Java clients."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.client import AlterOperation, ConfigChange, ConfigResource, ConfigType
from odradek.client.sync import Admin
from odradek.testing.sync import Cluster
from tests.client_lab.row import Client, Conviction, Row, Sight
from tests.client_lab.states import NAME, PATIENCE_S, in_the_log, orders, send

JAVA = Client("org.apache.kafka:kafka-clients", "KafkaClients.java")
SHARE = Client("org.apache.kafka:kafka-clients", "KafkaShareClients.java")


def unknown_producer_on_one_of_two_partitions(kafka: Cluster) -> None:
    orders(kafka, partitions=2)
    kafka.fault({"match": {"api": "Produce"}, "do": {"error": "UNKNOWN_PRODUCER_ID"}, "after": 2, "times": 1})


def abort_refused(kafka: Cluster) -> None:
    orders(kafka)
    kafka.fault({"match": {"api": "EndTxn"}, "do": {"error": "TRANSACTION_ABORTABLE"}})


def late_heartbeat_and_leave(kafka: Cluster) -> None:
    """Delays heartbeats, so that the member leaves before its last regular heartbeat is answered and rejoins before its
    leave request is answered."""
    orders(kafka)
    for when, rule in (
        ("MemberEpoch > 0", {"at": "applied", "do": {"delay_ms": 2_000}}),
        ("MemberEpoch == -1", {"do": {"delay_ms": 1_000}}),
        ("MemberEpoch == 0", {"do": {"delay_ms": 500}, "after": 1}),
    ):
        kafka.fault({"match": {"api": "ConsumerGroupHeartbeat", "when": when}, "times": 1, **rule})


def epochs_of_joins(kafka: Cluster) -> str:
    requests = [each["request"] for each in kafka.requests(api="ConsumerGroupHeartbeat")]
    return f"at epochs {sorted({each['memberEpoch'] for each in requests if each['subscribedTopicNames']})}"


def late_heartbeat_of_an_old_generation(kafka: Cluster) -> None:
    """Ends the member's generation by refusing a commit while a heartbeat with that generation is still unanswered."""
    orders(kafka)
    kafka.fault({"match": {"api": "OffsetCommit"}, "do": {"delay_ms": 1_000}, "times": 1})
    kafka.fault({"match": {"api": "OffsetCommit"}, "at": "applied", "do": {"error": "ILLEGAL_GENERATION"}, "times": 1})
    kafka.fault({"match": {"api": "Heartbeat"}, "do": {"delay_ms": 500}, "times": 1})
    kafka.fault({"match": {"api": "Heartbeat"}, "at": "applied", "do": {"error": "FENCED_INSTANCE_ID"}, "times": 1})


def two_to_share(kafka: Cluster) -> None:
    orders(kafka)
    send(kafka, "a", "b")
    with Admin(bootstrap_servers=kafka.bootstrap, client_id=NAME) as admin:
        earliest = ConfigChange(AlterOperation.SET, "share.auto.offset.reset", "earliest")
        admin.alter_configs({ConfigResource(ConfigType.GROUP, "g"): [earliest]})


def share_session_lost(kafka: Cluster) -> None:
    two_to_share(kafka)
    kafka.fault({"match": {"api": "ShareAcknowledge"}, "do": {"delay_ms": 500}, "times": 1})
    lost = {"error": "SHARE_SESSION_NOT_FOUND"}
    kafka.fault({"match": {"api": "ShareAcknowledge"}, "at": "applied", "do": lost, "times": 1})


def acknowledged_at_first(kafka: Cluster) -> str:
    first = [each["request"] for each in kafka.requests(api="ShareFetch") if not each["request"]["shareSessionEpoch"]]
    partitions = [partition for fetch in first for topic in fetch["topics"] for partition in topic["partitions"]]
    return f"{sum(bool(each['acknowledgementBatches']) for each in partitions)} at the start of a session"


def same_leader_for_ever(kafka: Cluster) -> None:
    two_to_share(kafka)
    kafka.fault({"name": "idle", "match": {"api": "DescribeCluster"}, "at": "applied", "do": {"observe": True}})
    epoch = {"Topics[*].Partitions[*].LeaderEpoch": 0}
    kafka.fault({"match": {"api": "Metadata"}, "at": "applied", "do": {"edit": epoch}})


def restart_while_idle(kafka: Cluster) -> None:
    kafka.wait(fault="idle", hits=1, timeout_s=PATIENCE_S)
    kafka.crash()
    kafka.restart()


def second_join_held(kafka: Cluster) -> None:
    orders(kafka)
    kafka.fault({"match": {"api": "JoinGroup"}, "after": 1, "times": 1, "do": {"hold": "join"}})
    kafka.fault({"name": "synced", "match": {"api": "SyncGroup"}, "at": "applied", "do": {"observe": True}})


def second_join_comes_late(kafka: Cluster) -> None:
    """Delivers the second JoinGroup after the third one, when the member no longer waits for the second response."""
    kafka.wait(fault="synced", hits=2, timeout_s=PATIENCE_S)
    kafka.release("join")


def member_id_held(kafka: Cluster) -> None:
    """Holds the response that gives the group's second member its member id, after the first member has joined."""
    orders(kafka)
    kafka.fault({"match": {"api": "JoinGroup"}, "at": "applied", "after": 2, "times": 1, "do": {"hold": "id"}})
    kafka.fault({"name": "closes", "match": {"api": "OffsetCommit"}, "do": {"observe": True}})


def member_id_comes_late(kafka: Cluster) -> None:
    kafka.wait(hold="id", timeout_s=PATIENCE_S)
    send(kafka, "a")
    kafka.wait(fault="closes", hits=1, timeout_s=PATIENCE_S)
    kafka.release("id")


def two_batches_held(kafka: Cluster) -> None:
    """Holds two batches. The first one must also wait until its partition has been added to the transaction, so its
    delivery timeout expires before its request times out."""
    orders(kafka)
    kafka.fault({"match": {"api": "AddPartitionsToTxn"}, "times": 1, "do": {"delay_ms": 1_000}})
    for number, hold in enumerate(("late", "next")):
        kafka.fault({"match": {"api": "Produce"}, "after": number, "times": 1, "do": {"hold": hold}})


def first_batch_comes_late(kafka: Cluster) -> None:
    """Delivers the first batch after the marker of its transaction, when the next transaction has already started with
    the same epoch."""
    kafka.wait(hold="next", timeout_s=PATIENCE_S)
    kafka.release("late")
    kafka.wait(topic="orders", partition=0, log_end_offset=2, timeout_s=PATIENCE_S)
    kafka.release("next")


ROWS = (
    Row(
        "apache/kafka#19656", JAVA, "4.0.0", "4.1.0",
        [Sight("abort", abort_refused, "raised TransactionAbortableException", "raised KafkaException")],
    ),
    Row(
        "apache/kafka#19818", JAVA, "4.0.0", "4.1.0",
        [Sight(
            "leaveAndJoin", late_heartbeat_and_leave, "joined, at epochs [-1, 0]", "joined, at epochs [0]",
            traffic=epochs_of_joins,
        )],
    ),
    Row(
        "apache/kafka#8445", JAVA, "2.5.0", "2.7.0",
        [Sight(
            "commitAmongHeartbeats", late_heartbeat_of_an_old_generation, "raised FencedInstanceIdException", "polled",
        )],
    ),
    Row(
        "apache/kafka#20135", SHARE, "4.1.0", "4.1.1",
        [Sight(
            "acknowledgeTwice", share_session_lost, "heard of 2, 1 at the start of a session",
            "heard of 2, 0 at the start of a session", traffic=acknowledged_at_first,
        )],
    ),
    Row(
        "apache/kafka#21824", SHARE, "4.2.0", "4.3.0",
        [Sight(
            "acknowledgeAfterRestart", same_leader_for_ever, "refused by ShareSessionNotFoundException",
            "refused by NotLeaderOrFollowerException", restart_while_idle,
        )],
    ),
    Row(
        "apache/kafka#12392", JAVA, "4.4.0", None,
        [Sight(
            "abortAndCommit", two_batches_held, "committed, read [aborted committed]", None, first_batch_comes_late,
            in_the_log, emulate="3.9",
        )],
    ),
    Row(
        "apache/kafka#23266", JAVA, "4.4.0", None,
        [Sight(
            "leaveAndJoinStatically", second_join_held, "raised FencedInstanceIdException", None,
            second_join_comes_late,
        )],
    ),
    Row(
        "apache/kafka#16567", JAVA, "4.4.0", None,
        [Sight("closeWhileJoining", member_id_held, "waits for a member that is gone", None, member_id_comes_late)],
    ),
    Row(
        "apache/kafka#9832", JAVA, "2.7.0", "2.8.0",
        [Conviction("IDM.1", "sendInTurn", unknown_producer_on_one_of_two_partitions)],
    ),
)  # fmt: skip

NOT_SHOWN: Mapping[str, str] = {
    "apache/kafka#17849": "No release has it: 3.9 uses no transactions of version 2, and 4.0.0 is mended.",
    "apache/kafka#15392": (
        "Another bug hides it in 3.7.0 to 3.7.2, whose heartbeats are the same: behind FENCED_MEMBER_EPOCH none comes "
        "any more, since the one that was refused counts as on its way still. 3.8.0 mends both."
    ),
    **dict.fromkeys(
        ("apache/kafka#17824", "apache/kafka#18029", "apache/kafka#17136"),
        "4.0.0 is mended, and the share consumer of 3.9 asks for ShareFetch 0, which Kafka 4.1 took away.",
    ),
}
