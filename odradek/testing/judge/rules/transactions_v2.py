"""TV2, 2PC and SHT: transaction.version 2, two-phase commit, and share acknowledgements in transactions."""

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
from odradek.testing.judge.exchanges import Exchange, knows
from odradek.testing.judge.rule import Family, M, ProtocolRule, S, undecided
from odradek.testing.judge.rules.produce import partition_errors
from odradek.testing.judge.rules.transactions import MOST_REPEATS, TV2_PRODUCE, Pair, Producer, claim, is_abort
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
    ProtocolRule("TV2.5", M, "If an abort is answered TRANSACTION_ABORTABLE, the client does not abort again in a loop",
        "an answer TRANSACTION_ABORTABLE to EndTxn(abort)"),
    ProtocolRule("TV2.6", M, "A repeated EndTxn has the epoch of the first attempt",
        "an EndTxn v5 after one whose answer was lost"),
    undecided("TV2.7", M,
        "If all batches failed, the client still aborts when the transaction may contain the partition",
        "a driver: traffic does not show where the next transaction begins"),
    ProtocolRule("TV2.8", S, "The client does not change between Produce v11 and v12 within a transaction",
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
    """Producer ids and epochs of a transactional id. `given` is the latest pair, which the response to `by` contained
    (EndTxn v5 or InitProducerId)."""

    given: Pair | None = None
    by: Exchange | None = None
    before: Pair | None = None
    ended: Exchange | None = None
    ongoing: Pair | None = None
    unauthorized: Exchange | None = None
    unauthorized_times: int = 0


@dataclass(slots=True)
class TransactionV2:
    """The transaction of a producer id and epoch."""

    first: Exchange | None = None  # the first Produce since the last EndTxn
    abortable: Exchange | None = None
    aborts_refused: int = 0
    given_by: Exchange | None = None  # the EndTxn whose response contained this pair
    begun: set[tuple[Topic, int]] = field(default_factory=set)


def asked(exchange: Exchange, scene: Scene) -> None:
    claimed = claim(exchange)
    if claimed is None:
        return
    name, pair = claimed
    judged = scene.at(JudgedTransactionalId, name)
    by = judged.by
    is_kept = isinstance(exchange.request, EndTxnRequest) and pair == judged.given
    is_own = pair == judged.given or (by is not None and exchange.connection is by.connection)
    if by is not None and judged.ongoing is not None and not is_own:
        return  # sent by the replaced instance, which cannot know of the newer one
    if by is not None and judged.ongoing is not None and (is_kept or knows(exchange, by)):
        what = exchange.api.kafka_name if exchange.api is not None else ""
        why = f"{what} of {pair}, but {judged.ongoing} is undecided and {judged.given} is the latest pair"
        scene.decide("2PC.2", is_kept, exchange, why, by)
        judged.ongoing = None
        return
    if by is None or by.api is not ApiKey.END_TXN or judged.given is None or judged.before is None:
        return
    if pair not in (judged.given, judged.before) or not knows(exchange, by):
        return
    rule = "TV2.2" if judged.given[0] == judged.before[0] else "TV2.9"
    scene.decide(rule, pair == judged.given, exchange, f"{pair}, but the answer to EndTxn had {judged.given}", by)


def produced(exchange: Exchange, scene: Scene) -> None:
    request, claimed = exchange.request, claim(exchange)
    assert isinstance(request, ProduceRequest)
    if claimed is None:
        return
    transaction = scene.at(TransactionV2, *claimed)
    is_v2 = exchange.version >= TV2_PRODUCE
    if is_v2:
        scene.kept("TV2.1", exchange)
    first = transaction.first
    if first is None:
        transaction.first = exchange
    else:
        why = f"Produce v{exchange.version} after v{first.version}"
        scene.decide("TV2.8", is_v2 == (first.version >= TV2_PRODUCE), exchange, why, first)
    for batch in exchange.batches:
        if transaction.given_by is not None and batch.place not in transaction.begun and not batch.continues:
            sequence = batch.header.base_sequence
            scene.decide(
                "TV2.3", sequence == 0, exchange, f"the first batch has sequence {sequence}", transaction.given_by
            )
        transaction.begun.add(batch.place)


def adds(exchange: Exchange, scene: Scene) -> None:
    claimed = claim(exchange)
    if claimed is None or exchange.api is None:
        return
    first = scene.at(TransactionV2, *claimed).first
    if first is not None and first.version >= TV2_PRODUCE:
        scene.broken("TV2.1", exchange, f"{exchange.api.kafka_name} after Produce v{first.version}", first)


def ends(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, EndTxnRequest)
    pair = request.producer_id, request.producer_epoch
    judged = scene.at(JudgedTransactionalId, request.transactional_id)
    transaction = scene.at(TransactionV2, request.transactional_id, pair)
    abortable, transaction.abortable = transaction.abortable, None
    if abortable is not None and (is_abort(exchange) or knows(exchange, abortable)):
        if not is_abort(abortable):
            why = "a commit after TRANSACTION_ABORTABLE"
            scene.decide("TV2.4", not request.committed, exchange, why, abortable)
        elif transaction.aborts_refused > MOST_REPEATS:
            times = transaction.aborts_refused
            scene.broken("TV2.5", exchange, f"another abort after {times} answers TRANSACTION_ABORTABLE", abortable)
    before = judged.ended
    is_repeated = before is not None and before.is_lost and transaction.first is None and exchange.version >= 5
    if before is not None and is_repeated and isinstance(before.request, EndTxnRequest):
        first = before.request.producer_id, before.request.producer_epoch
        if before.request.committed == request.committed:
            scene.decide("TV2.6", pair == first, exchange, f"EndTxn has {pair}, and had {first} at first", before)
    judged.ended, transaction.first = exchange, None


def produce_answered(exchange: Exchange, scene: Scene) -> None:
    claimed = claim(exchange)
    if claimed is not None and ABORTABLE in partition_errors(exchange).values():
        scene.at(TransactionV2, claimed[0], claimed[1]).abortable = exchange


def offsets_answered(exchange: Exchange, scene: Scene) -> None:
    claimed, answer = claim(exchange), exchange.answer
    if claimed is None or not isinstance(answer, TxnOffsetCommitResponse):
        return
    if ABORTABLE in {partition.error_code for topic in answer.topics for partition in topic.partitions}:
        scene.at(TransactionV2, claimed[0], claimed[1]).abortable = exchange


def end_answered(exchange: Exchange, scene: Scene) -> None:
    request, answer = exchange.request, exchange.answer
    assert isinstance(request, EndTxnRequest)
    if not isinstance(answer, EndTxnResponse):
        return
    pair = request.producer_id, request.producer_epoch
    judged = scene.at(JudgedTransactionalId, request.transactional_id)
    transaction = scene.at(TransactionV2, request.transactional_id, pair)
    if answer.error_code == ABORTABLE:
        transaction.abortable = exchange
        if not request.committed:
            transaction.aborts_refused += 1
            if transaction.aborts_refused <= MOST_REPEATS:
                scene.kept("TV2.5", exchange)
    elif answer.error_code == 0 and answer.producer_id >= 0:
        given = answer.producer_id, answer.producer_epoch
        judged.given, judged.before, judged.by = given, pair, exchange
        scene.at(TransactionV2, request.transactional_id, given).given_by = exchange


def inits(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, InitProducerIdRequest)
    if request.transactional_id is None:
        return
    judged = scene.at(JudgedTransactionalId, request.transactional_id)
    judged.ended = None
    if judged.unauthorized is not None and request.enable2_pc and knows(exchange, judged.unauthorized):
        judged.unauthorized_times += 1
        if judged.unauthorized_times > MOST_REPEATS:
            why = f"InitProducerId with Enable2Pc is sent {judged.unauthorized_times} more times"
            scene.broken("2PC.3", exchange, why, judged.unauthorized)


def init_answered(exchange: Exchange, scene: Scene) -> None:
    request, answer = exchange.request, exchange.answer
    assert isinstance(request, InitProducerIdRequest)
    if request.transactional_id is None or not isinstance(answer, InitProducerIdResponse):
        return
    judged = scene.at(JudgedTransactionalId, request.transactional_id)
    if answer.error_code == 0:
        judged.given, judged.before, judged.by = (answer.producer_id, answer.producer_epoch), None, exchange
        has_ongoing = request.keep_prepared_txn and answer.ongoing_txn_producer_id >= 0
        ongoing = answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch
        judged.ongoing = ongoing if has_ongoing else None
        judged.unauthorized, judged.unauthorized_times = None, 0
    elif answer.error_code == UNAUTHORIZED and request.enable2_pc:
        judged.unauthorized = exchange
        if judged.unauthorized_times <= MOST_REPEATS:
            scene.kept("2PC.3", exchange)


def acknowledges(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, TxnShareAcknowledgeRequest)
    judged = scene.at(JudgedTransactionalId, request.transactional_id)
    pair = request.producer_id, request.producer_epoch
    issued = scene.at(Producer, request.transactional_id).issued
    is_of_another = judged.by is not None and judged.by.api is ApiKey.INIT_PRODUCER_ID and pair in issued
    if judged.by is None or judged.given is None or (pair != judged.given and is_of_another):
        return  # sent by the replaced instance, which cannot know of the newer one
    if knows(exchange, judged.by):
        scene.decide("SHT.1", pair == judged.given, exchange, f"{pair}, but {judged.given} is open", judged.by)


FAMILY = Family(
    RULES,
    sent={
        ApiKey.INIT_PRODUCER_ID: (inits,),
        ApiKey.PRODUCE: (asked, produced),
        ApiKey.ADD_PARTITIONS_TO_TXN: (asked, adds),
        ApiKey.ADD_OFFSETS_TO_TXN: (asked, adds),
        ApiKey.TXN_OFFSET_COMMIT: (asked,),
        ApiKey.END_TXN: (asked, ends),
        ApiKey.TXN_SHARE_ACKNOWLEDGE: (acknowledges,),
    },
    answered={
        ApiKey.INIT_PRODUCER_ID: (init_answered,),
        ApiKey.PRODUCE: (produce_answered,),
        ApiKey.TXN_OFFSET_COMMIT: (offsets_answered,),
        ApiKey.END_TXN: (end_answered,),
    },
)
