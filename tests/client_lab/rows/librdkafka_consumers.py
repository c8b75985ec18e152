"""Bugs in old librdkafka releases that concern consumers, groups and metadata."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka.admin import AdminClient

from odradek.testing.sync import Cluster
from tests.client_lab import states
from tests.client_lab.row import Client, Row, Sight

LIBRDKAFKA = Client("confluent-kafka", "librdkafka_consumers.py")
# Makes glibc overwrite freed memory, so a client that still uses it finds invalid addresses.
FREED_IS_GARBAGE = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0:glibc.malloc.perturb=165"}


def topic_ids_are_not_told(kafka: Cluster) -> None:
    """Limits Metadata to versions without topic ids, although Fetch uses topic ids.

    A Kafka cluster with an older inter-broker protocol behaves like this.
    """
    states.orders(kafka)
    states.send(kafka, "a", "b", "c")
    edit = {"ApiKeys[3].MaxVersion": 9}
    kafka.fault({"match": {"api": "ApiVersions"}, "at": "applied", "do": {"edit": edit}})


def coordinator_moved(kafka: Cluster) -> None:
    states.orders(kafka)
    kafka.fault({"match": {"api": "OffsetCommit"}, "do": {"error": "NOT_COORDINATOR"}, "times": 2})


def marker_alone(kafka: Cluster) -> None:
    kafka.preset("empty-aborted-transaction", topic="orders")
    states.transaction(kafka, ["aborted"], committed=False)
    states.transaction(kafka, ["a", "b"], committed=True)


def topic_is_not_known(kafka: Cluster) -> None:
    """Makes Metadata responses contain an error for the topic together with a list of its partitions."""
    states.orders(kafka, 3)
    edit = {"Topics[*].ErrorCode": 3}
    kafka.fault({"match": {"api": "Metadata"}, "at": "applied", "do": {"edit": edit}, "times": 6})


def group_is_unknown(kafka: Cluster) -> None:
    states.orders(kafka)
    match = {"api": "ConsumerGroupHeartbeat"}
    kafka.fault({"match": match, "after": 1, "do": {"error": "GROUP_ID_NOT_FOUND"}})


def led_by_one(kafka: Cluster) -> None:
    states.orders(kafka)
    kafka.move_leader("orders", 0, 1)
    states.send(kafka, "a")
    kafka.fault({"name": "read", "match": {"api": "Fetch"}, "at": "applied", "do": {"observe": True}})


def led_by_one_without_epochs_in_fetch(kafka: Cluster) -> None:
    """Limits Fetch to versions without leader epochs, whose responses do not contain the current leader either."""
    edit = {"ApiKeys[1].MaxVersion": 8}
    kafka.fault({"match": {"api": "ApiVersions"}, "at": "applied", "do": {"edit": edit}})
    led_by_one(kafka)


def wait_for_reads(kafka: Cluster) -> None:
    kafka.wait(fault="read", hits=3, timeout_s=states.PATIENCE_S)


def metadata(kafka: Cluster, edit: Mapping[str, int], **counts: int) -> None:
    edits = {f"Topics[*].Partitions[*].{field}": value for field, value in edit.items()}
    match = {"api": "Metadata", "client_id": "rdkafka"}
    kafka.fault({"match": match, "at": "applied", "do": {"edit": edits}, **counts})


def stale_while_validating(kafka: Cluster) -> None:
    """Makes the first validation fail and makes all later Metadata responses contain the previous leader."""
    epoch = kafka.wait(topic="orders", partition=0, leader=1)["leader_epoch"]
    refusal = {"error": "KAFKA_STORAGE_ERROR", "hold": "validation"}
    kafka.fault({"match": {"api": "OffsetForLeaderEpoch"}, "do": refusal, "times": 1})
    wait_for_reads(kafka)
    kafka.move_leader("orders", 0, 2)
    kafka.wait(hold="validation", timeout_s=states.PATIENCE_S)
    metadata(kafka, {"LeaderId": 1, "LeaderEpoch": epoch})
    kafka.release("validation")
    states.send(kafka, "b", "c")


def no_leader_for_a_while(kafka: Cluster) -> None:
    """Moves the leader. Metadata first reports that the partition has no leader, and later reports the new one."""
    wait_for_reads(kafka)
    metadata(kafka, {"LeaderId": -1, "ErrorCode": 5}, times=2)
    kafka.move_leader("orders", 0, 2)
    states.send(kafka, "b", "c")


def metadata_without_epochs(kafka: Cluster) -> None:
    """Removes the leader epochs from Metadata, as if this node were older than the nodes that the client has used so
    far."""
    wait_for_reads(kafka)
    metadata(kafka, {"LeaderEpoch": -1})
    kafka.move_leader("orders", 0, 2)
    states.send(kafka, "b", "c")


def leader_moves_back_while_validating(kafka: Cluster) -> None:
    """Makes the first validation fail and moves the leader back while the second validation is held."""
    match = {"api": "OffsetForLeaderEpoch"}
    kafka.fault({"match": match, "do": {"error": "KAFKA_STORAGE_ERROR", "delay_ms": 900}, "times": 1})
    kafka.fault({"match": match, "after": 1, "times": 1, "do": {"hold": "second"}})
    wait_for_reads(kafka)
    kafka.move_leader("orders", 0, 2)
    kafka.wait(hold="second", timeout_s=states.PATIENCE_S)
    kafka.move_leader("orders", 0, 1)
    kafka.release("second")
    states.send(kafka, "b", "c")


def out_of_range_at_the_follower(kafka: Cluster) -> None:
    states.orders(kafka)
    kafka.move_leader("orders", 0, 1)
    kafka.put_in_rack(2, "near")
    states.send(kafka, "a")
    edit = {"Responses[*].Partitions[*].ErrorCode": 1}
    kafka.fault({"match": {"api": "Fetch", "node": 2}, "at": "applied", "do": {"edit": edit}, "times": 1})
    match = {"api": "ListOffsets", "client_id": "rdkafka"}
    kafka.fault({"name": "reset", "match": match, "at": "applied", "do": {"observe": True}})


def record_after_the_reset(kafka: Cluster) -> None:
    kafka.wait(fault="reset", hits=1, timeout_s=states.PATIENCE_S)
    states.send(kafka, "b")


def metadata_held_once(kafka: Cluster, after: int) -> None:
    match = {"api": "Metadata", "client_id": "rdkafka"}
    kafka.fault({"match": match, "after": after, "times": 1, "do": {"hold": "metadata"}})


def topic_is_known(kafka: Cluster) -> None:
    states.orders(kafka)
    metadata_held_once(kafka, after=2)


def topic_is_made_again(kafka: Cluster) -> None:
    """Deletes the topic and creates it again between two Metadata responses, which therefore contain different topic
    ids."""
    kafka.wait(hold="metadata", timeout_s=states.PATIENCE_S)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "client.id": states.NAME})
    admin.delete_topics(["orders"])["orders"].result(states.PATIENCE_S)
    states.orders(kafka, 40)
    kafka.release("metadata")


def no_controller_at_first(kafka: Cluster) -> None:
    """Stops node 2, so that the client uses node 1. The client's first Metadata response contains no controller, and
    the second one is held."""
    match = {"api": "Metadata", "client_id": "rdkafka"}
    kafka.fault({"match": match, "at": "applied", "do": {"edit": {"ControllerId": -1}}, "times": 1})
    metadata_held_once(kafka, after=1)
    kafka.stop_node(2)


def other_node_runs_instead(kafka: Cluster) -> None:
    kafka.wait(hold="metadata", timeout_s=states.PATIENCE_S)
    kafka.start_node(2)
    kafka.stop_node(1)


def coordinated_by_one(kafka: Cluster) -> None:
    states.orders(kafka)
    states.commit(kafka, 0)
    kafka.move_coordinator("group", "g", 1)
    match = {"api": "OffsetCommit", "client_id": "rdkafka"}
    kafka.fault({"name": "commits", "match": match, "at": "applied", "do": {"observe": True}})


def coordinator_moves(kafka: Cluster) -> None:
    kafka.wait(fault="commits", hits=2, timeout_s=states.PATIENCE_S)
    kafka.move_coordinator("group", "g", 2)


def third_join_lasts(kafka: Cluster) -> None:
    """Delays the third JoinGroup, and therefore later requests on the connection too. The first JoinGroup only obtains
    the member id."""
    states.orders(kafka)
    kafka.fault({"match": {"api": "JoinGroup"}, "after": 2, "times": 1, "do": {"delay_ms": 2_000}})


def member_joins_again(kafka: Cluster) -> None:
    kafka.wait(member="rdkafka", group="g", owns=["orders-0"], timeout_s=states.PATIENCE_S)
    kafka.fault({"match": {"api": "Heartbeat"}, "times": 1, "do": {"error": "REBALANCE_IN_PROGRESS"}})


def topic_is_gone_for_a_while(kafka: Cluster) -> None:
    wait_for_reads(kafka)
    nothing = {"Topics[0].ErrorCode": 3, "Topics[0].Partitions": []}
    match = {"api": "Metadata", "client_id": "rdkafka"}
    kafka.fault({"name": "gone", "match": match, "at": "applied", "do": {"edit": nothing}, "times": 6})
    kafka.wait(fault="gone", hits=6, timeout_s=states.PATIENCE_S)
    states.send(kafka, "b", "c")


def address_is_wrong_at_first(kafka: Cluster) -> None:
    """Makes the first Metadata response contain an address where nothing is listening.

    If the client then queries a bootstrap server again, it gets the right address, but is not connected to it yet.
    """
    match = {"api": "Metadata", "client_id": "rdkafka"}
    kafka.fault({"match": match, "at": "applied", "do": {"edit": {"Brokers[*].Port": 1}}, "times": 1})


def heartbeats_fail(kafka: Cluster) -> None:
    """Makes all heartbeats after the first one fail with an error that the member does not handle."""
    states.orders(kafka)
    match = {"api": "ConsumerGroupHeartbeat"}
    kafka.fault({"match": match, "after": 1, "do": {"error": "UNKNOWN_SERVER_ERROR"}})


def leaves_observed(kafka: Cluster) -> None:
    states.orders(kafka)
    kafka.fault({"name": "leaves", "match": {"api": "ListOffsets"}, "at": "applied", "do": {"observe": True}})


def new_epoch_is_told_late(kafka: Cluster) -> None:
    """Makes the member leave while the response to its heartbeat, which contains a new epoch, is being held."""
    kafka.wait(member="rdkafka", group="g", owns=["orders-0"], timeout_s=states.PATIENCE_S)
    match = {"api": "ConsumerGroupHeartbeat"}
    kafka.fault({"match": match, "do": {"hold": "heartbeat"}, "times": 1})
    kafka.wait(hold="heartbeat", timeout_s=states.PATIENCE_S)
    kafka.preset("more-partitions", topic="orders")
    kafka.clock.advance(1_000)  # passes group.consumer.assignment.interval.ms
    kafka.fault({"match": match, "at": "applied", "do": {"hold": "epoch"}, "times": 1})
    kafka.release("heartbeat")
    kafka.wait(hold="epoch", timeout_s=states.PATIENCE_S)
    states.send(kafka, "a")
    kafka.wait(fault="leaves", hits=2, timeout_s=states.PATIENCE_S)
    kafka.release("epoch")


def epoch_of_the_commit(kafka: Cluster) -> str:
    """Returns the member epoch in the commit request. A coordinator without KIP-1251 accepts only the current epoch."""
    (commit,) = kafka.requests(api="OffsetCommit")
    return f"at epoch {commit['request']['generationIdOrMemberEpoch']}"


ROWS = (
    Row(
        "confluentinc/librdkafka#4806", LIBRDKAFKA, "2.5.3", "2.6.0",
        [Sight("read_three", topic_ids_are_not_told, "read 0 of 3", "read 3 of 3")],
    ),
    Row(
        "confluentinc/librdkafka#3398", LIBRDKAFKA, "1.7.0", "1.8.2",
        [Sight("commit", coordinator_moved, "raised KafkaError{code=NOT_COORDINATOR", "committed")], python="3.8",
    ),
    Row(
        "librdkafka before 1.7.0", LIBRDKAFKA, "1.6.1", "1.7.0",
        [Sight("read_two", marker_alone, "read committed, aborted", "read committed, a")], python="3.8",
    ),
    Row(
        "confluentinc/librdkafka#4907", LIBRDKAFKA, "2.8.0", "2.10.0",
        [Sight("read_three", topic_is_not_known, "dies of SIGSEGV", "read 0 of 3")],
    ),
    Row(
        "confluentinc/librdkafka#5541", LIBRDKAFKA, "2.14.2", "2.15.0",
        [Sight("read_in_a_new_group", group_is_unknown, "sees no error", "sees _FATAL")],
    ),
    Row(
        "confluentinc/librdkafka#3265", LIBRDKAFKA, "1.6.0", "1.6.1",
        [Sight(
            "read_in_a_group", states.unstable_offsets, "dies of SIGABRT", "read a, b", states.offsets_become_stable,
        )], python="3.8",
    ),
    Row(
        "confluentinc/librdkafka#3020", LIBRDKAFKA, "1.5.0", "1.6.0",
        [Sight("read_two", states.compressed_aborted_batch, "read aborted, aborted", "read a, b")], python="3.8",
    ),
    Row(
        "confluentinc/librdkafka#4672", LIBRDKAFKA, "2.11.1", "2.12.0",
        [Sight("commit_and_tell", coordinator_moved, "committed, KafkaError{code=NOT_COORDINATOR", "committed, None")],
    ),
    Row(
        "confluentinc/librdkafka#4672, leaving", LIBRDKAFKA, "2.11.1", "2.12.0",
        [Sight(
            "commit_while_leaving", leaves_observed, "commits, at epoch 2", "commits, at epoch 3",
            new_epoch_is_told_late, epoch_of_the_commit, settings=states.OFTEN,
        )],
    ),
    Row(
        "confluentinc/librdkafka#4687", LIBRDKAFKA, "2.3.0", "2.4.0",
        [Sight("read_three", led_by_one, "read 1 of 3", "read 3 of 3", stale_while_validating, nodes=2)],
    ),
    Row(
        "confluentinc/librdkafka#4804", LIBRDKAFKA, "2.6.1", "2.8.0",
        [Sight(
            "read_three", led_by_one_without_epochs_in_fetch, "read 1 of 3", "read 3 of 3", no_leader_for_a_while,
            nodes=2,
        )],
    ),
    Row(
        "confluentinc/librdkafka#4796", LIBRDKAFKA, "2.6.1", "2.8.0",
        [Sight(
            "read_three", led_by_one_without_epochs_in_fetch, "read 1 of 3", "read 3 of 3", metadata_without_epochs,
            nodes=2,
        )],
    ),
    Row(
        "confluentinc/librdkafka#4433", LIBRDKAFKA, "2.2.0", "2.3.0",
        [Sight("read_three", led_by_one, "read 1 of 3", "read 3 of 3", leader_moves_back_while_validating, nodes=2)],
    ),
    Row(
        "confluentinc/librdkafka#4616", LIBRDKAFKA, "2.6.0", "2.6.1",
        [Sight(
            "read_nearby_from_the_end", out_of_range_at_the_follower, "read nothing", "read b", record_after_the_reset,
            nodes=2,
        )],
    ),
    Row(
        "confluentinc/librdkafka#4964, #4778", LIBRDKAFKA, "2.8.0", "2.10.0",
        [Sight(
            "list_one_topic_again_and_again", topic_is_known, "dies of SIGSEGV", "lists up to 40 partitions",
            topic_is_made_again, environment=FREED_IS_GARBAGE,
        )],
    ),
    Row(
        "confluentinc/librdkafka#4970", LIBRDKAFKA, "2.8.0", "2.10.0",
        [Sight(
            "create_topic", no_controller_at_first, "raised KafkaError{code=_TIMED_OUT", "created",
            other_node_runs_instead, nodes=2,
        )],
    ),
    Row(  # The old release of librdkafka is bundled in node-rdkafka.
        "Blizzard/node-rdkafka#1146", LIBRDKAFKA, "2.12.0", "2.15.0",
        [Sight("read_in_a_new_group", heartbeats_fail, "sees no error", "sees _FATAL")],
    ),
    Row(
        "confluentinc/librdkafka#2944", LIBRDKAFKA, "1.6.1", "1.7.0",
        [Sight(
            "commit_for_a_while", coordinated_by_one, "NOT_COORDINATOR", "committed", coordinator_moves, nodes=2,
        )], python="3.8",
    ),
    Row(
        "confluentinc/librdkafka#2830", LIBRDKAFKA, "1.4.0", "1.4.2",
        [Sight(
            "read_three_with_fresh_metadata", led_by_one, "read 1 of 3", "read 3 of 3", topic_is_gone_for_a_while,
            nodes=2,
        )], python="3.8",
    ),
    Row(
        "confluentinc/librdkafka#4059, #4908", LIBRDKAFKA, "2.8.0", "2.10.0",
        [Sight("commit_over_a_rebalance", third_join_lasts, "loses partitions", "gets partitions", member_joins_again)],
    ),
    Row(
        "confluentinc/librdkafka#5142", LIBRDKAFKA, "2.11.0", "2.11.1",
        [Sight("be_idle", states.orders, "sees _ALL_BROKERS_DOWN", "sees no error")],
    ),
    Row(
        "confluentinc/librdkafka#5178", LIBRDKAFKA, "2.11.1", "2.12.0",
        [Sight("be_idle_and_read_the_log", states.orders, "bootstraps again", "stays")],
    ),
    Row(  # Even the fixed release uses the bootstrap server first in one run out of ten.
        "confluentinc/librdkafka#5088", LIBRDKAFKA, "2.10.0", "2.10.1",
        [Sight("count_outages", address_is_wrong_at_first, "has an outage each second", "settles")],
    ),
)  # fmt: skip

NOT_SHOWN: Mapping[str, str] = {
    "confluentinc/librdkafka#5106": "Client telemetry is not served, as by Kafka without a plugin for it.",
    "confluentinc/librdkafka#4634": (
        "Mended before 2.4.0, the first release with the protocol of KIP-848; fenced as another member joins, it joins"
        " again and gets its partitions."
    ),
}
