"""PRODUCER_FENCED is younger than the transaction APIs: what their older versions are told in its place."""

from __future__ import annotations

from collections.abc import Mapping

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode

FENCED_SINCE: Mapping[ApiKey, int] = {  # the first version that knows the code; source: transactions-behaviour 2.0
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 2,
}


def code_for(api_key: ApiKey, version: int, code: ErrorCode) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED and version < FENCED_SINCE[api_key]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
