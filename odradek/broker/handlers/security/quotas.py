"""Handlers for client quotas (KIP-546): DescribeClientQuotas and AlterClientQuotas. Source:
docs/spec/security.md#s4-1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.metadata.records import Decision, require_one_batch
from odradek.broker.network.listening import address_of, addresses_of_hosts
from odradek.broker.runtime.slices import Steps, done_in_slices, made_of_each
from odradek.broker.runtime.waiting import in_thread
from odradek.broker.security.quotas import decisions
from odradek.broker.security.quotas.decisions import FilterComponent, LimitChange, QuotaChange
from odradek.broker.security.quotas.entities import IP
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages import alter_client_quotas_response as altered
from odradek.protocol.messages import describe_client_quotas_response as described
from odradek.protocol.messages.alter_client_quotas_response import AlterClientQuotasResponse
from odradek.protocol.messages.describe_client_quotas_response import DescribeClientQuotasResponse

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.broker.metadata.image import MetadataImage
    from odradek.protocol.messages.alter_client_quotas_request import AlterClientQuotasRequest
    from odradek.protocol.messages.describe_client_quotas_request import DescribeClientQuotasRequest

Results = list[KafkaError | None]


def describe_client_quotas(
    request: DescribeClientQuotasRequest, context: RequestContext, broker: HandlerBroker
) -> DescribeClientQuotasResponse:
    """Handles DescribeClientQuotas (key 48), versions 0-1, which returns the client quotas that match a filter.

    v1 is flexible. Needs DESCRIBE_CONFIGS on the cluster.
    """
    context.require(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)
    components = [FilterComponent(each.entity_type, each.match_type, each.match) for each in request.components]
    return DescribeClientQuotasResponse(
        entries=[
            described.EntryData(
                entity=[described.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[described.ValueData(key=key, value=limit) for key, limit in limits.items()],
            )
            for entity, limits in decisions.describe_client_quotas(
                broker.metadata.image.client_quotas, components, strict=request.strict
            )
        ]
    )


async def alter_client_quotas(
    request: AlterClientQuotasRequest, context: RequestContext, broker: HandlerBroker
) -> AlterClientQuotasResponse:
    """Handles AlterClientQuotas (key 49), versions 0-1, which sets and removes limits for users, client ids and
    addresses.

    v1 is flexible. Needs ALTER_CONFIGS on the cluster. The response is sent once the limits are recorded and in effect.
    Before that, host names are resolved in a thread.
    """
    context.require(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)
    changes, hosts = await done_in_slices(_changes(request))
    if hosts:
        addresses = await in_thread(broker.workers, lambda: addresses_of_hosts(hosts))
        broker.host_addresses.update(addresses)
        hosts -= addresses.keys()

    def turn(image: MetadataImage) -> Steps[Decision[Results]]:
        results, records = yield from decisions.alter_client_quotas(
            image.client_quotas, changes, lambda address: address not in hosts
        )
        require_one_batch(records)
        return Decision(results) if request.validate_only else Decision(results, tuple(records))

    results = await broker.metadata.submit(turn)
    entries = await done_in_slices(made_of_each(zip(changes, results, strict=True), _result))
    return AlterClientQuotasResponse(entries=entries)


def _changes(request: AlterClientQuotasRequest) -> Steps[tuple[list[QuotaChange], set[str]]]:
    """Returns the changes, and the host names in the changes, which must be resolved to addresses."""
    changes: list[QuotaChange] = []
    hosts: set[str] = set()
    for entry in request.entries:
        named = [(each.entity_type, each.entity_name) for each in entry.entity]
        limits = [LimitChange(op.key, None if op.remove else op.value) for op in entry.ops]
        changes.append(QuotaChange(named, limits))
        hosts.update(name for kind, name in named if kind == IP and name and address_of(name) is None)
        yield
    return changes, hosts


def _result(decided: tuple[QuotaChange, KafkaError | None]) -> altered.EntryData:
    change, error = decided
    return altered.EntryData(
        error_code=0 if error is None else error.code.value,
        error_message=None if error is None else error.message,
        entity=[altered.EntityData(entity_type=kind, entity_name=name) for kind, name in change.named],
    )
