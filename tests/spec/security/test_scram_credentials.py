"""Tests the records of SCRAM credentials and the APIs that alter and describe them (docs/spec/security.md#s2-3)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.api.error_replies import error_reply
from odradek.broker.handlers.security.logins import alter_user_scram_credentials, describe_user_scram_credentials
from odradek.broker.metadata.files import BOOTSTRAP, bootstrap_snapshot
from odradek.broker.metadata.registration import first_features
from odradek.broker.runtime.waiting import start_deferred
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.protocol.messages.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from odradek.protocol.messages.user_scram_credential_record import UserScramCredentialRecord
from odradek.protocol.scram import ScramMechanism, client_key, server_key, stored_key
from tests.support.fake_disk import FakeDisk
from tests.support.metadata import DATA, Running

SALTED = b"salted password of 32 bytes ....."
EVERYBODY: Any = SimpleNamespace(require=lambda *_: None)


def upsert(name: str, mechanism: int = 1, iterations: int = 4096, **fields: bytes) -> ScramCredentialUpsertion:
    values = {"salt": b"salt", "salted_password": SALTED} | fields
    return ScramCredentialUpsertion(name=name, mechanism=mechanism, iterations=iterations, **values)


def delete(name: str, mechanism: int = 1) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


class Scene:
    """A broker's metadata on an in-memory disk."""

    def __init__(self) -> None:
        self.disk = FakeDisk()
        self.running = Running(self.disk)

    @property
    def broker(self) -> Any:
        return SimpleNamespace(metadata=self.running.metadata)

    def alter(self, *changes: ScramCredentialUpsertion | ScramCredentialDeletion) -> dict[str, int]:
        request = AlterUserScramCredentialsRequest(
            deletions=[one for one in changes if isinstance(one, ScramCredentialDeletion)],
            upsertions=[one for one in changes if isinstance(one, ScramCredentialUpsertion)],
        )
        response = start_deferred(alter_user_scram_credentials(request, EVERYBODY, self.broker)).outcome()
        assert len({result.user for result in response.results}) == len(response.results)
        return {result.user: result.error_code for result in response.results}

    def describe(self, *users: str) -> dict[str, Any]:
        """Returns each user's credentials as (mechanism, iterations), or an error code."""
        request = DescribeUserScramCredentialsRequest(users=[UserName(name=user) for user in users])
        response: Any = describe_user_scram_credentials(request, EVERYBODY, self.broker)
        assert (response.error_code, response.error_message) == (0, "")
        return {
            result.user: result.error_code or [(info.mechanism, info.iterations) for info in result.credential_infos]
            for result in response.results
        }


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.mark.parametrize("users", [None, []])
def test_scenario_061_without_names_all_users_are_listed(scene: Scene, users: list[UserName] | None) -> None:
    scene.alter(upsert("bob", 2, 5000), upsert("alice"))
    scene.alter(upsert("alice", 2, 6000))
    request = DescribeUserScramCredentialsRequest(users=users)
    response: Any = describe_user_scram_credentials(request, EVERYBODY, scene.broker)
    infos = {one.user: [(info.mechanism, info.iterations) for info in one.credential_infos] for one in response.results}
    assert infos == {"alice": [(1, 4096), (2, 6000)], "bob": [(2, 5000)]}


def test_scenario_062_names_that_are_unknown_or_repeated_have_errors_of_their_own(scene: Scene) -> None:
    scene.alter(upsert("alice"))
    assert scene.describe("alice", "nobody", "", "twice", "twice") == {
        "alice": [(1, 4096)],
        "nobody": 91,
        "": 91,
        "twice": 92,
    }


@pytest.mark.parametrize(("users", "count"), [([], 0), ([UserName(name="alice")], 1), (None, 0)])
def test_scenario_063_and_064_without_the_right_users_are_not_named(users: list[UserName] | None, count: int) -> None:
    request = DescribeUserScramCredentialsRequest(users=users)
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    reply: Any = error_reply(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, request, code, "no")
    assert reply.error_code == code.value
    assert [(result.user, result.error_code) for result in reply.results] == [("", code.value)] * count


def test_without_the_right_to_alter_each_user_is_refused() -> None:
    request = AlterUserScramCredentialsRequest(deletions=[delete("a")], upsertions=[upsert("b"), upsert("a")])
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    reply: Any = error_reply(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, request, code, "no")
    assert [(result.user, result.error_code) for result in reply.results] == [("a", code.value), ("b", code.value)]


@pytest.mark.parametrize(("iterations", "code"), [(4095, 93), (4096, 0), (16384, 0), (16385, 93), (0, 93), (-1, 93)])
def test_scenario_065_iterations_have_a_least_and_a_most(scene: Scene, iterations: int, code: int) -> None:
    assert scene.alter(upsert("alice", iterations=iterations)) == {"alice": code}


@pytest.mark.parametrize("mechanism", [0, 3, -1])
def test_scenario_066_an_unknown_mechanism_and_an_empty_name_are_refused(scene: Scene, mechanism: int) -> None:
    assert scene.alter(upsert("alice", mechanism), delete("bob", mechanism)) == {"alice": 33, "bob": 33}
    assert scene.alter(upsert("", mechanism)) == {"": 93}
    assert scene.alter(delete("", mechanism)) == {"": 93}


def test_scenario_067_a_missing_credential_cannot_be_deleted(scene: Scene) -> None:
    scene.alter(upsert("alice", 1))
    assert scene.alter(delete("alice", 2), delete("bob", 1)) == {"alice": 91, "bob": 91}
    assert scene.alter(delete("alice", 1)) == {"alice": 0}
    assert scene.alter(delete("alice", 1)) == {"alice": 91}
    assert scene.describe() == {}


@pytest.mark.parametrize(
    "changes",
    [
        (upsert("alice", 1), upsert("alice", 2)),
        (upsert("alice", 1), upsert("alice", 1)),
        (delete("alice", 1), upsert("alice", 2)),
        (delete("alice", 2), delete("alice", 1)),
        (upsert("alice", 1), upsert("alice", 1, iterations=1)),
    ],
)
def test_scenario_068_a_user_that_is_named_twice_is_refused_once(scene: Scene, changes: Any) -> None:
    scene.alter(upsert("alice", 1, 5000))
    assert scene.alter(*changes) == {"alice": 92}
    assert scene.describe("alice") == {"alice": [(1, 5000)]}


def test_scenario_069_valid_changes_are_applied_despite_refused_ones(scene: Scene) -> None:
    assert scene.alter(upsert("alice"), upsert("bob", iterations=1)) == {"alice": 0, "bob": 93}
    assert scene.describe() == {"alice": [(1, 4096)]}


def test_scenario_070_an_empty_salt_is_taken_and_an_empty_password_is_not(scene: Scene) -> None:
    assert scene.alter(upsert("alice", salt=b""), upsert("bob", salted_password=b"")) == {"alice": 0, "bob": -1}
    assert scene.describe() == {"alice": [(1, 4096)]}


def test_scenario_071_an_empty_request_gets_an_empty_response(scene: Scene) -> None:
    assert scene.alter() == {}


def test_a_credential_outlives_a_restart_with_keys_in_place_of_the_password(scene: Scene) -> None:
    scene.alter(upsert("alice", 2, 8192, salt=b"pepper"))
    scene.running.stop()
    scene.running = Running(scene.disk)
    credential = scene.running.metadata.image.scram_credentials.find("alice", 2)
    mechanism = ScramMechanism.SHA_512
    assert credential is not None
    assert (credential.salt, credential.iterations) == (b"pepper", 8192)
    assert credential.stored_key == stored_key(mechanism, client_key(mechanism, SALTED))
    assert credential.server_key == server_key(mechanism, SALTED)
    assert scene.alter(delete("alice", 2)) == {"alice": 0}
    scene.running.stop()
    scene.running = Running(scene.disk)
    assert scene.describe() == {}


def test_users_that_a_directory_was_formatted_with_are_there_at_the_first_start() -> None:
    """`kafka-storage format --add-scram` creates these users. If all listeners require SCRAM, nobody else can log in at
    first."""
    disk = FakeDisk()
    keys = {"stored_key": b"k", "server_key": b"v"}
    user = UserScramCredentialRecord(name="admin", mechanism=1, salt=b"s", iterations=4096, **keys)
    disk.make_directory(DATA)
    disk.replace(f"{DATA}/{BOOTSTRAP}", bootstrap_snapshot([*first_features(), user], 30, 1_000))
    credential = Running(disk).metadata.image.scram_credentials.find("admin", 1)
    assert credential is not None
    assert (credential.salt, credential.stored_key, credential.server_key) == (b"s", b"k", b"v")


def test_a_credential_that_was_answered_survives_a_power_failure(scene: Scene) -> None:
    scene.alter(upsert("alice"))
    for state in list(scene.disk.after_power_failure(seed=1)):
        scene.running = Running(state.disk)
        assert scene.describe() == {"alice": [(1, 4096)]}
