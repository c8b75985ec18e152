"""Tests the transaction APIs as clients see them. The tests cover versions, permissions, and partial refusals.

Rules: docs/spec/transactions.md#s2; scenarios: #s8-1 to #s8-3.
"""

from itertools import count
from typing import Any

import pytest

from odradek.broker.api.context import AllowAll, ConnectionInfo, RequestContext
from odradek.broker.handlers.transactions.administration import list_transactions
from odradek.broker.patterns.re2 import WORK_PER_STEP
from odradek.broker.runtime.loop_watch import LoopWatch
from odradek.broker.runtime.slices import SLICE_S
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from odradek.protocol.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from odradek.protocol.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from odradek.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from odradek.protocol.messages.describe_transactions_response import DescribeTransactionsResponse
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.list_transactions_request import ListTransactionsRequest
from odradek.protocol.messages.list_transactions_response import ListTransactionsResponse
from odradek.protocol.topic_partition import TRANSACTION_STATE
from tests.support.transaction_broker import TransactionBroker
from tests.support.turns import outcome_and_turns

E = ErrorCode
PID = 1000
Pair = tuple[int, int]
WRITE, DESCRIBE = Operation.WRITE, Operation.DESCRIBE
TOPIC, TXN_ID = ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID


def scene_with_topics() -> TransactionBroker:
    scene = TransactionBroker()
    scene.topic(TRANSACTION_STATE, 3)
    scene.topic("__consumer_offsets", 3)
    scene.topic("orders", 2)
    scene.topic("refunds", 2)
    return scene


def init(
    scene: TransactionBroker, transactional_id: str | None = "pay", pair: Pair = (-1, -1), version: int = 5
) -> Pair:
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=60_000,
        producer_id=pair[0],
        producer_epoch=pair[1],
    )
    answer = scene.answer(request, version, InitProducerIdResponse)
    assert answer.error_code == 0
    return answer.producer_id, answer.producer_epoch


def topics(**partitions: list[int]) -> list[AddPartitionsToTxnTopic]:
    return [AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in partitions.items()]


def codes(results: list[AddPartitionsToTxnTopicResult]) -> dict[tuple[str, int], ErrorCode]:
    return {
        (topic.name, partition.partition_index): ErrorCode(partition.partition_error_code)
        for topic in results
        for partition in topic.results_by_partition
    }


def add(
    scene: TransactionBroker, pair: Pair, version: int = 3, **partitions: list[int]
) -> dict[tuple[str, int], ErrorCode]:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="pay",
        v3_and_below_producer_id=pair[0],
        v3_and_below_producer_epoch=pair[1],
        v3_and_below_topics=topics(**partitions),
    )
    return codes(scene.answer_or_refusal(request, version, AddPartitionsToTxnResponse).results_by_topic_v3_and_below)


def entry(
    pair: Pair, transactional_id: str = "pay", *, verify_only: bool = False, **partitions: list[int]
) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=pair[0],
        producer_epoch=pair[1],
        verify_only=verify_only,
        topics=topics(**partitions),
    )


def add_batched(
    scene: TransactionBroker, *entries: AddPartitionsToTxnTransaction, version: int = 5
) -> list[tuple[str, dict[tuple[str, int], ErrorCode]]]:
    request = AddPartitionsToTxnRequest(transactions=list(entries))
    answer = scene.answer(request, version, AddPartitionsToTxnResponse)
    assert answer.error_code == 0
    return [(each.transactional_id, codes(each.topic_results)) for each in answer.results_by_transaction]


def refusal(scene: TransactionBroker, request: Any, version: int) -> ErrorCode:
    """Returns the error code of a request that fails as a whole."""
    with pytest.raises(KafkaError) as caught:
        scene.ask(request, version)
    return caught.value.code


def state(scene: TransactionBroker) -> str:
    return scene.transactions.describe("pay").transaction_state


def named_twice(scene: TransactionBroker, *more: AddPartitionsToTxnTopic, verify_only: bool = False) -> list[list[Any]]:
    """Sends a request that names partitions of `orders` twice, in addition to the topics in `more`.

    Returns [(topic, [(partition, error code)])] for the response at v3, and then for the response at v5.
    """
    producer_id, producer_epoch = init(scene)
    twice = [*topics(orders=[0, 0, 1]), *topics(orders=[1]), *more]
    as_producer = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="pay",
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=producer_epoch,
        v3_and_below_topics=twice,
    )
    transaction = AddPartitionsToTxnTransaction(
        transactional_id="pay",
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        topics=twice,
        verify_only=verify_only,
    )
    as_leader = AddPartitionsToTxnRequest(transactions=[transaction])
    answers = [
        scene.answer(as_producer, 3, AddPartitionsToTxnResponse).results_by_topic_v3_and_below,
        scene.answer(as_leader, 5, AddPartitionsToTxnResponse).results_by_transaction[0].topic_results,
    ]
    return [
        [
            (
                result.name,
                [(each.partition_index, E(each.partition_error_code)) for each in result.results_by_partition],
            )
            for result in results
        ]
        for results in answers
    ]


def test_a_partition_named_twice_has_a_result_for_each_mention() -> None:
    """Checks that a partition named twice has two results. Kafka 4.3.1 gives the same answers at every version."""
    expected = [("orders", [(0, E.NONE), (0, E.NONE), (1, E.NONE)]), ("orders", [(1, E.NONE)])]
    assert named_twice(scene_with_topics()) == [expected, expected]


def test_where_results_differ_a_partition_named_twice_has_one() -> None:
    """Checks that a partition named twice has a single result if another topic is refused, or if the request only
    verifies partitions. Kafka 4.3.1 gives the same answers at every version, but lists the partitions in hash order."""
    once = [("orders", [(0, E.OPERATION_NOT_ATTEMPTED), (1, E.OPERATION_NOT_ATTEMPTED)])]
    expected = [*once, ("nobody", [(0, E.UNKNOWN_TOPIC_OR_PARTITION)])]
    assert named_twice(scene_with_topics(), *topics(nobody=[0])) == [expected, expected]
    assert named_twice(scene_with_topics(), verify_only=True)[1] == [("orders", [(0, E.NONE), (1, E.NONE)])]


@pytest.mark.parametrize("version", range(6))
def test_scenario_001_a_producer_id_without_a_transactional_id_writes_no_record(version: int) -> None:
    scene = scene_with_topics()
    assert init(scene, None, version=version) == (PID, 0)
    assert init(scene, None, version=version) == (PID + 1, 0)
    ends = [scene.partition(TRANSACTION_STATE, index).log.log_end_offset for index in range(3)]
    assert ends == [0, 0, 0]


def test_scenario_001_a_producer_id_is_refused_as_loading_while_the_broker_has_none() -> None:
    scene = scene_with_topics()
    scene.blocks.failure = KafkaError(E.KAFKA_STORAGE_ERROR)
    with pytest.raises(KafkaError) as caught:
        init(scene, None)
    assert caught.value.code is E.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("pair", [(-1, 3), (7, -1)])
def test_scenario_004_a_producer_id_without_an_epoch_is_refused(pair: Pair) -> None:
    request = InitProducerIdRequest(
        transactional_id="pay", transaction_timeout_ms=60_000, producer_id=pair[0], producer_epoch=pair[1]
    )
    assert refusal(scene_with_topics(), request, 4) is E.INVALID_REQUEST


@pytest.mark.parametrize(("version", "code"), [(3, E.INVALID_PRODUCER_EPOCH), (4, E.PRODUCER_FENCED)])
def test_scenario_011_old_versions_have_another_error_code_for_fenced(version: int, code: ErrorCode) -> None:
    scene = scene_with_topics()
    pair = init(scene)
    add(scene, pair, orders=[0])
    request = InitProducerIdRequest(
        transactional_id="pay", transaction_timeout_ms=60_000, producer_id=8, producer_epoch=0
    )
    assert scene.answer_or_refusal(request, version, InitProducerIdResponse).error_code == code.value
    assert state(scene) == "Ongoing"


def test_scenario_018_one_partition_that_cannot_be_added_keeps_the_others_out() -> None:
    scene = scene_with_topics()
    pair = init(scene)
    scene.authorizer.denied.add((WRITE, TOPIC, "refunds"))
    assert add(scene, pair, refunds=[0], nowhere=[0], orders=[0, 1, 9]) == {
        ("refunds", 0): E.TOPIC_AUTHORIZATION_FAILED,
        ("nowhere", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
        ("orders", 0): E.OPERATION_NOT_ATTEMPTED,
        ("orders", 1): E.OPERATION_NOT_ATTEMPTED,
        ("orders", 9): E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert state(scene) == "Empty"


def test_scenario_018_a_missing_topic_without_permission_is_unauthorized() -> None:
    scene = scene_with_topics()
    scene.authorizer.denied.add((WRITE, TOPIC, "nowhere"))
    assert add(scene, init(scene), nowhere=[0]) == {("nowhere", 0): E.TOPIC_AUTHORIZATION_FAILED}


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_scenario_019_producers_cannot_add_internal_topics(topic: str) -> None:
    scene = scene_with_topics()
    assert add(scene, init(scene), 3, **{topic: [0]}) == {(topic, 0): E.TOPIC_AUTHORIZATION_FAILED}


def test_a_leader_adds_a_partition_of_the_offsets_topic_but_of_no_other_internal_topic() -> None:
    scene = scene_with_topics()
    pair = init(scene)
    assert add_batched(scene, entry(pair, __consumer_offsets=[0])) == [("pay", {("__consumer_offsets", 0): E.NONE})]
    assert add_batched(scene, entry(pair, __transaction_state=[0], orders=[0])) == [
        ("pay", {("__transaction_state", 0): E.INVALID_TOPIC_EXCEPTION, ("orders", 0): E.OPERATION_NOT_ATTEMPTED})
    ]


@pytest.mark.parametrize(
    ("version", "code"),
    [(0, E.INVALID_PRODUCER_EPOCH), (1, E.INVALID_PRODUCER_EPOCH), (2, E.PRODUCER_FENCED), (3, E.PRODUCER_FENCED)],
)
def test_scenario_021_old_versions_have_another_error_code_for_fenced(version: int, code: ErrorCode) -> None:
    scene = scene_with_topics()
    init(scene)
    pair = init(scene)
    fenced = (pair[0], pair[1] - 1)
    assert add(scene, fenced, version, orders=[0]) == {("orders", 0): code}
    offsets = AddOffsetsToTxnRequest(
        transactional_id="pay", producer_id=fenced[0], producer_epoch=fenced[1], group_id="g"
    )
    assert scene.answer_or_refusal(offsets, version, AddOffsetsToTxnResponse).error_code == code.value
    end = EndTxnRequest(transactional_id="pay", producer_id=fenced[0], producer_epoch=fenced[1], committed=True)
    assert scene.answer_or_refusal(end, version, EndTxnResponse).error_code == code.value


def test_scenario_025_each_transaction_of_a_batch_succeeds_or_fails_alone() -> None:
    scene = scene_with_topics()
    pay, ship = init(scene, "pay"), init(scene, "ship")
    assert add_batched(
        scene, entry(pay, orders=[0]), entry(pay, "nobody", orders=[0]), entry(ship, "ship", orders=[1])
    ) == [
        ("pay", {("orders", 0): E.NONE}),
        ("nobody", {("orders", 0): E.INVALID_PRODUCER_ID_MAPPING}),
        ("ship", {("orders", 1): E.NONE}),
    ]


def test_scenario_026_only_brokers_may_send_batches_of_transactions() -> None:
    scene = scene_with_topics()
    pair = init(scene)
    scene.authorizer.denied.add((Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME))
    request = AddPartitionsToTxnRequest(transactions=[entry(pair, orders=[0])])
    assert refusal(scene, request, 4) is E.CLUSTER_AUTHORIZATION_FAILED
    assert state(scene) == "Empty"


# Kafka 4.3.1 sends no response to a request that contains no transactions.
@pytest.mark.known_bug(55, "Kafka 4.3.1")
@pytest.mark.parametrize("version", [4, 5])
def test_a_batch_of_no_transactions_is_answered(version: int) -> None:
    assert add_batched(scene_with_topics(), version=version) == []


# If a request names an id twice, Kafka 4.3.1 returns the result of one of the two transactions twice.
@pytest.mark.known_bug(55, "Kafka 4.3.1")
def test_an_id_that_a_batch_names_twice_is_refused_both_times() -> None:
    scene = scene_with_topics()
    pair = init(scene)
    assert add_batched(scene, entry(pair, orders=[0]), entry(pair, orders=[1])) == [
        ("pay", {("orders", 0): E.INVALID_REQUEST}),
        ("pay", {("orders", 1): E.INVALID_REQUEST}),
    ]
    assert state(scene) == "Empty"


def test_scenario_027_verifying_adds_no_partition() -> None:
    scene = scene_with_topics()
    pair = init(scene)
    add(scene, pair, orders=[0])
    assert add_batched(scene, entry(pair, verify_only=True, orders=[0, 1])) == [
        ("pay", {("orders", 0): E.NONE, ("orders", 1): E.TRANSACTION_ABORTABLE})
    ]


@pytest.mark.parametrize("version", range(5))
def test_scenario_029_a_groups_offsets_are_added_by_the_groups_partition(version: int) -> None:
    scene = scene_with_topics()
    pair = init(scene)
    request = AddOffsetsToTxnRequest(
        transactional_id="pay", producer_id=pair[0], producer_epoch=pair[1], group_id="billing"
    )
    assert scene.answer(request, version, AddOffsetsToTxnResponse).error_code == 0
    (shown,) = scene.transactions.describe("pay").topics
    assert (shown.topic, shown.partitions) == ("__consumer_offsets", [scene.groups.partition_for("billing")])


def test_scenario_029_adding_offsets_requires_read_on_the_group() -> None:
    scene = scene_with_topics()
    pair = init(scene)
    scene.authorizer.denied.add((Operation.READ, ResourceType.GROUP, "billing"))
    request = AddOffsetsToTxnRequest(
        transactional_id="pay", producer_id=pair[0], producer_epoch=pair[1], group_id="billing"
    )
    assert refusal(scene, request, 3) is E.GROUP_AUTHORIZATION_FAILED


@pytest.mark.parametrize("version", range(6))
def test_a_commit_of_every_version_is_answered_in_its_form(version: int) -> None:
    scene = scene_with_topics()
    pair = init(scene)
    add(scene, pair, orders=[0])
    request = EndTxnRequest(transactional_id="pay", producer_id=pair[0], producer_epoch=pair[1], committed=True)
    answer = scene.answer(request, version, EndTxnResponse)
    expected = (PID, 1) if version == 5 else (-1, -1)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, *expected)


@pytest.mark.parametrize(
    "request_of",
    [
        lambda: InitProducerIdRequest(transactional_id="pay", transaction_timeout_ms=60_000),
        lambda: AddPartitionsToTxnRequest(v3_and_below_transactional_id="pay"),
        lambda: AddOffsetsToTxnRequest(transactional_id="pay", group_id="g"),
        lambda: EndTxnRequest(transactional_id="pay"),
    ],
)
def test_every_request_requires_write_on_the_transactional_id(request_of: Any) -> None:
    scene = scene_with_topics()
    scene.authorizer.denied.add((WRITE, TXN_ID, "pay"))
    assert refusal(scene, request_of(), 3) is E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def listing(scene: TransactionBroker, version: int = 2, **filters: Any) -> ListTransactionsResponse:
    return scene.answer(ListTransactionsRequest(**filters), version, ListTransactionsResponse)


def ids(answer: ListTransactionsResponse) -> set[str]:
    return {each.transactional_id for each in answer.transaction_states}


def test_listing_filters_by_state_producer_and_duration_as_kafka_does() -> None:
    scene = scene_with_topics()
    pay, ship = init(scene, "pay"), init(scene, "ship")
    add_batched(scene, entry(ship, "ship", orders=[0]))
    scene.clock.advance(30_000)
    assert ids(listing(scene)) == {"pay", "ship"}
    assert ids(listing(scene, state_filters=["Ongoing"])) == {"ship"}
    assert ids(listing(scene, producer_id_filters=[pay[0]])) == {"pay"}
    # A transactional id without a transaction is treated as if its transaction had started long ago.
    assert ids(listing(scene, duration_filter=60_000)) == {"pay"}
    assert ids(listing(scene, duration_filter=29_999)) == {"pay", "ship"}
    assert ids(listing(scene, duration_filter=29_999, state_filters=["Ongoing"])) == {"ship"}


def test_listing_returns_unknown_states_and_matches_nothing_by_them() -> None:
    scene = scene_with_topics()
    init(scene)
    answer = listing(scene, state_filters=["NoSuchState"])
    assert (answer.unknown_state_filters, ids(answer)) == (["NoSuchState"], set())
    answer = listing(scene, state_filters=["NoSuchState", "Empty"])
    assert (answer.unknown_state_filters, ids(answer)) == (["NoSuchState"], {"pay"})
    assert listing(scene, state_filters=["Dead", "PrepareEpochFence"]).unknown_state_filters == []


def test_scenario_139_a_pattern_matches_the_whole_id_and_a_bad_one_is_refused() -> None:
    scene = scene_with_topics()
    init(scene, "pay-1")
    init(scene, "prepay-1")
    assert ids(listing(scene, transactional_id_pattern="pay-.*")) == {"pay-1"}
    assert ids(listing(scene, transactional_id_pattern="")) == {"pay-1", "prepay-1"}
    assert ids(listing(scene, transactional_id_pattern="pay")) == set()
    request = ListTransactionsRequest(transactional_id_pattern="(pay")
    assert refusal(scene, request, 2) is E.INVALID_REGULAR_EXPRESSION


def test_listing_omits_transactional_ids_that_the_client_may_not_describe() -> None:
    scene = scene_with_topics()
    init(scene, "pay")
    init(scene, "ship")
    scene.authorizer.denied.add((DESCRIBE, TXN_ID, "pay"))
    assert ids(listing(scene)) == {"ship"}


def described(scene: TransactionBroker, *transactional_ids: str) -> list[Any]:
    request = DescribeTransactionsRequest(transactional_ids=list(transactional_ids))
    return scene.answer(request, 0, DescribeTransactionsResponse).transaction_states


def test_scenario_140_topics_that_the_client_may_not_describe_are_omitted() -> None:
    scene = scene_with_topics()
    pair = init(scene)
    add(scene, pair, orders=[1, 0], refunds=[0])
    scene.authorizer.denied.add((DESCRIBE, TOPIC, "refunds"))
    (shown,) = described(scene, "pay")
    assert [(each.topic, each.partitions) for each in shown.topics] == [("orders", [0, 1])]
    assert (shown.transaction_state, shown.producer_id, shown.producer_epoch) == ("Ongoing", *pair)
    assert shown.transaction_start_time_ms == scene.clock.now_ms()


def test_scenario_140_ids_that_are_unknown_empty_or_forbidden_have_their_own_codes() -> None:
    scene = scene_with_topics()
    scene.authorizer.denied.add((DESCRIBE, TXN_ID, "secret"))
    assert [ErrorCode(each.error_code) for each in described(scene, "nobody", "", "secret")] == [
        E.TRANSACTIONAL_ID_NOT_FOUND,
        E.INVALID_REQUEST,
        E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ]


def test_clients_are_served_while_many_ids_are_listed() -> None:
    scene = scene_with_topics()
    for name in ("pay", "ship"):
        init(scene, name)
    # Every step takes longer than a slice.
    scene.broker.watch = LoopWatch(scene.timers, count(0.0, SLICE_S * 1.5).__next__)
    connection = ConnectionInfo(1, "127.0.0.1", 50_000)
    context = RequestContext(ApiKey.LIST_TRANSACTIONS, 2, 1, "a-client", 0, connection, AllowAll())
    answer, turns = outcome_and_turns(list_transactions(ListTransactionsRequest(), context, scene.broker))
    assert ids(answer) == {"pay", "ship"}
    assert turns == 2 + 2 + 1  # One turn for each shard, one for each id, and one for the response.


def test_clients_are_served_while_one_id_is_compared_with_a_costly_pattern() -> None:
    scene = scene_with_topics()
    init(scene, "ab" * 5_000)
    scene.broker.watch = LoopWatch(scene.timers, count(0.0, SLICE_S * 1.5).__next__)  # Each step takes a full slice.
    connection = ConnectionInfo(1, "127.0.0.1", 50_000)
    context = RequestContext(ApiKey.LIST_TRANSACTIONS, 2, 1, "a-client", 0, connection, AllowAll())
    request = ListTransactionsRequest(transactional_id_pattern=".*a.{100}")
    answer, turns = outcome_and_turns(list_transactions(request, context, scene.broker))
    assert ids(answer) == set()
    assert turns >= 10_000 // WORK_PER_STEP
