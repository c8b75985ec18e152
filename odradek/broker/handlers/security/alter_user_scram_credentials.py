"""AlterUserScramCredentials (key 51), version 0: sets and removes the SCRAM credentials of users (KIP-554).

Needs ALTER on the cluster. Answered when the credentials are recorded; the next login is judged by them, sessions that
are open go on. Source: docs/spec/security.md#s2-3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.metadata.decision import MAX_RECORDS, Decision
from odradek.broker.runtime.delayed import Deferred
from odradek.broker.security.sasl.credential_changes import Altered, Change, Deletion, Upsertion, alter_credentials
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.alter_user_scram_credentials_response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.metadata.image import MetadataImage
    from odradek.protocol.messages.alter_user_scram_credentials_request import AlterUserScramCredentialsRequest

LEAST_LEVEL = 11  # of metadata.version, 3.5-IV2: older Kafkas do not understand the records


def alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, context: RequestContext, broker: Broker
) -> Deferred[AlterUserScramCredentialsResponse]:
    context.require(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    changes: list[Change] = [Deletion(each.name, each.mechanism) for each in request.deletions]
    changes += [
        Upsertion(each.name, each.mechanism, each.iterations, bytes(each.salt), bytes(each.salted_password))
        for each in request.upsertions
    ]
    answer: Deferred[AlterUserScramCredentialsResponse] = Deferred()

    def turn(image: MetadataImage) -> Decision[Altered]:
        if 0 < image.metadata_version < LEAST_LEVEL:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "The current metadata version does not support SCRAM")
        results, records = alter_credentials(image.scram_credentials, changes)
        if len(records) > MAX_RECORDS:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
        return Decision(results, tuple(records))

    def done(altered: Deferred[Altered]) -> None:
        try:
            results = altered.outcome()
        except KafkaError as error:
            answer.fail(error)
            return
        assert isinstance(results, dict)
        answer.resolve(AlterUserScramCredentialsResponse(results=[_result(*one) for one in results.items()]))

    broker.metadata.submit(turn).when_done(done)
    return answer


def _result(user: str, error: KafkaError | None) -> AlterUserScramCredentialsResult:
    if error is None:
        return AlterUserScramCredentialsResult(user=user, error_message=None)
    return AlterUserScramCredentialsResult(user=user, error_code=error.code.value, error_message=error.message)
