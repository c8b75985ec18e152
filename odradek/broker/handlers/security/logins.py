"""Handlers for logins: SaslHandshake, SaslAuthenticate, and requests about users' SCRAM credentials."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.metadata.records import Decision, require_one_batch
from odradek.broker.runtime.slices import Steps, done_in_slices, made_of_each, sliced
from odradek.broker.security.sasl.credential_changes import (
    Altered,
    Change,
    CredentialDeletion,
    CredentialUpsertion,
    Described,
    alter_credentials,
    describe_credentials,
)
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.alter_user_scram_credentials_response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from odradek.protocol.messages.describe_user_scram_credentials_response import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from odradek.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from odradek.protocol.messages.sasl_handshake_response import SaslHandshakeResponse

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.broker.metadata.image import MetadataImage
    from odradek.protocol.messages.alter_user_scram_credentials_request import AlterUserScramCredentialsRequest
    from odradek.protocol.messages.describe_user_scram_credentials_request import DescribeUserScramCredentialsRequest
    from odradek.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
    from odradek.protocol.messages.sasl_handshake_request import SaslHandshakeRequest

NO_EXCHANGE = "SaslAuthenticate request received after successful authentication"
MIN_LEVEL = 11  # minimum metadata.version (3.5-IV2); older versions of Kafka do not have these records


def sasl_handshake(
    request: SaslHandshakeRequest, context: RequestContext, broker: HandlerBroker
) -> SaslHandshakeResponse:
    """Handles SaslHandshake (key 17), versions 0-1, which chooses a SASL mechanism. In v1, the client sends the
    mechanism's tokens in SaslAuthenticate.

    Requests that begin an authentication are handled by `odradek.broker.security.sasl`. Only requests that cannot begin
    an authentication reach this handler: requests on a listener without SASL, and reauthentications within a second of
    the previous one. Needs no permission.
    """
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE.value)


def sasl_authenticate(
    request: SaslAuthenticateRequest, context: RequestContext, broker: HandlerBroker
) -> SaslAuthenticateResponse:
    """Handles SaslAuthenticate (key 36), versions 0-2, which carries one token of a SASL exchange.

    v1 adds the session lifetime. v2 is flexible. Requests that belong to an exchange are handled by
    `odradek.broker.security.sasl`, so only requests outside of an exchange reach this handler. Needs no permission.
    """
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE.value, error_message=NO_EXCHANGE)


@sliced
def describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, context: RequestContext, broker: HandlerBroker
) -> Steps[DescribeUserScramCredentialsResponse]:
    """Handles DescribeUserScramCredentials (key 50), version 0, which describes users' SCRAM credentials (KIP-554).

    The response contains neither salts nor keys. Needs DESCRIBE on the cluster. Source: docs/spec/security.md#s2-3.
    """
    context.require(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    users = [user.name for user in request.users or ()]
    found = describe_credentials(broker.metadata.image.scram_credentials, users)
    results = yield from made_of_each(found, _describe_result)
    return DescribeUserScramCredentialsResponse(error_message="", results=results)


def _describe_result(found: tuple[str, Described]) -> DescribeUserScramCredentialsResult:
    user, described = found
    if isinstance(described, KafkaError):
        return DescribeUserScramCredentialsResult(
            user=user, error_code=described.code.value, error_message=described.message
        )
    infos = [
        CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
        for mechanism, credential in sorted(described.items())
    ]
    return DescribeUserScramCredentialsResult(user=user, error_message=None, credential_infos=infos)


async def alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, context: RequestContext, broker: HandlerBroker
) -> AlterUserScramCredentialsResponse:
    """Handles AlterUserScramCredentials (key 51), version 0, which sets and removes users' SCRAM credentials (KIP-554).

    Needs ALTER on the cluster. The response is sent once the credentials are recorded. They apply to later logins, and
    open sessions continue. Source: docs/spec/security.md#s2-3.
    """
    context.require(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    changes = await done_in_slices(_changes(request))

    def turn(image: MetadataImage) -> Steps[Decision[Altered]]:
        if 0 < image.metadata_version < MIN_LEVEL:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "The current metadata version does not support SCRAM")
        results, records = yield from alter_credentials(image.scram_credentials, changes)
        require_one_batch(records)
        return Decision(results, tuple(records))

    results = await broker.metadata.submit(turn)
    entries = await done_in_slices(made_of_each(results.items(), _alter_result))
    return AlterUserScramCredentialsResponse(results=entries)


def _changes(request: AlterUserScramCredentialsRequest) -> Steps[list[Change]]:
    changes: list[Change] = []
    for each in request.deletions:
        changes.append(CredentialDeletion(each.name, each.mechanism))
        yield
    for new in request.upsertions:
        salt, password = bytes(new.salt), bytes(new.salted_password)
        changes.append(CredentialUpsertion(new.name, new.mechanism, new.iterations, salt, password))
        yield
    return changes


def _alter_result(result: tuple[str, KafkaError | None]) -> AlterUserScramCredentialsResult:
    user, error = result
    if error is None:
        return AlterUserScramCredentialsResult(user=user, error_message=None)
    return AlterUserScramCredentialsResult(user=user, error_code=error.code.value, error_message=error.message)
