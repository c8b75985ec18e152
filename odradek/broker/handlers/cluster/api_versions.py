"""ApiVersions (key 18), versions 0-4: the APIs and features that are served.

v1: throttle time. v3: flexible, the client sends its name and version, the answer holds features. v4 (KIP-1022): may
list features whose lowest level is 0, which older clients refuse to read and therefore do not get.
`odradek.broker.api.dispatch` answers a version that is not served (KIP-511). Needs no permission.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from odradek.broker.api.context import RequestContext
from odradek.broker.api.served import SERVED
from odradek.broker.metadata.supported_features import SUPPORTED_FEATURES, acknowledges_in_transactions
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from odradek.broker.broker import Broker

SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def api_versions(request: ApiVersionsRequest, context: RequestContext, broker: Broker) -> ApiVersionsResponse:
    if context.api_version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not (SOFTWARE.fullmatch(name) and SOFTWARE.fullmatch(version)):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        context.connection.client_software_name = name
        context.connection.client_software_version = version
    image = broker.metadata.image
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key.value, min_version=served.min_version, max_version=served.max_version)
            for key, served in sorted(SERVED.items(), key=lambda row: row[0].value)
            if key is not ApiKey.TXN_SHARE_ACKNOWLEDGE or acknowledges_in_transactions(image.features)
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
            for name, (lowest, highest) in SUPPORTED_FEATURES.items()
            if lowest > 0 or context.api_version >= 4
        ],
        finalized_features_epoch=image.next_offset - 1,
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in image.features.items()
            if name in SUPPORTED_FEATURES
        ],
    )
