"""A variant of `InProcessBroker` whose only listener requires SASL/PLAIN."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from odradek.broker.api.context import ConnectionInfo
from odradek.broker.security.sasl.setup import Accounts, SaslListeners, sasl_requests
from odradek.broker.security.tokens.decisions import token_rules
from odradek.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from odradek.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from odradek.protocol.messages.sasl_handshake_response import SaslHandshakeResponse
from tests.support.in_process_broker import InProcessBroker

LISTENER = "SECURE"
PASSWORD = "a password"


class InProcessSaslBroker(InProcessBroker):
    """A broker whose clients log in with SASL/PLAIN.

    principals  principals with an account, such as `User:alice`
    """

    listener = LISTENER

    def __init__(self, directory: Path, settings: Mapping[str, str], principals: Iterable[str]) -> None:
        accounts = " ".join(f'user_{_name(principal)}="{PASSWORD}"' for principal in principals)
        login_module = f"org.apache.kafka.common.security.plain.PlainLoginModule required {accounts};"
        super().__init__(
            directory,
            {
                "listeners": f"{LISTENER}://127.0.0.1:0",
                "listener.security.protocol.map": f"{LISTENER}:SASL_PLAINTEXT",
                "sasl.enabled.mechanisms": "PLAIN",
                f"listener.name.{LISTENER.lower()}.plain.sasl.jaas.config": login_module,
                **settings,
            },
        )

    async def _open(self) -> None:
        await super()._open()
        broker = self.broker
        accounts = Accounts(
            lambda: broker.metadata.image.scram_credentials,
            lambda: broker.metadata.image.delegation_tokens,
            token_rules(broker.config),
            lambda: broker.metadata.node.directory_id,
            broker.workers,
            broker.timers,
        )
        listeners = SaslListeners(broker.config, [LISTENER], accounts)
        self.requests = self._sasl = sasl_requests(
            broker.config.listener_settings(LISTENER),
            broker.config,
            lambda: listeners.offers(LISTENER),
            self.dispatcher,
            broker.clock,
            broker.timers,
            broker.steady_clock,
        )

    def connection(self, principal: str, host: str = "127.0.0.1") -> ConnectionInfo:
        connection = super().connection("User:ANONYMOUS", host)
        self._sasl.connected(connection)
        self.answer(connection, SaslHandshakeRequest(mechanism="PLAIN"), 1, SaslHandshakeResponse)
        token = f"\0{_name(principal)}\0{PASSWORD}".encode()
        self.answer(connection, SaslAuthenticateRequest(auth_bytes=token), 2, SaslAuthenticateResponse)
        assert connection.principal == principal
        return connection


def _name(principal: str) -> str:
    return principal.removeprefix("User:")
