"""Rules TXN, about the order and repetition of transactional requests. State is keyed by transactional id, producer id
and epoch."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from odradek.protocol.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from odradek.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest
from odradek.protocol.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.produce_request import ProduceRequest
from odradek.protocol.messages.txn_offset_commit_request import TxnOffsetCommitRequest
from odradek.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponse
from odradek.testing.judge.exchanges import AnswerStatus, Exchange, knows_response
from odradek.testing.judge.rule import Family, M, ProtocolRule, S, undecided
from odradek.testing.judge.rules.groups import GroupMembers
from odradek.testing.judge.rules.produce import partition_errors
from odradek.testing.judge.scene import Scene

TV2_PRODUCE: Final = 12
TV2_OFFSETS: Final = 5
MAX_REPEATS: Final = 3
BACK_OFF_US: Final = 5_000
LOOP_US: Final = 5_000_000
E = ErrorCode
CONCURRENT: Final = E.CONCURRENT_TRANSACTIONS.value
FENCED: Final = E.PRODUCER_FENCED.value
OLD_EPOCH: Final = E.INVALID_PRODUCER_EPOCH.value
NO_MAPPING: Final = E.INVALID_PRODUCER_ID_MAPPING.value
COORDINATOR: Final = frozenset(
    code.value for code in (E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR)
)
RETRIED: Final = COORDINATOR | {CONCURRENT}
# Maps each error after which a producer must not keep sending InitProducerId to the rule that forbids it.
FATAL_INITS: Final = {
    E.INVALID_TRANSACTION_TIMEOUT.value: "TXN.14",
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED.value: "TXN.16",
}

# fmt: off
RULES = (
    ProtocolRule("TXN.1", M, "Transactional requests have a producer id and epoch that the broker assigned",
        "a transactional request after an InitProducerId of its transactional id"),
    ProtocolRule("TXN.2", M,
        "Below TV2 AddPartitionsToTxn succeeds for a partition before the transaction's first batch there",
        "a transactional Produce below v12"),
    ProtocolRule("TXN.3", M, "Below TV2 AddOffsetsToTxn succeeds before TxnOffsetCommit",
        "a TxnOffsetCommit below v5"),
    ProtocolRule("TXN.4", M, "The client sends EndTxn when all batches are answered, and sends no batch after EndTxn",
        "an EndTxn after a Produce of the transaction"),
    ProtocolRule("TXN.5", M, "The client does not commit a transaction if one of its batches failed",
        "an EndTxn(commit) after a Produce of the transaction"),
    ProtocolRule("TXN.6", M, "After PRODUCER_FENCED no request has that producer id and epoch, except to abort",
        "an answer with PRODUCER_FENCED"),
    ProtocolRule("TXN.7", M, "After INVALID_PRODUCER_EPOCH on Produce the client does not commit the transaction",
        "an EndTxn or InitProducerId after INVALID_PRODUCER_EPOCH"),
    ProtocolRule("TXN.8", M,
        "After CONCURRENT_TRANSACTIONS the client repeats the request before it commits the transaction",
        "a repeat of the refused request after CONCURRENT_TRANSACTIONS, or a commit"),
    ProtocolRule("TXN.9", M, "After a coordinator error, EndTxn requests the same result again",
        "an EndTxn after one that was answered with a coordinator error"),
    ProtocolRule("TXN.10", M, "If the response to EndTxn is lost, the client repeats EndTxn with the same result",
        "an EndTxn after one whose answer was lost"),
    undecided("TXN.11", M, "The client sends no EndTxn for an empty transaction, or accepts any lawful response",
        "a driver: only the application knows where a transaction begins, and whether the producer remains usable"),
    ProtocolRule("TXN.12", M, "TxnOffsetCommit v3+ has the consumer's member id and generation",
        "a TxnOffsetCommit v3 or later of a group that has members"),
    undecided("TXN.13", M,
        "OffsetFetch requests stable offsets, and the client retries UNSTABLE_OFFSET_COMMIT without a low limit",
        "a driver: traffic to the coordinator does not show whether the consumer is read_committed"),
    ProtocolRule("TXN.14", S,
        "INVALID_TRANSACTION_TIMEOUT is fatal: the client does not repeat InitProducerId in a loop",
        "an answer with INVALID_TRANSACTION_TIMEOUT"),
    ProtocolRule("TXN.15", M, "No batch of an aborted transaction arrives after the response to EndTxn(abort)",
        "a Produce after an EndTxn(abort) whose answer gave a new epoch"),
    ProtocolRule("TXN.16", S,
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED is fatal; INVALID_PRODUCER_ID_MAPPING leads to InitProducerId",
        "an answer with TRANSACTIONAL_ID_AUTHORIZATION_FAILED or INVALID_PRODUCER_ID_MAPPING"),
    ProtocolRule("TXN.17", S, "The client waits before it retries a transactional request",
        "a retry after CONCURRENT_TRANSACTIONS or a coordinator error"),
)
# fmt: on

Pair: TypeAlias = tuple[int, int]  # producer id and epoch


@dataclass(slots=True)
class Producer:
    """The producer ids and epochs that responses have issued for a transactional id. `response` is the last
    InitProducerId response. `fatal_errors` maps each fatal error code to the last response with that error and the
    number of times that the client has ignored it."""

    issued: set[Pair] = field(default_factory=set)
    response: Exchange | None = None
    fatal_errors: dict[int, tuple[Exchange, int]] = field(default_factory=dict)


@dataclass(slots=True)
class OngoingTransaction:
    """The current transaction of a transactional id, producer id and epoch. It covers the requests since the last
    EndTxn."""

    partitions: set[tuple[str, int]] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    failed_batches: dict[tuple[str, int, int], Exchange] = field(default_factory=dict)
    unanswered_batches: dict[int, Exchange] = field(default_factory=dict)
    last_produce: Exchange | None = None
    end_txn: Exchange | None = None
    fencing: Exchange | None = None
    invalid_epoch: Exchange | None = None
    unmapped_response: Exchange | None = None
    refused_end_txn: Exchange | None = None  # the last EndTxn if it was rejected with a coordinator error


@dataclass(slots=True)
class RetriableErrors:
    """Errors after which the client must retry, keyed by API and by the partition or group in the request.

    A client can pipeline requests for several APIs, so a request proves nothing about an error for another API or
    partition. Requests with the same producer id and epoch share one RetriableErrors.

    InitProducerId requests have their own RetriableErrors, for each transactional id and each set of similar
    connections (`Connection.similarity`), because other instances of the producer can use the same transactional id.
    """

    open: dict[tuple[ApiKey, Hashable], tuple[Exchange, int]] = field(default_factory=dict)


def claim(exchange: Exchange) -> tuple[str, Pair] | None:
    """Returns a request's transactional id, producer id and epoch, or None if the request is not transactional."""
    request = exchange.request
    if isinstance(request, ProduceRequest):
        if request.transactional_id is None or not exchange.batches:
            return None
        header = exchange.batches[0].header
        return request.transactional_id, (header.producer_id, header.producer_epoch)
    if isinstance(request, AddPartitionsToTxnRequest):
        if exchange.version >= 4:
            return None  # only brokers send these versions
        pair = request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
        return request.v3_and_below_transactional_id, pair
    if isinstance(request, AddOffsetsToTxnRequest | TxnOffsetCommitRequest | EndTxnRequest):
        return request.transactional_id, (request.producer_id, request.producer_epoch)
    return None


def is_abort(exchange: Exchange) -> bool:
    return isinstance(exchange.request, EndTxnRequest) and not exchange.request.committed


def on_transactional_request(exchange: Exchange, scene: Scene) -> None:
    """Judges every request from a transactional producer except InitProducerId."""
    claimed = claim(exchange)
    if claimed is None:
        return
    name, pair = claimed
    scene.join(exchange.connection, "producer", *pair)
    producer, open_ = scene.state(Producer, name), scene.state(OngoingTransaction, name, *pair)
    if producer.response is not None:
        why = f"no answer to {name!r} contained producer id {pair[0]} and epoch {pair[1]}"
        scene.decide("TXN.1", pair in producer.issued, exchange, why, producer.response)
    if open_.fencing is not None and not is_abort(exchange) and knows_response(exchange, open_.fencing):
        scene.record_broken("TXN.6", exchange, "the producer continues after PRODUCER_FENCED", open_.fencing)
    if (
        open_.unmapped_response is not None
        and not is_abort(exchange)
        and knows_response(exchange, open_.unmapped_response)
    ):
        scene.record_broken(
            "TXN.16",
            exchange,
            "the producer continues with a transactional id that has no mapping",
            open_.unmapped_response,
        )
    errors = scene.state(RetriableErrors, name, *pair)
    _check_retry(exchange, errors, scene)
    _check_abandoned(exchange, errors, scene)
    initialising = scene.find_state(RetriableErrors, exchange.connection.similarity, name)
    if initialising is not None and any(
        refused.connection is exchange.connection for refused, _ in initialising.open.values()
    ):
        _check_abandoned(exchange, initialising, scene)


def _subjects(exchange: Exchange) -> list[Hashable]:
    """Returns a transactional request's partitions or its group. Returns [None] if the request concerns neither
    partitions nor a group."""
    request = exchange.request
    if isinstance(request, AddPartitionsToTxnRequest):
        topics = request.v3_and_below_topics
        return [(topic.name, partition) for topic in topics for partition in topic.partitions]
    if isinstance(request, AddOffsetsToTxnRequest | TxnOffsetCommitRequest):
        return [request.group_id]
    return [None]


def _check_retry(exchange: Exchange, errors: RetriableErrors, scene: Scene) -> None:
    """Decides TXN.8 and TXN.17 for the rejected requests that this request retries, and forgets those rejections."""
    api = exchange.api
    if api is None or not errors.open or api is ApiKey.PRODUCE:
        return
    repeated = [found for each in _subjects(exchange) if (found := errors.open.pop((api, each), None)) is not None]
    if not repeated:
        return
    if any(code == CONCURRENT for _, code in repeated):
        scene.record_kept("TXN.8", exchange)
    refused = max((refused for refused, _ in repeated), key=lambda each: each.number)
    is_measured = refused.written_us is not None and exchange.connection is refused.connection
    if is_measured and exchange.is_after_answer:
        waited_us = exchange.received_us - refused.answered_us
        why = f"the client retries the request after only {waited_us / 1000} ms"
        scene.decide("TXN.17", waited_us >= BACK_OFF_US, exchange, why, refused)


def _check_abandoned(exchange: Exchange, errors: RetriableErrors, scene: Scene) -> None:
    """Decides TXN.8 for rejected requests that the client can no longer retry after this request.

    After a commit, the client can no longer retry any of the transaction's requests. After a rejected EndTxn or
    InitProducerId, it may only retry that request until it succeeds. The client may always abort.
    """
    api = exchange.api
    if api is None or not errors.open or api is ApiKey.PRODUCE:
        return
    is_end = api is ApiKey.END_TXN
    for key, (refused, code) in list(errors.open.items()):
        is_exclusive = key[0] in (ApiKey.END_TXN, ApiKey.INIT_PRODUCER_ID)
        if not is_end and not is_exclusive:
            continue
        if code == CONCURRENT and not is_abort(exchange) and knows_response(exchange, refused):
            why = f"the client sends {api.kafka_name} after {key[0].kafka_name} failed with CONCURRENT_TRANSACTIONS"
            scene.record_broken("TXN.8", exchange, why, refused)
        if is_end or knows_response(exchange, refused):
            del errors.open[key]


def on_init_producer_id(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, InitProducerIdRequest)
    if request.transactional_id is None:
        return
    producer = scene.state(Producer, request.transactional_id)
    _check_retry(
        exchange, scene.state(RetriableErrors, exchange.connection.similarity, request.transactional_id), scene
    )
    for code, (refused, times) in list(producer.fatal_errors.items()):
        if knows_response(exchange, refused) and exchange.connection.similarity == refused.connection.similarity:
            producer.fatal_errors[code] = refused, times + 1
            if times >= MAX_REPEATS:
                why = f"the client sends InitProducerId {times + 1} times after {ErrorCode(code).name}"
                scene.record_broken(FATAL_INITS[code], exchange, why, refused)
    pair = request.producer_id, request.producer_epoch
    open_ = scene.state(OngoingTransaction, request.transactional_id, *pair)
    if open_.unmapped_response is not None and knows_response(exchange, open_.unmapped_response):
        scene.record_kept("TXN.16", exchange)
        open_.unmapped_response = None
    if open_.invalid_epoch is not None and knows_response(exchange, open_.invalid_epoch):
        scene.record_kept("TXN.7", exchange)
        open_.invalid_epoch = None


def on_produce(exchange: Exchange, scene: Scene) -> None:
    claimed = claim(exchange)
    if claimed is None:
        return
    name, pair = claimed
    open_ = scene.state(OngoingTransaction, name, *pair)
    if exchange.version < TV2_PRODUCE:
        # AddPartitionsToTxn contains topic names, so names are compared. A topic that was deleted and created again
        # therefore also matches.
        places = [(batch.topic.name, batch.partition) for batch in exchange.batches]
        missing = [place for place in places if place not in open_.partitions]
        why = f"AddPartitionsToTxn has not succeeded for {'-'.join(map(str, missing[0]))}" if missing else ""
        scene.decide("TXN.2", not missing, exchange, why, open_.end_txn)
    ended = open_.end_txn
    if ended is not None and ended.status is AnswerStatus.WAITING and exchange.earliest_us > ended.received_us:
        scene.record_broken("TXN.4", exchange, "the client sends a batch of the transaction after its EndTxn", ended)
    elif ended is not None and isinstance(ended.answer, EndTxnResponse) and knows_response(exchange, ended):
        answer, request = ended.answer, ended.request
        if answer.error_code == 0 and answer.producer_id >= 0 and isinstance(request, EndTxnRequest):
            is_old = (answer.producer_id, answer.producer_epoch) != pair
            if is_old:
                rule = "TXN.4" if request.committed else "TXN.15"
                scene.record_broken(
                    rule,
                    exchange,
                    f"the client sends a batch with epoch {pair[1]} after its EndTxn was answered",
                    ended,
                )
    epoch = scene.state(EpochAfterAbort, name, *pair)
    if epoch.end_txn is not None and knows_response(exchange, epoch.end_txn):
        scene.record_kept("TXN.15", exchange)
        epoch.end_txn = None
    open_.unanswered_batches[exchange.number] = open_.last_produce = exchange


@dataclass(slots=True)
class EpochAfterAbort:
    """The producer id and epoch from a response to an EndTxn that aborts. `end_txn` is that EndTxn's exchange."""

    end_txn: Exchange | None = None


def on_produce_response(exchange: Exchange, scene: Scene) -> None:
    claimed = claim(exchange)
    if claimed is None:
        return
    name, pair = claimed
    open_ = scene.state(OngoingTransaction, name, *pair)
    open_.unanswered_batches.pop(exchange.number, None)
    errors = partition_errors(exchange)
    for batch in exchange.batches:
        code = errors.get(batch.place)
        key = (str(batch.topic), batch.partition, batch.header.base_sequence)
        if code in (0, E.DUPLICATE_SEQUENCE_NUMBER.value):
            open_.failed_batches.pop(key, None)
        elif code is not None:
            open_.failed_batches[key] = exchange
            if code == OLD_EPOCH:
                open_.invalid_epoch = exchange
    _note_errors(exchange, name, pair, set(errors.values()), scene)


def _note_errors(exchange: Exchange, name: str, pair: Pair, codes: set[int], scene: Scene) -> None:
    """Records a response's errors that affect the producer id and epoch."""
    open_ = scene.state(OngoingTransaction, name, *pair)
    if FENCED in codes:
        open_.fencing = exchange
        scene.record_kept("TXN.6", exchange)
    if NO_MAPPING in codes:
        open_.unmapped_response = exchange


def _note_retriable_error(exchange: Exchange, errors: RetriableErrors, code: int, subject: Hashable = None) -> None:
    """Records an error after which the client must retry."""
    if code in RETRIED and exchange.api is not None:
        errors.open[exchange.api, subject] = exchange, code


def on_transactional_response(exchange: Exchange, scene: Scene) -> None:
    claimed, answer, request = claim(exchange), exchange.answer, exchange.request
    if claimed is None:
        return
    name, pair = claimed
    open_ = scene.state(OngoingTransaction, name, *pair)
    errors = scene.state(RetriableErrors, name, *pair)
    codes: set[int] = set()
    if isinstance(answer, AddPartitionsToTxnResponse):
        for topic in answer.results_by_topic_v3_and_below:
            for partition in topic.results_by_partition:
                codes.add(partition.partition_error_code)
                _note_retriable_error(
                    exchange, errors, partition.partition_error_code, (topic.name, partition.partition_index)
                )
                if partition.partition_error_code == 0:
                    open_.partitions.add((topic.name, partition.partition_index))
    elif isinstance(answer, AddOffsetsToTxnResponse) and isinstance(request, AddOffsetsToTxnRequest):
        codes.add(answer.error_code)
        _note_retriable_error(exchange, errors, answer.error_code, request.group_id)
        if answer.error_code == 0:
            open_.groups.add(request.group_id)
    elif isinstance(answer, TxnOffsetCommitResponse) and isinstance(request, TxnOffsetCommitRequest):
        codes |= {partition.error_code for topic in answer.topics for partition in topic.partitions}
        for code in sorted(codes & RETRIED):
            _note_retriable_error(exchange, errors, code, request.group_id)
    _note_errors(exchange, name, pair, codes, scene)


def on_txn_offset_commit(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, TxnOffsetCommitRequest)
    open_ = scene.state(OngoingTransaction, request.transactional_id, request.producer_id, request.producer_epoch)
    if exchange.version < TV2_OFFSETS:
        why = f"AddOffsetsToTxn has not succeeded for group {request.group_id!r}"
        scene.decide("TXN.3", request.group_id in open_.groups, exchange, why, open_.end_txn)
    if exchange.version >= 3:
        has_member = bool(request.member_id) and request.generation_id_or_member_epoch >= 0
        members = scene.state(GroupMembers, request.group_id).members
        if has_member or members:
            why = (
                "the request has no member id or generation, although the group has members:"
                f" {', '.join(sorted(members)[:2])}"
            )
            scene.decide("TXN.12", has_member, exchange, why)


def on_end_txn(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, EndTxnRequest)
    open_ = scene.state(OngoingTransaction, request.transactional_id, request.producer_id, request.producer_epoch)
    flying = [each for each in open_.unanswered_batches.values() if each.connection.closed_us is None]
    if open_.last_produce is not None:
        why = f"{len(flying)} batches of the transaction have not been answered yet"
        scene.decide("TXN.4", not flying, exchange, why, *flying)
        if request.committed:
            known_failures = [each for each in open_.failed_batches.values() if knows_response(exchange, each)]
            scene.decide("TXN.5", not known_failures, exchange, "a batch of the transaction failed", *known_failures)
    if open_.invalid_epoch is not None and knows_response(exchange, open_.invalid_epoch):
        why = "the client commits after a batch failed with INVALID_PRODUCER_EPOCH"
        scene.decide("TXN.7", not request.committed, exchange, why, open_.invalid_epoch)
    open_.invalid_epoch = None
    before = open_.end_txn
    if before is not None and isinstance(before.request, EndTxnRequest) and open_.last_produce is None:
        is_same = before.request.committed == request.committed
        why = "the EndTxn requests the opposite result"
        if open_.refused_end_txn is before and knows_response(exchange, before):
            scene.decide("TXN.9", is_same, exchange, why, before)
        elif before.is_lost:
            scene.decide("TXN.10", is_same, exchange, why, before)
    open_.partitions.clear()
    open_.groups.clear()
    open_.failed_batches.clear()
    open_.unanswered_batches.clear()
    open_.last_produce, open_.end_txn = None, exchange


def on_end_txn_response(exchange: Exchange, scene: Scene) -> None:
    request, answer = exchange.request, exchange.answer
    assert isinstance(request, EndTxnRequest)
    if not isinstance(answer, EndTxnResponse):
        return
    pair = request.producer_id, request.producer_epoch
    producer = scene.state(Producer, request.transactional_id)
    if answer.error_code == 0 and answer.producer_id >= 0:
        given = answer.producer_id, answer.producer_epoch
        producer.issued.add(given)
        if not request.committed:
            scene.state(EpochAfterAbort, request.transactional_id, *given).end_txn = exchange
    if answer.error_code in COORDINATOR:
        scene.state(OngoingTransaction, request.transactional_id, *pair).refused_end_txn = exchange
    _note_retriable_error(exchange, scene.state(RetriableErrors, request.transactional_id, *pair), answer.error_code)
    _note_errors(exchange, request.transactional_id, pair, {answer.error_code}, scene)


def on_init_producer_id_response(exchange: Exchange, scene: Scene) -> None:
    request, answer = exchange.request, exchange.answer
    assert isinstance(request, InitProducerIdRequest)
    if request.transactional_id is None or not isinstance(answer, InitProducerIdResponse):
        return
    producer = scene.state(Producer, request.transactional_id)
    if answer.error_code == 0:
        producer.response = exchange
        producer.issued.add((answer.producer_id, answer.producer_epoch))
        producer.fatal_errors.clear()
    elif answer.error_code in FATAL_INITS:
        _, times = producer.fatal_errors.get(answer.error_code, (exchange, 0))
        producer.fatal_errors[answer.error_code] = exchange, times
        if times < MAX_REPEATS:
            scene.record_kept(FATAL_INITS[answer.error_code], exchange)
    else:
        _note_retriable_error(
            exchange,
            scene.state(RetriableErrors, exchange.connection.similarity, request.transactional_id),
            answer.error_code,
        )


FAMILY = Family(
    RULES,
    on_request={
        ApiKey.INIT_PRODUCER_ID: (on_init_producer_id,),
        ApiKey.PRODUCE: (on_transactional_request, on_produce),
        ApiKey.ADD_PARTITIONS_TO_TXN: (on_transactional_request,),
        ApiKey.ADD_OFFSETS_TO_TXN: (on_transactional_request,),
        ApiKey.TXN_OFFSET_COMMIT: (on_transactional_request, on_txn_offset_commit),
        ApiKey.END_TXN: (on_transactional_request, on_end_txn),
    },
    on_response={
        ApiKey.INIT_PRODUCER_ID: (on_init_producer_id_response,),
        ApiKey.PRODUCE: (on_produce_response,),
        ApiKey.ADD_PARTITIONS_TO_TXN: (on_transactional_response,),
        ApiKey.ADD_OFFSETS_TO_TXN: (on_transactional_response,),
        ApiKey.TXN_OFFSET_COMMIT: (on_transactional_response,),
        ApiKey.END_TXN: (on_end_txn_response,),
    },
)
