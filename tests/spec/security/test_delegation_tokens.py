"""Tests how delegation tokens are created, renewed, expired and described (docs/spec/security.md#s2-6)."""

from __future__ import annotations

import base64
from collections.abc import Coroutine, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.api.context import ConnectionInfo, RequestContext
from odradek.broker.handlers.security.tokens import (
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)
from odradek.broker.metadata.token_expiry import TokenExpiry
from odradek.broker.runtime.waiting import Deferred, start_coroutine
from odradek.broker.security.sasl.mechanism import Challenge, TokenAccepted, TokenRefused, Verdict
from odradek.broker.security.sasl.scram import ScramExchange, TokenLogins, UsersOfImage
from odradek.broker.security.tokens.decisions import token_rules
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.create_delegation_token_request import CreatableRenewers, CreateDelegationTokenRequest
from odradek.protocol.messages.describe_delegation_token_request import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from odradek.protocol.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from odradek.protocol.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from odradek.protocol.scram import (
    ClientFirst,
    ScramMechanism,
    ServerFirst,
    auth_message,
    client_key,
    client_proof,
    salted_password,
)
from tests.support.clock import ManualTimers
from tests.support.fake_disk import FakeDisk
from tests.support.metadata import Running, config_with

DAY_MS = 86_400_000
SECRET = "what only brokers know"
Right = tuple[Operation, ResourceType, str]


class Scene:
    """A broker's metadata, and clients' requests about delegation tokens."""

    def __init__(self, *, secret: str | None = SECRET) -> None:
        settings = {"delegation_token_secret_key": secret} if secret else {}
        self.disk = FakeDisk()
        self.config = config_with(**settings)
        self.running = Running(self.disk, config=self.config)
        self.rights: set[Right] | None = None  # None lets every principal do everything.

    @property
    def now_ms(self) -> int:
        return self.running.clock.now_ms()

    def restart(self) -> None:
        self.running.stop()
        self.running = Running(self.disk, self.now_ms, config=self.config)

    def ask(self, call: Any, request: Any, principal: str, *, by_token: bool = False, version: int = 0) -> Any:
        """Returns the response, or the KafkaError that the dispatcher would translate into a response.

        version  0 chooses the newest version
        """
        version = version or request.MAX_VERSION
        connection = ConnectionInfo(1, "host", 1, principal=principal)
        connection.is_token_authenticated = by_token
        authorizer: Any = SimpleNamespace(allows=lambda _context, *right, **_: self._allows(right))
        context = RequestContext(ApiKey(request.API_KEY), version, 1, None, self.now_ms, connection, authorizer)
        broker: Any = SimpleNamespace(config=self.config, metadata=self.running.metadata)
        try:
            answer = call(request, context, broker)
            if isinstance(answer, Coroutine):
                answer = start_coroutine(answer)
        except KafkaError as error:
            return error
        response: Any = answer.outcome() if isinstance(answer, Deferred) else answer
        return decode(type(response), version, encode(response, version))

    def create(
        self,
        principal: str = "User:alice",
        *,
        lifetime_ms: int = -1,
        renewers: Iterable[str] = (),
        owner: tuple[str | None, str | None] = (None, None),
        by_token: bool = False,
    ) -> Any:
        request = CreateDelegationTokenRequest(
            owner_principal_type=owner[0],
            owner_principal_name=owner[1],
            renewers=[
                CreatableRenewers(principal_type=one.split(":")[0], principal_name=one.split(":")[1])
                for one in renewers
            ],
            max_lifetime_ms=lifetime_ms,
        )
        return self.ask(create_delegation_token, request, principal, by_token=by_token)

    def renew(self, token: Any, principal: str = "User:alice", period_ms: int = -1) -> Any:
        return self.ask(
            renew_delegation_token, RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=period_ms), principal
        )

    def expire(self, token: Any, principal: str = "User:alice", period_ms: int = -1) -> Any:
        request = ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=period_ms)
        return self.ask(expire_delegation_token, request, principal)

    def described(self, principal: str, owners: list[str] | None = None) -> set[str]:
        """Returns the ids of the tokens that the principal can see."""
        request = DescribeDelegationTokenRequest(
            owners=None
            if owners is None
            else [DescribeDelegationTokenOwner(principal_type="User", principal_name=owner) for owner in owners]
        )
        response = self.ask(describe_delegation_token, request, principal)
        assert response.error_code == 0
        return {token.token_id for token in response.tokens}

    def log_in(
        self, token: Any, password: bytes | None = None, mechanism: ScramMechanism = ScramMechanism.SHA_256
    ) -> Verdict:
        image = self.running.metadata.image
        rules = token_rules(self.config)
        assert rules is not None
        logins = TokenLogins(mechanism, rules, lambda: image.delegation_tokens)
        users = UsersOfImage(mechanism, lambda: image.scram_credentials, logins)
        exchange = ScramExchange(mechanism, users, b"key", lambda: "nonce")
        first = ClientFirst.make(token.token_id, "abc", extensions={"tokenauth": "true"})
        challenge = exchange.judge(first.text.encode(), self.now_ms)
        assert isinstance(challenge, Challenge)
        server = ServerFirst.parse(challenge.token)
        secret = base64.b64encode(token.hmac) if password is None else password
        salted = salted_password(mechanism, secret, server.salt, server.iterations)
        unproven = f"c=biws,r={server.nonce}"
        signed = auth_message(first.bare, server.text, unproven)
        proof = base64.b64encode(client_proof(mechanism, client_key(mechanism, salted), signed)).decode()
        return exchange.judge(f"{unproven},p={proof}".encode(), self.now_ms)

    def _allows(self, right: Any) -> bool:
        return self.rights is None or tuple(right[:3]) in self.rights


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.mark.parametrize("lifetime_ms", [-1, 0, 8 * DAY_MS, 10**15])
def test_scenario_097_a_token_for_oneself_lives_for_a_day_and_can_be_renewed_for_a_week(
    scene: Scene, lifetime_ms: int
) -> None:
    scene.rights = set()
    token = scene.create(lifetime_ms=lifetime_ms, renewers=["User:bob"])
    assert token.error_code == 0
    assert (token.principal_type, token.principal_name) == ("User", "alice")
    assert (token.token_requester_principal_type, token.token_requester_principal_name) == ("User", "alice")
    assert token.issue_timestamp_ms == scene.now_ms
    assert token.expiry_timestamp_ms == scene.now_ms + DAY_MS
    assert token.max_timestamp_ms == scene.now_ms + 7 * DAY_MS
    assert (len(token.token_id), len(token.hmac)) == (22, 64)


def test_scenario_097_a_shorter_life_bounds_the_expiry_too(scene: Scene) -> None:
    token = scene.create(lifetime_ms=3_600_000)
    assert token.expiry_timestamp_ms == token.max_timestamp_ms == scene.now_ms + 3_600_000


def test_scenario_098_a_token_for_another_owner_needs_a_right(scene: Scene) -> None:
    scene.rights = set()
    refused = scene.create("User:bob", owner=("User", "alice"))
    assert (refused.error_code, refused.principal_name, refused.hmac, refused.expiry_timestamp_ms) == (
        65,
        "alice",
        b"",
        -1,
    )
    scene.rights = {(Operation.CREATE_TOKENS, ResourceType.USER, "User:alice")}
    token = scene.create("User:bob", owner=("User", "alice"))
    assert (token.principal_name, token.token_requester_principal_name) == ("alice", "bob")
    assert scene.log_in(token) == TokenAccepted(
        "alice", _token_of(scene.log_in(token)), token.expiry_timestamp_ms, True
    )


def _token_of(verdict: Verdict) -> bytes:
    assert isinstance(verdict, TokenAccepted)
    return verdict.token


@pytest.mark.parametrize(("owner", "renewers"), [(("Group", "g"), []), ((None, "x"), []), ((None, None), ["Group:g"])])
def test_scenario_098_owners_and_renewers_are_users(scene: Scene, owner: Any, renewers: list[str]) -> None:
    assert scene.create(owner=owner, renewers=renewers).error_code == 67
    assert scene.described("User:alice") == set()


def test_scenario_099_renewing_is_for_the_owner_and_the_renewers(scene: Scene) -> None:
    token = scene.create(renewers=["User:bob"])
    unknown = SimpleNamespace(hmac=b"unknown")
    scene.running.clock.advance(1_000)
    for principal in ("User:alice", "User:bob"):
        for period_ms, expected_ms in ((-1, DAY_MS), (0, DAY_MS), (5_000, 5_000), (10**12, DAY_MS)):
            renewed = scene.renew(token, principal, period_ms)
            assert (renewed.error_code, renewed.expiry_timestamp_ms) == (0, scene.now_ms + expected_ms)
    assert scene.renew(token, "User:carol").error_code == 63
    assert scene.renew(unknown).error_code == 62
    while scene.now_ms + DAY_MS < token.max_timestamp_ms:
        scene.running.clock.advance(DAY_MS - 1)
        assert scene.renew(token).error_code == 0
    assert scene.renew(token).expiry_timestamp_ms == token.max_timestamp_ms
    scene.running.clock.advance(DAY_MS)
    assert scene.renew(token).error_code == 66
    assert scene.expire(token, period_ms=1).error_code == 66


def test_scenario_099_expiring_is_for_the_owner_and_the_renewers(scene: Scene) -> None:
    token = scene.create(renewers=["User:bob"])
    for principal in ("User:alice", "User:bob"):
        for period_ms, expires_ms in ((5_000, scene.now_ms + 5_000), (10**12, token.max_timestamp_ms)):
            answer = scene.expire(token, principal, period_ms)
            assert (answer.error_code, answer.expiry_timestamp_ms) == (0, expires_ms)
    assert scene.expire(token, "User:carol").error_code == 63
    now = scene.expire(token, "User:bob", 0)
    assert (now.error_code, now.expiry_timestamp_ms) == (0, scene.now_ms)
    assert scene.expire(SimpleNamespace(hmac=b"")).error_code == 62
    gone = scene.expire(token, "User:bob", -1)
    assert (gone.error_code, gone.expiry_timestamp_ms) == (0, scene.now_ms)
    assert scene.expire(token, "User:bob", -1).error_code == 62
    assert isinstance(scene.log_in(token), TokenRefused)


def test_scenario_100_users_see_their_own_tokens_and_with_permission_those_of_others(scene: Scene) -> None:
    scene.rights = {(Operation.CREATE_TOKENS, ResourceType.USER, "User:bob")}
    own = scene.create("User:alice").token_id
    to_renew = scene.create("User:bob", renewers=["User:alice"]).token_id
    asked_for = scene.create("User:alice", owner=("User", "bob")).token_id
    foreign = scene.create("User:carol").token_id
    assert scene.described("User:alice") == {own, to_renew, asked_for}
    assert scene.described("User:alice", []) == set()
    assert scene.described("User:alice", ["bob"]) == {to_renew, asked_for}
    assert scene.described("User:carol", ["alice", "bob"]) == set()
    scene.rights = {(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, foreign)}
    assert scene.described("User:alice") == {own, to_renew, asked_for, foreign}
    scene.rights = {(Operation.DESCRIBE_TOKENS, ResourceType.USER, "User:alice")}
    assert scene.described("User:carol") == {own, foreign}


def test_anonymous_clients_and_clients_with_a_token_cannot_create_tokens() -> None:
    for secret in (SECRET, None):  # The refusal is the same whether or not delegation tokens are enabled.
        scene = Scene(secret=secret)
        for principal, by_token in (("User:ANONYMOUS", False), ("User:alice", True)):
            refused = scene.create(principal, by_token=by_token)
            assert (refused.error_code, refused.principal_name) == (64, principal.removeprefix("User:"))
            assert refused.max_timestamp_ms == -1
            requests = (
                (renew_delegation_token, RenewDelegationTokenRequest()),
                (expire_delegation_token, ExpireDelegationTokenRequest()),
                (describe_delegation_token, DescribeDelegationTokenRequest()),
            )
            for call, request in requests:
                error = scene.ask(call, request, principal, by_token=by_token)
                assert error.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_without_a_secret_there_are_no_tokens() -> None:
    scene = Scene(secret=None)
    assert scene.create().error_code == 61
    error = scene.ask(describe_delegation_token, DescribeDelegationTokenRequest(), "User:alice")
    assert error.code is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_the_bearer_of_a_token_logs_in_as_its_owner_until_it_expires(scene: Scene, mechanism: ScramMechanism) -> None:
    token = scene.create()
    verdict = scene.log_in(token, mechanism=mechanism)
    assert isinstance(verdict, TokenAccepted)
    assert (verdict.name, verdict.expires_at_ms, verdict.by_token) == ("alice", token.expiry_timestamp_ms, True)
    assert isinstance(scene.log_in(token, b"guess"), TokenRefused)
    assert isinstance(scene.log_in(SimpleNamespace(token_id="alice", hmac=b"")), TokenRefused)
    scene.running.clock.advance(DAY_MS)
    assert isinstance(scene.log_in(token), TokenRefused)


def test_tokens_survive_a_restart_and_their_hmacs_are_not_on_the_disk(scene: Scene) -> None:
    token, ended = scene.create(renewers=["User:bob"]), scene.create()
    scene.renew(token, period_ms=1_000)
    scene.expire(ended)
    scene.restart()
    assert scene.described("User:alice") == {token.token_id}
    assert isinstance(scene.log_in(token), TokenAccepted)
    content = b"".join(
        bytes(scene.disk.read_bytes(f"/data/__cluster_metadata-0/{name}"))
        for name in scene.disk.list_directory("/data/__cluster_metadata-0")
    )
    assert token.token_id.encode() in content
    assert bytes(token.hmac) not in content
    assert SECRET.encode() not in content


def test_a_token_that_was_answered_survives_a_power_failure(scene: Scene) -> None:
    token = scene.create()
    for state in list(scene.disk.after_power_failure(seed=1)):
        scene.running = Running(state.disk, scene.now_ms, config=scene.config)
        assert isinstance(scene.log_in(token), TokenAccepted)


@pytest.mark.parametrize("restarts", [False, True])
def test_an_expired_token_that_is_still_there_is_neither_renewed_nor_extended(scene: Scene, restarts: bool) -> None:
    token = scene.create()
    scene.expire(token, period_ms=1_000)
    scene.running.clock.advance(1_000)
    if restarts:
        scene.restart()
    for answer in (scene.renew(token, period_ms=60_000), scene.expire(token, period_ms=60_000)):
        assert answer.error_code == 66
    assert isinstance(scene.log_in(token), TokenRefused)
    assert scene.expire(token, period_ms=-1).error_code == 0  # A negative period removes the token.


def test_tokens_that_have_expired_are_removed_from_time_to_time(scene: Scene) -> None:
    timers = ManualTimers(scene.running.clock)
    expiry = TokenExpiry(scene.running.metadata, scene.running.clock, timers, 60_000)
    short, long = scene.create(lifetime_ms=90_000).token_id, scene.create().token_id
    timers.advance(60_000)
    assert scene.described("User:alice") == {short, long}
    timers.advance(60_000)
    assert scene.described("User:alice") == {long}
    expiry.stop()
    assert timers.armed() == []


@pytest.mark.parametrize("version", [1, 2, 3])
def test_versions_before_3_do_not_name_the_requester_of_a_token(scene: Scene, version: int) -> None:
    requester = "alice" if version == 3 else ""
    create = CreateDelegationTokenRequest(max_lifetime_ms=-1)
    refused = scene.ask(create_delegation_token, create, "User:alice", by_token=True, version=version)
    assert (refused.error_code, refused.token_requester_principal_name) == (64, requester)
    token = scene.ask(create_delegation_token, create, "User:alice", version=version)
    assert (token.principal_name, token.token_requester_principal_name) == ("alice", requester)
    described = scene.ask(
        describe_delegation_token, DescribeDelegationTokenRequest(owners=None), "User:alice", version=version
    )
    (found,) = described.tokens
    assert (found.token_id, bytes(found.hmac)) == (token.token_id, bytes(token.hmac))
    assert found.token_requester_principal_name == requester
