"""Tests presets for limits, rights and logins, and combined presets, with a real client."""

from __future__ import annotations

import asyncio
import time

import pytest
from confluent_kafka import KafkaError, Producer

from odradek.client import Admin, AuthenticationFailed, PreparedTxnState
from odradek.client import Producer as OwnProducer
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.storage.producer_state import INT32_MAX
from odradek.testing.sync import Cluster, Odradek, Refused
from tests.clients.test_control_presets import produce, read, transactional
from tests.clients.test_sasl import SETTINGS as SASL
from tests.support.batches import batch_by
from tests.support.requests import produce_request
from tests.support.wire import Wire

PATIENCE_S = 60
TWO_PHASE = {"transaction.two.phase.commit.enable": True}
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": True,
}


def test_sequences_begin_again_at_0_in_the_middle_of_a_batch(kafka: Cluster) -> None:
    facts = kafka.preset("sequence-wrap", records=2, sequences_left=1)
    assert facts["last_sequence"] == INT32_MAX - 1
    batch = batch_by(
        (facts["producer_id"], facts["producer_epoch"]),
        INT32_MAX,
        *(b"last", b"first", b"second"),
        key=None,
        at_ms=int(time.time() * 1000),
        transactional=False,
    )
    with Wire(kafka.bootstrap) as wire:
        answer = wire.ask(produce_request("orders", batch), 9, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE.value
    assert kafka.producers()[0]["last_sequence"] == 1
    assert [value for _, value in read(kafka, 5)] == [b"before the end"] * 2 + [b"last", b"first", b"second"]


def test_producers_get_ids_of_the_next_block(kafka: Cluster) -> None:
    facts = kafka.preset("producer-ids-nearly-used", ids_left=1)
    for _ in range(3):
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})
        assert produce(kafka, producer) is None
    first = facts["first_of_next_block"]
    assert sorted(each["producer_id"] for each in kafka.producers()) == [first - 1, first, first + 1]


async def test_a_kept_transaction_is_ended_by_an_owner_with_another_producer_id(odradek: Odradek) -> None:
    with odradek.cluster(settings=TWO_PHASE) as kafka:
        facts = kafka.preset("kept-epoch-nearly-exhausted", epochs_left=1)
        kept = PreparedTxnState(facts["kept_producer_id"], facts["kept_producer_epoch"])
        owners = set()
        for _ in range(3):
            async with OwnProducer(
                bootstrap_servers=kafka.bootstrap, transactional_id="t", two_phase_commit=True
            ) as producer:
                assert await producer.init_transactions(keep_prepared=True) is not None
                owners.add(kafka.requests(api="InitProducerId")[-1]["answer"]["producerId"])
                if len(owners) > 1:
                    await producer.complete_transaction(kept)
                    break
        assert owners - {facts["producer_id"]}
        assert len(await asyncio.to_thread(read, kafka, 1, isolation_level="read_committed")) == 1


def test_a_token_needs_a_key(kafka: Cluster) -> None:
    with pytest.raises(Refused, match=r"the cluster needs delegation\.token\.secret\.key"):
        kafka.preset("expiring-token")


def test_a_right_is_withdrawn_from_a_producer_that_works(odradek: Odradek) -> None:
    with pytest.raises(Refused, match=r"the cluster needs authorizer\.class\.name"):
        odradek.cluster(preset="rights-withdrawn")
    with odradek.cluster(settings=AUTHORIZER) as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        assert produce(kafka, producer) is None
        kafka.preset("rights-withdrawn", operation="WRITE")
        error = produce(kafka, producer)
        assert error is not None
        assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        assert len(read(kafka, 1)) == 1  # Other clients keep their connections.


async def test_a_token_is_valid_for_logins_until_it_expires() -> None:
    secret = {"delegation.token.secret.key": "secret"}
    with Odradek.start(**{name: str(value) for name, value in (SASL | secret).items()}) as odradek:
        kafka = odradek.default
        facts = kafka.preset("expiring-token", lives_ms=60_000)
        assert facts["owner"] == "User:alice"
        await log_in(kafka, facts["token_id"], facts["hmac"])
        kafka.clock.advance(61_000)
        with pytest.raises(AuthenticationFailed):
            await log_in(kafka, facts["token_id"], facts["hmac"])


async def log_in(kafka: Cluster, token_id: str, hmac: str) -> None:
    async with Admin(
        bootstrap_servers=kafka.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_username=token_id,
        sasl_password=hmac,
        sasl_extensions={"tokenauth": "true"},
    ) as admin:
        await admin.list_topics()


def test_commits_and_readers_survive_a_bad_day(kafka: Cluster) -> None:
    facts = kafka.preset("bad-day", seed=7)
    producer = transactional(kafka)
    producer.init_transactions(PATIENCE_S)
    rounds = 0
    until_s = time.monotonic() + PATIENCE_S
    while rounds < 10 or not all(each["hits"] for each in refusals(kafka, "Produce", "EndTxn")):
        assert time.monotonic() < until_s, refusals(kafka, "Produce", "EndTxn")
        producer.begin_transaction()
        producer.produce("orders", "a", partition=1)
        producer.commit_transaction(PATIENCE_S)
        rounds += 1
    producer = transactional(kafka)
    producer.init_transactions(PATIENCE_S)
    assert kafka.wait(transaction="t", state="Empty")["producer_id"] != facts["epoch-nearly-exhausted"]["producer_id"]
    found = read(kafka, rounds + 4, isolation_level="read_committed")
    assert sorted(value or b"" for _, value in found) == sorted(
        [b"committed"] * 2 + [b"before the end"] * 2 + [b"a"] * rounds
    )


def refusals(kafka: Cluster, *apis: str) -> list[dict[str, int]]:
    return [dict(each) for each in kafka.faults() if each["name"] in {f"bad-day {api}" for api in apis}]
