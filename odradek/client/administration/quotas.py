"""Client quotas: what users, client ids and addresses may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from odradek.client.administration.asking import Asking
from odradek.client.common.errors import check
from odradek.protocol.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from odradek.protocol.messages.alter_client_quotas_response import AlterClientQuotasResponse
from odradek.protocol.messages.describe_client_quotas_request import ComponentData, DescribeClientQuotasRequest
from odradek.protocol.messages.describe_client_quotas_response import DescribeClientQuotasResponse

EXACT, DEFAULT = 0, 1  # how a component of a filter matches

QuotaEntity = Mapping[str, str | None]
"""By type, which is `user`, `client-id` or `ip`; a name of None stands for the default of its type."""


@dataclass(frozen=True, slots=True)
class ClientQuota:
    """`limits` by name, as in `{"producer_byte_rate": 1048576.0}`."""

    entity: QuotaEntity
    limits: Mapping[str, float]


async def describe_quotas(asking: Asking, entity: QuotaEntity, *, strict: bool = False) -> list[ClientQuota]:
    """Of the entities that have these names, and no others if `strict`; of all with an empty mapping."""
    components = [
        ComponentData(entity_type=kind, match_type=DEFAULT if name is None else EXACT, match=name)
        for kind, name in entity.items()
    ]
    request = DescribeClientQuotasRequest(components=components, strict=strict)
    answer = await asking.any_broker(request, DescribeClientQuotasResponse)
    check(answer.error_code, "the client quotas", answer.error_message)
    return [
        ClientQuota(
            {each.entity_type: each.entity_name for each in entry.entity},
            {each.key: each.value for each in entry.values},
        )
        for entry in answer.entries or ()
    ]


async def alter_quotas(asking: Asking, entity: QuotaEntity, limits: Mapping[str, float | None]) -> None:
    """None removes a limit; those that are not named stay."""
    entry = EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[
            OpData(key=key, value=0.0 if limit is None else limit, remove=limit is None)
            for key, limit in limits.items()
        ],
    )
    answer = await asking.any_broker(AlterClientQuotasRequest(entries=[entry]), AlterClientQuotasResponse)
    for result in answer.entries:
        check(result.error_code, "the client quotas", result.error_message)
