"""HANDLERS is the only list of what we serve: ApiVersions prints it, and a request that is not in it is not answered.

A handler lives in `broker/handlers/<api key in lower case>.py` as a function of the same name:

    def metadata(request: MetadataRequest, context: RequestContext, broker: Broker) -> MetadataResponse

and returns the response, a `Deferred` of it (parked), a coroutine (cold paths only: it costs a task), or `NO_RESPONSE`.
It is imported at the API's first request, so that starting up does not pay for it. It may raise `KafkaError` for
the whole request: `broker.error_replies` knows what that looks like in each API.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from protocol.api_keys import ApiKey


@dataclass(frozen=True, slots=True)
class Handler:
    """The versions that ApiVersions shows, which are those of Kafka 4.3.1.

    `served_from`: older versions are shown but disconnected (Kafka lists Produce 0-2 only for the sake of librdkafka).
    `keeps_frame`: the handler holds on to `records` views of the request after it returned, so the frame must be its own.
    """

    min_version: int
    max_version: int
    served_from: int = 0
    keeps_frame: bool = False

    def serves(self, version: int) -> bool:
        return max(self.min_version, self.served_from) <= version <= self.max_version


HANDLERS: Mapping[ApiKey, Handler] = {
    ApiKey.API_VERSIONS: Handler(0, 4),
}
