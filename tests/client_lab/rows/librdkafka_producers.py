"""Bugs in old librdkafka releases that concern producers and transactions."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.testing.sync import Cluster
from tests.client_lab import states
from tests.client_lab.row import Client, Conviction, Row, ScenarioConviction, Script, Sight
from tests.client_lab.states import PATIENCE_S, commit, in_the_log, orders, transaction

LIBRDKAFKA = Client("confluent-kafka", "librdkafka_producers.py", driver="librdkafka.py")
# This release's coordinator fences a producer that requests a new epoch twice in one transaction.
WITHOUT_KIP_890 = "3.9"


def refused_between_two(kafka: Cluster) -> None:
    """Refuses the first of two batches in flight once, so the second batch is out of order."""
    orders(kafka, partitions=2)
    refusal = {"error": "NOT_LEADER_OR_FOLLOWER", "delay_ms": 300}
    kafka.fault({"match": {"api": "Produce"}, "after": 1, "times": 1, "do": refusal})


def offsets_held(kafka: Cluster) -> None:
    orders(kafka)
    transaction(kafka, ["x"], committed=True)
    commit(kafka, 0)
    kafka.move_coordinator("transaction", "t", 1)
    kafka.move_coordinator("group", "g", 2)
    kafka.fault({"match": {"api": "AddOffsetsToTxn"}, "times": 1, "do": {"hold": "offsets"}})


def coordinator_moves(kafka: Cluster) -> None:
    kafka.wait(hold="offsets", timeout_s=PATIENCE_S)
    kafka.move_coordinator("transaction", "t", 2)
    kafka.release("offsets")


def second_batch_unanswered(kafka: Cluster) -> None:
    orders(kafka)
    kafka.fault({"name": "second", "match": {"api": "Produce"}, "after": 1, "do": {"drop": True}, "times": 1})


def transaction_times_out(kafka: Cluster) -> None:
    kafka.wait(fault="second", hits=1, timeout_s=PATIENCE_S)
    kafka.clock.advance(120_000)


def batch_and_new_epoch_unanswered(kafka: Cluster) -> None:
    """Drops the first batch and holds the request for a new epoch. Both requests go to node 2, which is both the
    transaction coordinator and the partition leader."""
    orders(kafka)
    transaction(kafka, ["x"], committed=True)
    kafka.move_coordinator("transaction", "t", 2)
    kafka.move_leader("orders", 0, 2)
    kafka.fault({"match": {"api": "Produce"}, "do": {"drop": True}, "times": 1})
    kafka.fault({"name": "epoch", "match": {"api": "InitProducerId"}, "after": 1, "do": {"hold": "epoch"}})


def coordinator_killed_then_unknown(kafka: Cluster) -> None:
    """Kills the coordinator and restarts it after a FindCoordinator request has failed. The previous FindCoordinator
    request still returns the killed node."""
    kafka.wait(hold="epoch", timeout_s=PATIENCE_S)
    refusal = {"error": "COORDINATOR_NOT_AVAILABLE"}
    kafka.fault({"name": "search", "match": {"api": "FindCoordinator"}, "after": 1, "times": 5, "do": refusal})
    kafka.stop_node(2, clean=False)
    kafka.wait(fault="search", hits=1, timeout_s=PATIENCE_S)
    kafka.clear_faults("epoch")
    kafka.start_node(2)


def first_record_observed(kafka: Cluster) -> None:
    orders(kafka)
    kafka.fault({"name": "first", "match": {"api": "Produce"}, "at": "applied", "do": {"observe": True}})


def topic_disappears_for_a_while(kafka: Cluster) -> None:
    kafka.wait(fault="first", hits=1, timeout_s=PATIENCE_S)
    nothing = {"Topics[0].ErrorCode": 3, "Topics[0].Partitions": []}
    kafka.fault({"match": {"api": "Metadata"}, "at": "applied", "do": {"edit": nothing}, "times": 6})


def written_and_refused(kafka: Cluster) -> None:
    orders(kafka)
    refusal = {"error": "NOT_ENOUGH_REPLICAS_AFTER_APPEND"}
    kafka.fault({"match": {"api": "Produce"}, "at": "applied", "do": refusal, "times": 20, "unused": "ok"})


def disconnected_and_refused(kafka: Cluster) -> None:
    """Closes the connection while batches are in flight and refuses the first batch once when the client sends it
    again."""
    orders(kafka)
    loss = {"disconnect": True, "delay_ms": 300}
    kafka.fault({"match": {"api": "Produce"}, "after": 1, "times": 1, "do": loss})
    refusal = {"error": "NOT_ENOUGH_REPLICAS", "delay_ms": 300}
    kafka.fault({"match": {"api": "Produce"}, "after": 2, "times": 1, "do": refusal})


def second_batch_held(kafka: Cluster) -> None:
    orders(kafka)
    kafka.fault({"match": {"api": "Produce"}, "after": 1, "times": 1, "do": {"hold": "second"}})
    refusal = {"error": "NOT_LEADER_OR_FOLLOWER", "delay_ms": 300}
    kafka.fault({"match": {"api": "Produce"}, "after": 2, "times": 1, "do": refusal})


def only_node_restarts(kafka: Cluster) -> None:
    kafka.wait(hold="second", timeout_s=PATIENCE_S)
    kafka.stop_node(1)
    kafka.start_node(1)


def commit_and_abort_held(kafka: Cluster) -> None:
    """Holds the first commit, which the client retries, and the request that ends the next transaction."""
    orders(kafka)
    kafka.fault({"match": {"api": "EndTxn"}, "do": {"hold": "commit"}, "times": 1})
    kafka.fault({"match": {"api": "EndTxn"}, "do": {"hold": "abort"}, "after": 2, "times": 1})


def commit_comes_late(kafka: Cluster) -> None:
    kafka.wait(hold="abort", timeout_s=PATIENCE_S)
    kafka.release("commit")
    kafka.wait(transaction="t", state="CompleteCommit", timeout_s=PATIENCE_S)
    kafka.release("abort")


def throttled_by_a_minute(kafka: Cluster) -> None:
    orders(kafka)
    kafka.preset("throttled-client", throttle_ms=60_000)


def topic_missing_once_from_metadata(kafka: Cluster) -> None:
    """Removes the topic from one of the Metadata responses that refresh the client's metadata."""
    orders(kafka)
    rule = {"match": {"api": "Metadata", "client_id": "rdkafka"}, "at": "applied", "after": 4, "times": 1}
    kafka.fault({**rule, "do": {"edit": {"Topics[0]": {"remove": True}}}})


def sequence_out_of_order(kafka: Cluster) -> None:
    orders(kafka)
    kafka.fault({"match": {"api": "Produce"}, "do": {"error": "OUT_OF_ORDER_SEQUENCE_NUMBER"}, "after": 1, "times": 1})


ABORT_AND_COMMIT = Script(
    ("begin", "produce orders 0 a", "produce orders 0 b", "abort", "begin", "produce orders 0 c", "commit"),
    transactional_id="t",
)

ROWS = (
    Row(
        "fede1024/rust-rdkafka#349", LIBRDKAFKA, "1.6.0", "1.6.1",
        [
            Sight(
                "empty_transaction", states.orders, "raised KafkaError{FATAL,code=INVALID_TXN_STATE", "committed",
            ),
            ScenarioConviction("TXN.11"),
        ], python="3.8",
    ),
    Row(
        "confluentinc/librdkafka#3971", LIBRDKAFKA, "1.9.2", "2.0.2",
        [Sight(
            "commit_without_answer", states.lost_commit, "raised KafkaError{code=_TIMED_OUT", "committed",
        )], python="3.8",
    ),
    Row(
        "confluentinc/librdkafka#3575", LIBRDKAFKA, "1.7.0", "1.8.2",
        [Sight(
            "transaction_of_two_partitions", refused_between_two, "committed, read [d]", "committed, read [a b c d]",
            traffic=in_the_log, settings={"transaction.partition.verification.enable": "false"},
        )], python="3.8",
    ),
    Row(
        "confluentinc/librdkafka#3571", LIBRDKAFKA, "1.7.0", "1.8.2",
        [Sight(
            "offsets_in_a_transaction", offsets_held, "raised KafkaError{code=NOT_COORDINATOR", "committed",
            coordinator_moves, nodes=2,
        )], python="3.8",
    ),
    Row(
        "confluentinc/librdkafka#3928", LIBRDKAFKA, "1.9.2", "2.0.2",
        [Sight(
            "next_transaction", second_batch_unanswered, "raised KafkaError{FATAL,code=_FENCED", "committed",
            emulate=WITHOUT_KIP_890,
        )], python="3.8",
    ),
    Row(
        "confluentinc/librdkafka#4058", LIBRDKAFKA, "1.9.2", "2.0.2",
        [Sight(
            "next_transaction", states.second_batch_unknown, "raised KafkaError{FATAL,code=_FENCED", "committed",
            emulate=WITHOUT_KIP_890,
        )], python="3.8",
    ),
    Row(
        "confluentinc/librdkafka#4020", LIBRDKAFKA, "1.9.2", "2.0.2",
        [Sight(
            "short_transaction", batch_and_new_epoch_unanswered, "dies of SIGABRT", "aborted",
            coordinator_killed_then_unknown, nodes=2,
        )], python="3.8",
    ),
    Row(  # Releases 2.0.2 and 2.16.1 end the transaction first, and are therefore fenced in this state.
        "confluentinc/librdkafka#3297", LIBRDKAFKA, "1.7.0", "1.8.2",
        [Sight(
            "transaction_that_timed_out", second_batch_unanswered, "raised KafkaError{FATAL,code=INVALID_TXN_STATE",
            "aborted", transaction_times_out,
        )], python="3.8",
    ),
    Row(
        "librdkafka before 1.9.0", LIBRDKAFKA, "1.8.2", "1.9.0",
        [Sight(
            "topic_comes_and_goes", first_record_observed, "flushed, read [a]", "flushed, read [a b]",
            topic_disappears_for_a_while, in_the_log,
        )], python="3.8",
    ),
    Row(
        "confluentinc/librdkafka#4736", LIBRDKAFKA, "2.3.0", "2.5.0",
        [Sight(
            "large_batch", written_and_refused, "raised KafkaError{FATAL,code=_INCONSISTENT", "flushed",
        )], python="3.8",
    ),
    Row(
        "confluentinc/librdkafka#4438", LIBRDKAFKA, "2.2.0", "2.3.0",
        [Sight(
            "several_in_flight", disconnected_and_refused, "raised KafkaError{FATAL,code=OUT_OF_ORDER_SEQUENCE_NUMBER",
            "flushed, read [0 1 2 3 4 5]", traffic=in_the_log,
        )], python="3.8",
    ),
    Row(
        "confluentinc/librdkafka#3584", LIBRDKAFKA, "2.2.0", "2.3.0",
        [Sight(
            "outage", second_batch_held, "raised KafkaError{FATAL,code=OUT_OF_ORDER_SEQUENCE_NUMBER",
            "flushed, read [0 1 2]", only_node_restarts, in_the_log, nodes=1,
        )], python="3.8",
    ),
    Row(
        "confluentinc/confluent-kafka-python#1125", LIBRDKAFKA, "1.7.0", "2.0.2",
        [Sight(
            "purge_in_a_transaction", states.orders, "raised KafkaError{code=_TIMED_OUT", "committed",
            emulate=WITHOUT_KIP_890,
        )], python="3.8",
    ),
    Row(
        "confluentinc/librdkafka#5423", LIBRDKAFKA, "2.16.1", None,
        [Sight(
            "commit_and_abort", commit_and_abort_held, "raised KafkaError{FATAL,code=INVALID_TXN_STATE", None,
            commit_comes_late, in_the_log,
        )],
    ),
    Row(
        "confluentinc/librdkafka#5592", LIBRDKAFKA, "2.16.1", None,
        [Sight("send_three", throttled_by_a_minute, "sent 3 of 3 in 10 s", None)],
    ),
    Row(
        "confluentinc/librdkafka#3672", LIBRDKAFKA, "1.8.2", "1.9.2",
        [Conviction("IDM.2", "send_before_and_after", topic_missing_once_from_metadata, also=("IDM.3",))],
        python="3.8",
    ),
    Row(
        "librdkafka 1.6.1, its changelog", LIBRDKAFKA, "1.6.0", "1.6.1",
        [Conviction("TXN.2", ABORT_AND_COMMIT, sequence_out_of_order, avoided=True, also=("IDM.6",))],
        python="3.8",
    ),
    Row("KIP-896", LIBRDKAFKA, "1.7.0", "1.8.2", [ScenarioConviction("VER.8")], python="3.8"),
)  # fmt: skip

NOT_SHOWN: Mapping[str, str] = {
    "confluentinc/librdkafka#4420": (
        "Seen once by its author, and no release tells of a mend. With PRODUCER_FENCED at InitProducerId, held or not,"
        " 2.1.0 and 2.16.1 raise an error; and of 68 fatal errors of FindCoordinator that came amid thousands of empty"
        " transactions, 15 met 2.1.0 as it began one, which raised them."
    ),
    "confluentinc/librdkafka#2749": (
        "Mended before 1.4.0, the first release with transactions, which gets each new epoch from the coordinator."
    ),
    "confluentinc/confluent-kafka-dotnet#1321": (
        "The binding for .NET overflows the stack when it frees an error (confluent-kafka-dotnet#1249), which no wheel"
        " has; 1.4.0 and 1.4.2 raise an error in this state."
    ),
}
