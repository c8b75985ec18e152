"""Users that log in with SCRAM. A broker gets the salted password, and keeps only what follows from it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Mapping

from odradek.client.administration.asking import Asking
from odradek.client.common.errors import check
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.protocol.messages.alter_user_scram_credentials_response import AlterUserScramCredentialsResponse
from odradek.protocol.messages.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from odradek.protocol.messages.describe_user_scram_credentials_response import DescribeUserScramCredentialsResponse
from odradek.protocol.scram import MIN_ITERATIONS, ScramMechanism, salted_password

SALT_BYTES = 24
Credentials = Mapping[ScramMechanism, int]
"""The number of iterations, by mechanism."""


async def describe_users(asking: Asking, users: Iterable[str] | None = None) -> dict[str, Credentials]:
    """All of them with None; one without credentials is left out."""
    named = None if users is None else [UserName(name=name) for name in dict.fromkeys(users)]
    answer = await asking.any_broker(
        DescribeUserScramCredentialsRequest(users=named), DescribeUserScramCredentialsResponse
    )
    check(answer.error_code, "the SCRAM credentials", answer.error_message)
    found: dict[str, Credentials] = {}
    for each in answer.results:
        if each.error_code != ErrorCode.RESOURCE_NOT_FOUND.value:
            check(each.error_code, f"the user {each.user!r}", each.error_message)
            found[each.user] = {ScramMechanism(one.mechanism): one.iterations for one in each.credential_infos}
    return found


async def set_password(
    asking: Asking, user: str, password: str, mechanism: ScramMechanism, iterations: int = MIN_ITERATIONS
) -> None:
    salt = secrets.token_bytes(SALT_BYTES)
    salted = await asyncio.to_thread(salted_password, mechanism, password.encode(), salt, iterations)
    upsertion = ScramCredentialUpsertion(
        name=user, mechanism=mechanism.value, iterations=iterations, salt=salt, salted_password=salted
    )
    await _alter(asking, AlterUserScramCredentialsRequest(upsertions=[upsertion]))


async def delete_password(asking: Asking, user: str, mechanism: ScramMechanism) -> None:
    deletion = ScramCredentialDeletion(name=user, mechanism=mechanism.value)
    await _alter(asking, AlterUserScramCredentialsRequest(deletions=[deletion]))


async def _alter(asking: Asking, request: AlterUserScramCredentialsRequest) -> None:
    answer = await asking.any_broker(request, AlterUserScramCredentialsResponse)
    for result in answer.results:
        check(result.error_code, f"the user {result.user!r}", result.error_message)
