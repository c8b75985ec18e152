"""AlterClientQuotas (key 49), versions 0-1: sets and removes limits of users, client ids and addresses (KIP-546).

v1: flexible. Needs ALTER_CONFIGS on the cluster. Answered when the limits are recorded and in force. Names of hosts
are looked up in a thread first. Source: docs/spec/security.md#s4-1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.metadata.decision import MAX_RECORDS, Decision
from odradek.broker.network.host_names import address_of, addresses_of_hosts
from odradek.broker.runtime.delayed import Deferred
from odradek.broker.security.quotas.alteration import LimitChange, QuotaChange
from odradek.broker.security.quotas.alteration import alter_client_quotas as decide
from odradek.broker.security.quotas.entities import IP
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.alter_client_quotas_response import AlterClientQuotasResponse, EntityData, EntryData

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.metadata.image import MetadataImage
    from odradek.broker.runtime.workers import JobResult
    from odradek.protocol.messages.alter_client_quotas_request import AlterClientQuotasRequest

Results = list[KafkaError | None]


def alter_client_quotas(
    request: AlterClientQuotasRequest, context: RequestContext, broker: Broker
) -> Deferred[AlterClientQuotasResponse]:
    context.require(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)
    changes = [
        QuotaChange(
            [(each.entity_type, each.entity_name) for each in entry.entity],
            [LimitChange(op.key, None if op.remove else op.value) for op in entry.ops],
        )
        for entry in request.entries
    ]
    answer: Deferred[AlterClientQuotasResponse] = Deferred()

    def submit(unknown: frozenset[str]) -> None:
        def turn(image: MetadataImage) -> Decision[Results]:
            results, records = decide(image.client_quotas, changes, lambda address: address not in unknown)
            if len(records) > MAX_RECORDS:
                raise KafkaError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
            return Decision(results) if request.validate_only else Decision(results, tuple(records))

        broker.metadata.submit(turn).when_done(done)

    def done(altered: Deferred[Results]) -> None:
        try:
            results = altered.outcome()
        except KafkaError as error:
            answer.fail(error)
            return
        assert isinstance(results, list)
        answer.resolve(
            AlterClientQuotasResponse(
                entries=[_result(change, error) for change, error in zip(changes, results, strict=True)]
            )
        )

    def looked_up(outcome: JobResult[dict[str, tuple[str, ...]]]) -> None:
        addresses = outcome.result()
        broker.host_addresses.update(addresses)
        submit(frozenset(hosts - addresses.keys()))

    named = {name for change in changes for kind, name in change.named if kind == IP and name}
    hosts = {name for name in named if address_of(name) is None}
    if hosts:
        broker.workers.run(lambda: addresses_of_hosts(hosts), looked_up)
    else:
        submit(frozenset())
    return answer


def _result(change: QuotaChange, error: KafkaError | None) -> EntryData:
    return EntryData(
        error_code=0 if error is None else error.code.value,
        error_message=None if error is None else error.message,
        entity=[EntityData(entity_type=entity_type, entity_name=name) for entity_type, name in change.named],
    )
