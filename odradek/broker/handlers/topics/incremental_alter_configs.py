"""IncrementalAlterConfigs (key 44), versions 0-1: sets, unsets and extends single settings (KIP-339).

v1: flexible. Needs ALTER_CONFIGS on the topic, the group or the cluster. Answered when the settings are in force.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.configuration.resources import Change
from odradek.broker.metadata.config_alteration import alter
from odradek.broker.metadata.config_changes import ResourceChanges, Result
from odradek.protocol.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.runtime.delayed import Deferred
    from odradek.protocol.messages.incremental_alter_configs_request import IncrementalAlterConfigsRequest


def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, context: RequestContext, broker: Broker
) -> Deferred[IncrementalAlterConfigsResponse]:
    resources = [
        ResourceChanges(
            resource.resource_type,
            resource.resource_name,
            [Change(config.name, config.config_operation, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]
    return alter(
        resources,
        context,
        broker.metadata,
        broker.config,
        broker.certificates,
        is_incremental=True,
        validate_only=request.validate_only,
        response_of=_response,
    )


def _response(results: list[Result]) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=0 if error is None else error.code.value,
                error_message=None if error is None else error.message,
                resource_type=resource_type,
                resource_name=resource_name,
            )
            for resource_type, resource_name, error in results
        ]
    )
