"""A minimal broker that answers each request with bytes from the test, on a real socket."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import decode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.frames import read_request_header, response_chunks
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.protocol.struct import Message

M = TypeVar("M", bound=Message)

NEWEST_METADATA = 9


@dataclass
class Request:
    api_key: int
    api_version: int
    correlation_id: int
    body: bytes = b""

    def read(self, kind: type[M]) -> M:
        return decode(kind, self.api_version, self.body)

    def answer(self, message: Message, version: int | None = None) -> bytes:
        version = self.api_version if version is None else version
        return b"".join(response_chunks(self.api_key, version, self.correlation_id, message))


Answers = Callable[[Request], bytes | None]
"""Returns the bytes to write in response to a request, or None to close the connection. The bytes can be empty."""


def usual(request: Request) -> bytes | None:
    """Answers like a broker that supports a few APIs and has no topics."""
    if request.api_key == ApiKey.API_VERSIONS.value:
        return request.answer(versions())
    return request.answer(MetadataResponse(cluster_id=str(request.correlation_id)))


def versions(newest_metadata: int = NEWEST_METADATA) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=ApiKey.API_VERSIONS.value, min_version=0, max_version=4),
            ApiVersion(api_key=ApiKey.METADATA.value, min_version=0, max_version=newest_metadata),
            ApiVersion(api_key=ApiKey.FIND_COORDINATOR.value, min_version=0, max_version=3),
        ]
    )


def of_an_older_broker(request: Request) -> bytes | None:
    """Answers like an old broker that does not support the newest version of ApiVersions. Like Kafka, it answers with
    UNSUPPORTED_VERSION in version 0 of the response."""
    if request.api_key == ApiKey.API_VERSIONS.value and request.api_version == ApiVersionsRequest.MAX_VERSION:
        return request.answer(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION.value), version=0)
    return usual(request)


@dataclass
class ScriptedBroker:
    answers: Answers = usual
    port: int = 0
    requests: list[Request] = field(default_factory=list)
    serving: set[asyncio.Task[None]] = field(default_factory=set)

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.serving.add(asyncio.create_task(self.serve(reader, writer)))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                header, body_at = read_request_header(frame)
                request = Request(header.api_key, header.api_version, header.correlation_id, frame[body_at:])
                self.requests.append(request)
                answer = self.answers(request)
                if answer is None:
                    break
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def scripted(answers: Answers = usual, tls: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedBroker]:
    broker = ScriptedBroker(answers)
    server = await asyncio.start_server(broker.accept, "127.0.0.1", 0, ssl=tls)
    broker.port = server.sockets[0].getsockname()[1]
    try:
        yield broker
    finally:
        server.close()
        for task in broker.serving:
            task.cancel()
        await asyncio.gather(*broker.serving, return_exceptions=True)
