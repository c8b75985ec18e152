"""Logs HTTP clients in as users of the broker. The schema registry and the calls for records accept these logins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aiohttp import web

from odradek.broker.api.context import IPV4_IN_IPV6, ConnectionInfo
from odradek.broker.runtime.workers import in_thread
from odradek.broker.security.sasl.passwords import LoginRefused, PasswordUsers, basic_login
from odradek.broker.security.sasl.plain import NAME as PLAIN

if TYPE_CHECKING:
    from odradek.broker.broker import Broker
    from odradek.broker.security.sasl.mechanism import Mechanism

CHALLENGE = 'Basic realm="odradek"'
NO_CONNECTION = 0
USER: web.RequestKey[str] = web.RequestKey("user", str)  # the logged-in user


class HttpLogins:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._users = PasswordUsers(self._plain, lambda: broker.metadata.image.scram_credentials)

    async def user_of(self, authorization: str) -> str:
        """Returns the user whose name and password are in the Authorization header. Raises LoginRefused if the name or
        the password is wrong."""
        user, password = basic_login(authorization)
        now_ms = self._broker.clock.now_ms()
        if not await in_thread(self._broker.workers, lambda: self._users.knows(user, password, now_ms)):
            raise LoginRefused("The user or the password is wrong")
        return user

    def _plain(self) -> Sequence[Mechanism]:
        sasl = self._broker.sasl_listeners
        if sasl is None:
            return []
        offers = [sasl.offers(one.name) for one in self._broker.config.serving if one.name in sasl]
        return [offer[PLAIN].begin() for offer in offers if PLAIN in offer]


def client_of(request: web.Request, user: str | None = None) -> ConnectionInfo:
    """Returns the client that sent an HTTP request, including its address. The client's principal is `user`, or
    User:ANONYMOUS if `user` is None."""
    client = ConnectionInfo(NO_CONNECTION, (request.remote or "").removeprefix(IPV4_IN_IPV6), 0)
    if user is not None:
        client.principal = f"User:{user}"
    return client
