"""Scenarios about producers, namely Produce errors and transactions."""

from __future__ import annotations

from contextlib import suppress

from odradek.testing.suite.driver import ApplicationFailed, DrivenClient, Unimplemented
from odradek.testing.suite.scenarios.scenario import Scenario, refuse
from odradek.testing.suite.stage import JUDGED, TOPIC, ScenarioCluster, difference

PRODUCE_OF_TV2 = 12
PRODUCE_WITH_ABORTABLE = 11


def first_of_several_batches_fails(stage: ScenarioCluster) -> str | None:
    stage.topic()
    driver = stage.driver(idempotence="off")
    driver.run_command("produce", TOPIC, "0", "a")
    refuse(stage, "Produce", "NOT_LEADER_OR_FOLLOWER")
    driver.run_command("produce", TOPIC, "0", "b", "c", "d", "e")
    return difference(stage.committed(5), ["a", "b", "c", "d", "e"])


def retriable_errors_of_produce(stage: ScenarioCluster) -> str | None:
    stage.topic()
    driver = stage.driver()
    for error in ("KAFKA_STORAGE_ERROR", "NOT_ENOUGH_REPLICAS", "REQUEST_TIMED_OUT"):
        refuse(stage, "Produce", error)
        driver.run_command("produce", TOPIC, "0", error)
    return difference(stage.committed(3), ["KAFKA_STORAGE_ERROR", "NOT_ENOUGH_REPLICAS", "REQUEST_TIMED_OUT"])


def commit(driver: DrivenClient, value: str) -> None:
    """Commits one transaction that contains one record."""
    driver.run_command("begin")
    driver.run_command("produce", TOPIC, "0", value)
    driver.run_command("commit")


def empty_transaction(stage: ScenarioCluster) -> str | None:
    stage.topic()
    driver = stage.driver(transactional_id="t")
    driver.run_command("begin")
    driver.run_command("commit")
    commit(driver, "a")
    return difference(stage.committed(1), ["a"])


def last_transaction_is_still_ending(stage: ScenarioCluster) -> str | None:
    stage.topic()
    refuse(stage, "InitProducerId", "CONCURRENT_TRANSACTIONS", times=2)
    driver = stage.driver(transactional_id="t")
    commit(driver, "a")
    return difference(stage.committed(1), ["a"])


def only_batch_of_a_transaction_fails(stage: ScenarioCluster) -> str | None:
    stage.topic()
    driver = stage.driver(transactional_id="t")
    driver.run_command("begin")
    refuse(stage, "Produce", "INVALID_RECORD")
    try:
        driver.run_command("produce", TOPIC, "0", "refused")
    except ApplicationFailed:
        driver.run_command("abort")
    else:
        return "`produce` succeeded, although the batch was refused"
    if all(each["version"] < PRODUCE_OF_TV2 for each in stage.kafka.requests(api="Produce")):
        raise Unimplemented("transactions of version 2")
    commit(driver, "a")
    return difference(stage.committed(1), ["a"])


def prepared_transaction(stage: ScenarioCluster) -> str | None:
    stage.topic()
    driver = stage.driver(transactional_id="t")
    driver.run_command("set", "two_phase", "on")
    driver.run_command("begin")
    driver.run_command("produce", TOPIC, "0", "a")
    driver.run_command("prepare")
    before = len(stage.kafka.requests(api="Produce", client_id=JUDGED))
    try:
        driver.run_command("produce", TOPIC, "0", "b")
    except ApplicationFailed:
        driver.run_command("commit")
    else:
        return "`produce` succeeded in a prepared transaction"
    if len(stage.kafka.requests(api="Produce", client_id=JUDGED)) > before:
        return "the client sent a Produce in a prepared transaction"
    return difference(stage.committed(1), ["a"])


def refused_batch(stage: ScenarioCluster, error: str) -> None:
    """Sends three batches, of which the broker rejects the second. The application may receive an error for it."""
    stage.topic()
    driver = stage.driver()
    driver.run_command("produce", TOPIC, "0", "a")
    refuse(stage, "Produce", error)
    with suppress(ApplicationFailed):
        driver.run_command("produce", TOPIC, "0", "b")
    with suppress(ApplicationFailed):
        driver.run_command("produce", TOPIC, "0", "c")


def batch_that_is_a_duplicate(stage: ScenarioCluster) -> str | None:
    refused_batch(stage, "DUPLICATE_SEQUENCE_NUMBER")
    return None


def batch_that_is_too_large(stage: ScenarioCluster) -> str | None:
    refused_batch(stage, "MESSAGE_TOO_LARGE")
    return None


def aborts_after(stage: ScenarioCluster, api: str, error: str, since: int = 0) -> str | None:
    """Checks that the application can abort a transaction after an error and then commit its next transaction.

    since  the first Produce version that has this error
    """
    stage.topic()
    driver = stage.driver(transactional_id="t")
    driver.run_command("begin")
    driver.run_command("produce", TOPIC, "0", "a")
    (sent, *_) = stage.kafka.requests(api="Produce", client_id=JUDGED)
    if sent["version"] < since:
        raise Unimplemented(f"Produce v{since}")
    refuse(stage, api, error)
    try:
        driver.run_command("produce", TOPIC, "0", "b")
        driver.run_command("commit")
    except ApplicationFailed:
        driver.run_command("abort")
    else:
        return f"`commit` succeeded after {error} on {api}"
    commit(driver, "c")
    return difference(stage.committed(1), ["c"])


def epoch_that_is_invalid_on_produce(stage: ScenarioCluster) -> str | None:
    return aborts_after(stage, "Produce", "INVALID_PRODUCER_EPOCH")


def transaction_that_is_abortable(stage: ScenarioCluster) -> str | None:
    return aborts_after(stage, "Produce", "TRANSACTION_ABORTABLE", PRODUCE_WITH_ABORTABLE)


def fatal_init(stage: ScenarioCluster, error: str) -> str | None:
    stage.topic()
    refuse(stage, "InitProducerId", error)
    driver = stage.driver(transactional_id="t")
    with suppress(ApplicationFailed):
        driver.run_command("begin")
        return f"`begin` succeeded after {error} on InitProducerId"
    return None


def time_out_that_is_too_long(stage: ScenarioCluster) -> str | None:
    return fatal_init(stage, "INVALID_TRANSACTION_TIMEOUT")


def id_that_is_not_permitted(stage: ScenarioCluster) -> str | None:
    return fatal_init(stage, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")


def producer_that_is_fenced(stage: ScenarioCluster) -> str | None:
    stage.topic()
    driver = stage.driver(transactional_id="t")
    driver.run_command("begin")
    driver.run_command("produce", TOPIC, "0", "a")
    refuse(stage, "EndTxn", "PRODUCER_FENCED")
    with suppress(ApplicationFailed):
        driver.run_command("commit")
        return "`commit` succeeded after PRODUCER_FENCED"
    return None


SCENARIOS = (
    Scenario("PRD.6", first_of_several_batches_fails),
    Scenario("PRD.7", retriable_errors_of_produce),
    Scenario("TXN.8", last_transaction_is_still_ending),
    Scenario("TXN.11", empty_transaction),
    Scenario("TV2.7", only_batch_of_a_transaction_fails),
    Scenario("PRD.5", batch_that_is_too_large),
    Scenario("IDM.7", batch_that_is_a_duplicate),
    Scenario("TXN.6", producer_that_is_fenced),
    Scenario("TXN.7", epoch_that_is_invalid_on_produce),
    Scenario("TXN.14", time_out_that_is_too_long),
    Scenario("TXN.16", id_that_is_not_permitted),
    Scenario("TV2.4", transaction_that_is_abortable),
    Scenario("2PC.1", prepared_transaction, settings={"transaction.two.phase.commit.enable": "true"}),
)
