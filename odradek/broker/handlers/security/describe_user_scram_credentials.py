"""DescribeUserScramCredentials (key 50), version 0: the SCRAM credentials that users have (KIP-554).

Salts and keys are not told. Needs DESCRIBE on the cluster. Source: docs/spec/security.md#s2-3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.security.sasl.credential_changes import Described, describe_credentials
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.describe_user_scram_credentials_response import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.protocol.messages.describe_user_scram_credentials_request import DescribeUserScramCredentialsRequest


def describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, context: RequestContext, broker: Broker
) -> DescribeUserScramCredentialsResponse:
    context.require(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    users = [user.name for user in request.users or ()]
    found = describe_credentials(broker.metadata.image.scram_credentials, users)
    return DescribeUserScramCredentialsResponse(
        error_message="", results=[_result(user, described) for user, described in found]
    )


def _result(user: str, described: Described) -> DescribeUserScramCredentialsResult:
    if isinstance(described, KafkaError):
        return DescribeUserScramCredentialsResult(
            user=user, error_code=described.code.value, error_message=described.message
        )
    infos = [
        CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
        for mechanism, credential in sorted(described.items())
    ]
    return DescribeUserScramCredentialsResult(user=user, error_message=None, credential_infos=infos)
