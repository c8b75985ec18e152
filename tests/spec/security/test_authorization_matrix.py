"""Tests that every API answers a principal without rights as Kafka does, and again after each grant.

matrix.json contains Kafka 4.3.1's answers. Source: docs/spec/security.md#s3-5, #s3-6. The cases run in order on one
broker with a SASL/PLAIN listener, as they did on Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from odradek.broker.api.served import SERVED
from tests.spec.security.matrix_scene import (
    ADMIN,
    CASES,
    NOBODY,
    SETTINGS,
    MatrixScene,
    Recorder,
    differences,
    errors_in,
    heeded,
)
from tests.support.in_process_sasl_broker import InProcessSaslBroker

Case = dict[str, Any]

# API keys that Odradek does not support: docs/compatibility.md, "Served APIs".
NOT_SERVED = {64, 71, 72, 80, 81}
CONTROLLER = {52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82}
ASKED = sorted(
    (case for case in CASES if case["key"] not in NOT_SERVED | CONTROLLER),
    key=lambda case: case["api"] == "DeleteShareGroupState",  # This API deletes state that other cases read.
)

# Intended differences by (API, case), in the form of `errors_in`. docs/compatibility.md explains them.
DEVIATIONS = {
    # Odradek reports an unknown topic id in the result for its partition. Kafka 4.3.1 fails the whole request.
    ("ShareFetch", "a known and an unknown topic id"): {
        "responses[].partitions[].errorCode": ["TOPIC_AUTHORIZATION_FAILED", "UNKNOWN_TOPIC_ID"]
    },
}
# Intended differences in single fields, in the form of `differences`.
OTHER_FIELDS = {
    # If a response names no other leader, Odradek sends -1 but Kafka sends 0.
    ("ShareFetch", "known topic id"): [".responses[].partitions[].currentLeader.leaderId: -1 instead of 0"],
    # A write never decreases the number of completed deliveries, as in Kafka 4.4 (docs/spec/share-groups.md#s8, 15).
    ("ReadShareGroupStateSummary", ""): [".results[].partitions[].deliveryCompleteCount: 0 instead of -1"],
    # Since Kafka 4.4 the response contains the interval for task offsets: docs/spec/streams-groups.md#s1-2.
    ("StreamsGroupHeartbeat", ""): [".taskOffsetIntervalMs: 60000 instead of 0"],
    # Odradek hides the id of a topic to which access is denied.
    ("AlterShareGroupOffsets", "empty group"): [".responses[].topicId: 'AAAAAAAAAAAAAAAAAAAAAA' instead of '$id(m-t)'"],
}
# The answers of these APIs list what exists on the broker, which differs between brokers, so only their errors are
# compared.
LISTS = {"ApiVersions", "DescribeAcls", "DescribeDelegationToken"}
# A client library in this process may have created the logger that the case describes.
LOGGERS = ("DescribeConfigs", "broker logger")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MatrixScene]:
    with (
        InProcessSaslBroker(tmp_path_factory.mktemp("matrix"), SETTINGS, (ADMIN, NOBODY)) as broker,
        Recorder() as audit,
    ):
        yield MatrixScene(broker, audit)


def name_of(case: Case) -> str:
    return f"{case['key']}-{case['api']}-{case['case']}"


def latest(case: Case) -> tuple[int, dict[str, Any]]:
    """Returns the highest version in the case, and the request in that version."""
    recorded = case["answers"][-1]
    return recorded["versions"][-1], recorded["request"]


@pytest.mark.parametrize("case", ASKED, ids=name_of)
def test_each_right_that_is_missing_or_granted_shows_as_in_kafka(scene: MatrixScene, case: Case) -> None:
    for recorded in case["answers"]:
        for version in recorded["versions"]:
            scene.set_up(case["api"], case["case"])
            answer = scene.ask(case["key"], version, recorded["request"])
            if "$timeout" in recorded["denied"]:  # Kafka never answers this request.
                assert errors_in(answer) == {"errorCode": ["CLUSTER_AUTHORIZATION_FAILED"]}
                continue
            assert errors_in(answer) == recorded["errors"]
            if case["api"] not in LISTS:
                assert list(differences(recorded["denied"], answer)) == []
    assert scene.audit.checks(NOBODY) == heeded(case["checks"])
    try:
        for step in case.get("after", ()):
            scene.grant(*step["grant"])
            check_after(step, case, scene)
    finally:
        scene.revoke_all()


def check_after(step: Case, case: Case, scene: MatrixScene) -> None:
    scene.set_up(case["api"], case["case"])
    answer = scene.ask(case["key"], step["version"], latest(case)[1])
    if (deviation := DEVIATIONS.get((case["api"], case["case"]))) is not None:
        assert errors_in(answer) == deviation
        return
    assert errors_in(answer) == step["errors"]
    if "$long" not in step["answer"] and case["api"] not in LISTS and (case["api"], case["case"]) != LOGGERS:
        known = OTHER_FIELDS.get((case["api"], case["case"]), [])
        assert [each for each in differences(step["answer"], answer) if each not in known] == []
    if isinstance(step["checks"], list):
        assert scene.audit.checks(NOBODY) == heeded(step["checks"])


def denials(errors: dict[str, list[str]]) -> list[str]:
    return [code for codes in errors.values() for code in codes if code.endswith("AUTHORIZATION_FAILED")]


# The operations, by API, that are required even if the principal has the right to create the resource.
NOT_REPLACED = {"Metadata": {"DESCRIBE"}, "StreamsGroupHeartbeat": {"READ", "DESCRIBE"}}
# Resource names in `alternatives` that mean any resource.
ANY_OF = {"<any>": "some-topic", "<each>": "m-g"}


@pytest.mark.parametrize("case", [case for case in ASKED if case.get("alternatives")], ids=name_of)
def test_an_alternative_permission_is_sufficient(scene: MatrixScene, case: Case) -> None:
    try:
        for kind, name, operation in case["alternatives"]:
            scene.grant(kind, ANY_OF.get(name, name), operation)
        for kind, name, operation in case["required"]:
            if operation in NOT_REPLACED.get(case["api"], ()):
                scene.grant(kind, name, operation)
        scene.set_up(case["api"], case["case"])
        answer = scene.ask(case["key"], *latest(case))
        assert denials(errors_in(answer)) == denials(case["after"][-1]["errors"])
    finally:
        scene.revoke_all()


def test_a_user_sees_delegation_tokens_that_it_owns_or_has_requested(scene: MatrixScene) -> None:
    fields: dict[str, Any] = {"renewers": [], "maxLifetimeMs": 100_000}
    try:
        scene.grant("User", "User:alice", "CREATE_TOKENS")
        for owner in ({}, {"ownerPrincipalType": "User", "ownerPrincipalName": "alice"}):
            assert scene.ask(38, 3, fields | owner)["errorCode"] == 0
    finally:
        scene.revoke_all()
    assert scene.admin("CreateDelegationToken", 3, **fields)["errorCode"] == 0
    tokens = scene.ask(41, 3, {"owners": None})["tokens"]
    assert {each["principalName"] for each in tokens} == {"nobody", "alice"}
    assert {each["tokenRequesterPrincipalName"] for each in tokens} == {"nobody"}


def test_every_case_is_tested_or_belongs_to_an_unsupported_api() -> None:
    served = {key.value for key in SERVED}
    assert {case["key"] for case in ASKED} <= served
    assert NOT_SERVED.isdisjoint(served)
