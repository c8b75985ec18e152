"""As `error_replies`, for the APIs of ACLs, quotas, SCRAM credentials and delegation tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.struct import Message


def _create_acls(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.create_acls_response import AclCreationResult, CreateAclsResponse

    return CreateAclsResponse(
        results=[AclCreationResult(error_code=code, error_message=message) for _ in request.creations]
    )


def _delete_acls(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.delete_acls_response import DeleteAclsFilterResult, DeleteAclsResponse

    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(error_code=code, error_message=message) for _ in request.filters]
    )


def _describe_client_quotas(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.describe_client_quotas_response import DescribeClientQuotasResponse

    return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)


def _alter_client_quotas(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.alter_client_quotas_response import (
        AlterClientQuotasResponse,
        EntityData,
        EntryData,
    )

    return AlterClientQuotasResponse(
        entries=[
            EntryData(
                error_code=code,
                error_message=message,
                entity=[
                    EntityData(entity_type=each.entity_type, entity_name=each.entity_name) for each in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )


def _describe_user_scram_credentials(request: Any, version: int, code: int, message: str | None) -> Message:
    """Without the names of users, as Kafka."""
    from odradek.protocol.messages.describe_user_scram_credentials_response import (
        DescribeUserScramCredentialsResponse,
        DescribeUserScramCredentialsResult,
    )

    return DescribeUserScramCredentialsResponse(
        error_code=code,
        error_message=message,
        results=[
            DescribeUserScramCredentialsResult(error_code=code, error_message=message) for _ in request.users or ()
        ],
    )


def _alter_user_scram_credentials(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.alter_user_scram_credentials_response import (
        AlterUserScramCredentialsResponse,
        AlterUserScramCredentialsResult,
    )

    users = dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
    return AlterUserScramCredentialsResponse(
        results=[AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message) for user in users]
    )


def _renew_delegation_token(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.renew_delegation_token_response import RenewDelegationTokenResponse

    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=-1)


def _expire_delegation_token(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.expire_delegation_token_response import ExpireDelegationTokenResponse

    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=-1)


SECURITY_ERROR_REPLIES: Mapping[ApiKey, Callable[[Any, int, int, str | None], Message]] = {
    ApiKey.CREATE_ACLS: _create_acls,
    ApiKey.DELETE_ACLS: _delete_acls,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _describe_client_quotas,
    ApiKey.ALTER_CLIENT_QUOTAS: _alter_client_quotas,
    ApiKey.RENEW_DELEGATION_TOKEN: _renew_delegation_token,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _expire_delegation_token,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _describe_user_scram_credentials,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter_user_scram_credentials,
}
