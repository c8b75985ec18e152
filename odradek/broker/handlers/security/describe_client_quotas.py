"""DescribeClientQuotas (key 48), versions 0-1: the client quotas that a filter selects (KIP-546).

v1: flexible. Needs DESCRIBE_CONFIGS on the cluster. Source: docs/spec/security.md#s4-1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.security.quotas.description import Component
from odradek.broker.security.quotas.description import describe_client_quotas as describe
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.messages.describe_client_quotas_response import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.protocol.messages.describe_client_quotas_request import DescribeClientQuotasRequest


def describe_client_quotas(
    request: DescribeClientQuotasRequest, context: RequestContext, broker: Broker
) -> DescribeClientQuotasResponse:
    context.require(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)
    components = [Component(each.entity_type, each.match_type, each.match) for each in request.components]
    return DescribeClientQuotasResponse(
        entries=[
            EntryData(
                entity=[EntityData(entity_type=entity_type, entity_name=name) for entity_type, name in entity],
                values=[ValueData(key=key, value=limit) for key, limit in limits.items()],
            )
            for entity, limits in describe(broker.metadata.image.client_quotas, components, strict=request.strict)
        ]
    )
