"""Rules TV2, 2PC and SHT, about transaction.version 2, two-phase commit, and share group acknowledgements in
transactions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.produce_request import ProduceRequest
from odradek.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponse
from odradek.protocol.messages.txn_share_acknowledge_request import TxnShareAcknowledgeRequest
from odradek.testing.judge.exchanges import Exchange, knows_response
from odradek.testing.judge.rule import Family, M, ProtocolRule, S, undecided
from odradek.testing.judge.rules.produce import partition_errors
from odradek.testing.judge.rules.transactions import MAX_REPEATS, TV2_PRODUCE, Pair, Producer, claim, is_abort
from odradek.testing.judge.scene import Scene
from odradek.testing.judge.topics import Topic

ABORTABLE: Final = ErrorCode.TRANSACTION_ABORTABLE.value
UNAUTHORIZED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED.value
DRIVER: Final = "a driver: traffic does not show that a transaction is prepared"

# fmt: off
RULES = (
    ProtocolRule("TV2.1", M, "At TV2 the client sends no AddPartitionsToTxn and no AddOffsetsToTxn",
        "a transactional Produce v12 or later"),
    ProtocolRule("TV2.2", M, "After EndTxn v5 the client uses the producer id and epoch of the response",
        "a transactional request after an answer to EndTxn v5"),
    ProtocolRule("TV2.3", M, "Sequences restart at 0 with the epoch from the response to EndTxn",
        "a first batch with an epoch that an answer to EndTxn contained"),
    ProtocolRule("TV2.4", M, "After TRANSACTION_ABORTABLE the client aborts the transaction",
        "an EndTxn after TRANSACTION_ABORTABLE"),
    ProtocolRule("TV2.5", M, "If an abort fails with TRANSACTION_ABORTABLE, the client does not abort again in a loop",
        "an answer with TRANSACTION_ABORTABLE to EndTxn(abort)"),
    ProtocolRule("TV2.6", M, "A repeated EndTxn has the epoch of the first attempt",
        "an EndTxn v5 after one whose answer was lost"),
    undecided("TV2.7", M,
        "If all batches failed, the client still aborts when the transaction may contain the partition",
        "a driver: traffic does not show where the next transaction begins"),
    ProtocolRule("TV2.8", S, "The client does not switch between Produce v11 and v12 within a transaction",
        "a second Produce of a transaction"),
    ProtocolRule("TV2.9", M, "After the last epoch the client uses the new producer id from the response to EndTxn",
        "a transactional request after an answer to EndTxn with a new producer id"),
    undecided("2PC.1", M,
        "The client sends no Produce and no TxnOffsetCommit while the transaction is prepared", DRIVER),
    ProtocolRule("2PC.2", M,
        "After InitProducerId has kept a transaction, the client sends only EndTxn, with the latest id and epoch",
        "a transactional request after an answer to InitProducerId with an ongoing transaction"),
    ProtocolRule("2PC.3", M, "A refused Enable2Pc is fatal: the client does not repeat InitProducerId in a loop",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED to an InitProducerId with Enable2Pc"),
    ProtocolRule("SHT.1", M, "TxnShareAcknowledge has the producer id and epoch of the open transaction",
        "a TxnShareAcknowledge after an InitProducerId of its transactional id"),
    undecided("SHT.2", M, "A record acknowledged in a transaction is not acknowledged outside the transaction",
        "a final version of KIP-1289: in the draft, the answer does not show which records are pending"),
)
# fmt: on


@dataclass(slots=True)
class JudgedTransactionalId:
    """A transactional id's producer ids and epochs. `response` is a response to EndTxn v5 or InitProducerId, and
    `latest_pair` is the producer id and epoch in it."""

    latest_pair: Pair | None = None
    response: Exchange | None = None
    earlier_pair: Pair | None = None
    end_txn: Exchange | None = None
    undecided_pair: Pair | None = None
    refused_init: Exchange | None = None
    refused_inits: int = 0


@dataclass(slots=True)
class TransactionV2:
    """The current transaction of a producer id and epoch."""

    first_produce: Exchange | None = None  # the first Produce since the last EndTxn
    abortable_response: Exchange | None = None
    refused_aborts: int = 0
    end_txn: Exchange | None = None  # the EndTxn whose response contained this producer id and epoch
    partitions: set[tuple[Topic, int]] = field(default_factory=set)


def on_transactional_request(exchange: Exchange, scene: Scene) -> None:
    claimed = claim(exchange)
    if claimed is None:
        return
    name, pair = claimed
    judged = scene.state(JudgedTransactionalId, name)
    response = judged.response
    is_kept = isinstance(exchange.request, EndTxnRequest) and pair == judged.latest_pair
    is_own = pair == judged.latest_pair or (response is not None and exchange.connection is response.connection)
    if response is not None and judged.undecided_pair is not None and not is_own:
        return  # sent by the replaced instance, which may not yet know of its successor
    if response is not None and judged.undecided_pair is not None and (is_kept or knows_response(exchange, response)):
        what = exchange.api.kafka_name if exchange.api is not None else ""
        why = f"{what} of {pair}, but {judged.undecided_pair} is undecided and {judged.latest_pair} is the latest pair"
        scene.decide("2PC.2", is_kept, exchange, why, response)
        judged.undecided_pair = None
        return
    if (
        response is None
        or response.api is not ApiKey.END_TXN
        or judged.latest_pair is None
        or judged.earlier_pair is None
    ):
        return
    if pair not in (judged.latest_pair, judged.earlier_pair) or not knows_response(exchange, response):
        return
    rule = "TV2.2" if judged.latest_pair[0] == judged.earlier_pair[0] else "TV2.9"
    scene.decide(
        rule,
        pair == judged.latest_pair,
        exchange,
        f"the request has {pair}, but the answer to EndTxn had {judged.latest_pair}",
        response,
    )


def on_produce(exchange: Exchange, scene: Scene) -> None:
    request, claimed = exchange.request, claim(exchange)
    assert isinstance(request, ProduceRequest)
    if claimed is None:
        return
    transaction = scene.state(TransactionV2, *claimed)
    is_v2 = exchange.version >= TV2_PRODUCE
    if is_v2:
        scene.record_kept("TV2.1", exchange)
    first = transaction.first_produce
    if first is None:
        transaction.first_produce = exchange
    else:
        why = f"the client sends Produce v{exchange.version} after v{first.version}"
        scene.decide("TV2.8", is_v2 == (first.version >= TV2_PRODUCE), exchange, why, first)
    for batch in exchange.batches:
        if transaction.end_txn is not None and batch.place not in transaction.partitions and not batch.continues:
            sequence = batch.header.base_sequence
            scene.decide(
                "TV2.3", sequence == 0, exchange, f"the first batch has sequence {sequence}", transaction.end_txn
            )
        transaction.partitions.add(batch.place)


def on_add_to_txn(exchange: Exchange, scene: Scene) -> None:
    claimed = claim(exchange)
    if claimed is None or exchange.api is None:
        return
    first = scene.state(TransactionV2, *claimed).first_produce
    if first is not None and first.version >= TV2_PRODUCE:
        scene.record_broken(
            "TV2.1", exchange, f"the client sends {exchange.api.kafka_name} after Produce v{first.version}", first
        )


def on_end_txn(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, EndTxnRequest)
    pair = request.producer_id, request.producer_epoch
    judged = scene.state(JudgedTransactionalId, request.transactional_id)
    transaction = scene.state(TransactionV2, request.transactional_id, pair)
    abortable, transaction.abortable_response = transaction.abortable_response, None
    if abortable is not None and (is_abort(exchange) or knows_response(exchange, abortable)):
        if not is_abort(abortable):
            why = "the client commits after TRANSACTION_ABORTABLE"
            scene.decide("TV2.4", not request.committed, exchange, why, abortable)
        elif transaction.refused_aborts > MAX_REPEATS:
            times = transaction.refused_aborts
            scene.record_broken(
                "TV2.5", exchange, f"the client aborts again after {times} TRANSACTION_ABORTABLE answers", abortable
            )
    before = judged.end_txn
    is_repeated = before is not None and before.is_lost and transaction.first_produce is None and exchange.version >= 5
    if before is not None and is_repeated and isinstance(before.request, EndTxnRequest):
        first = before.request.producer_id, before.request.producer_epoch
        if before.request.committed == request.committed:
            scene.decide(
                "TV2.6",
                pair == first,
                exchange,
                f"the repeated EndTxn has {pair}, but the first attempt had {first}",
                before,
            )
    judged.end_txn, transaction.first_produce = exchange, None


def on_produce_response(exchange: Exchange, scene: Scene) -> None:
    claimed = claim(exchange)
    if claimed is not None and ABORTABLE in partition_errors(exchange).values():
        scene.state(TransactionV2, claimed[0], claimed[1]).abortable_response = exchange


def on_txn_offset_commit_response(exchange: Exchange, scene: Scene) -> None:
    claimed, answer = claim(exchange), exchange.answer
    if claimed is None or not isinstance(answer, TxnOffsetCommitResponse):
        return
    if ABORTABLE in {partition.error_code for topic in answer.topics for partition in topic.partitions}:
        scene.state(TransactionV2, claimed[0], claimed[1]).abortable_response = exchange


def on_end_txn_response(exchange: Exchange, scene: Scene) -> None:
    request, answer = exchange.request, exchange.answer
    assert isinstance(request, EndTxnRequest)
    if not isinstance(answer, EndTxnResponse):
        return
    pair = request.producer_id, request.producer_epoch
    judged = scene.state(JudgedTransactionalId, request.transactional_id)
    transaction = scene.state(TransactionV2, request.transactional_id, pair)
    if answer.error_code == ABORTABLE:
        transaction.abortable_response = exchange
        if not request.committed:
            transaction.refused_aborts += 1
            if transaction.refused_aborts <= MAX_REPEATS:
                scene.record_kept("TV2.5", exchange)
    elif answer.error_code == 0 and answer.producer_id >= 0:
        given = answer.producer_id, answer.producer_epoch
        judged.latest_pair, judged.earlier_pair, judged.response = given, pair, exchange
        scene.state(TransactionV2, request.transactional_id, given).end_txn = exchange


def on_init_producer_id(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, InitProducerIdRequest)
    if request.transactional_id is None:
        return
    judged = scene.state(JudgedTransactionalId, request.transactional_id)
    judged.end_txn = None
    if judged.refused_init is not None and request.enable2_pc and knows_response(exchange, judged.refused_init):
        judged.refused_inits += 1
        if judged.refused_inits > MAX_REPEATS:
            why = f"the client sends InitProducerId with Enable2Pc {judged.refused_inits} more times"
            scene.record_broken("2PC.3", exchange, why, judged.refused_init)


def on_init_producer_id_response(exchange: Exchange, scene: Scene) -> None:
    request, answer = exchange.request, exchange.answer
    assert isinstance(request, InitProducerIdRequest)
    if request.transactional_id is None or not isinstance(answer, InitProducerIdResponse):
        return
    judged = scene.state(JudgedTransactionalId, request.transactional_id)
    if answer.error_code == 0:
        judged.latest_pair, judged.earlier_pair, judged.response = (
            (answer.producer_id, answer.producer_epoch),
            None,
            exchange,
        )
        has_ongoing = request.keep_prepared_txn and answer.ongoing_txn_producer_id >= 0
        ongoing = answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch
        judged.undecided_pair = ongoing if has_ongoing else None
        judged.refused_init, judged.refused_inits = None, 0
    elif answer.error_code == UNAUTHORIZED and request.enable2_pc:
        judged.refused_init = exchange
        if judged.refused_inits <= MAX_REPEATS:
            scene.record_kept("2PC.3", exchange)


def on_txn_share_acknowledge(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, TxnShareAcknowledgeRequest)
    judged = scene.state(JudgedTransactionalId, request.transactional_id)
    pair = request.producer_id, request.producer_epoch
    issued = scene.state(Producer, request.transactional_id).issued
    is_of_another = judged.response is not None and judged.response.api is ApiKey.INIT_PRODUCER_ID and pair in issued
    if judged.response is None or judged.latest_pair is None or (pair != judged.latest_pair and is_of_another):
        return  # sent by the replaced instance, which may not yet know of its successor
    if knows_response(exchange, judged.response):
        scene.decide(
            "SHT.1",
            pair == judged.latest_pair,
            exchange,
            f"the request has {pair}, but the open transaction has {judged.latest_pair}",
            judged.response,
        )


FAMILY = Family(
    RULES,
    on_request={
        ApiKey.INIT_PRODUCER_ID: (on_init_producer_id,),
        ApiKey.PRODUCE: (on_transactional_request, on_produce),
        ApiKey.ADD_PARTITIONS_TO_TXN: (on_transactional_request, on_add_to_txn),
        ApiKey.ADD_OFFSETS_TO_TXN: (on_transactional_request, on_add_to_txn),
        ApiKey.TXN_OFFSET_COMMIT: (on_transactional_request,),
        ApiKey.END_TXN: (on_transactional_request, on_end_txn),
        ApiKey.TXN_SHARE_ACKNOWLEDGE: (on_txn_share_acknowledge,),
    },
    on_response={
        ApiKey.INIT_PRODUCER_ID: (on_init_producer_id_response,),
        ApiKey.PRODUCE: (on_produce_response,),
        ApiKey.TXN_OFFSET_COMMIT: (on_txn_offset_commit_response,),
        ApiKey.END_TXN: (on_end_txn_response,),
    },
)
