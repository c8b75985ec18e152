"""The registry's HTTP interface: Confluent's paths, bodies, media types and error codes.

Unsupported parts of the interface return 501 and the reason rather than pretending to succeed: contexts, metadata and
rule sets, aliases, and exporters. Source: the documentation of Confluent's Schema Registry API.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from aiohttp import web

from odradek.broker.http.connections import HttpLimits, serve_http
from odradek.broker.http.logins import CHALLENGE, HttpLogins, client_of
from odradek.broker.registry.access import Rights, rights_of
from odradek.broker.runtime.slices import in_order, work_in_slices
from odradek.broker.runtime.workers import in_thread
from odradek.broker.security.sasl.passwords import LoginRefused
from odradek.protocol.acls import Operation
from odradek.protocol.errors import KafkaError
from odradek.registry.core import LAST_NUMBER, LATEST, Registration, VersionName
from odradek.registry.errors import (
    RegistryError,
    invalid_schema,
    invalid_version,
    level_not_configured,
    mode_not_configured,
    not_served,
    schema_not_found,
)
from odradek.registry.schemas import AVRO, MODULES, PROTOBUF, Json, ParsedSchema, Reference, SchemaText
from odradek.registry.state import Version

if TYPE_CHECKING:
    from socket import socket
    from ssl import SSLContext

    from odradek.broker.api.context import Authorizer
    from odradek.broker.broker import Broker
    from odradek.broker.http.connections import Stop
    from odradek.broker.registry.service import RegistryService
    from odradek.broker.runtime.clock import Clock
    from odradek.broker.runtime.workers import Workers

log = logging.getLogger("odradek.registry")

V1: Final = "application/vnd.schemaregistry.v1+json"
ANSWERS: Final = (V1, "application/vnd.schemaregistry+json", "application/json")
BODIES: Final = frozenset({*ANSWERS, "application/octet-stream"})
DEFAULT_CONTEXT: Final = ":.:"
SCHEMA_FIELDS: Final = frozenset(
    {"subject", "version", "id", "guid", "schemaType", "references", "schema", "schemaTags", "metadata", "ruleSet"}
)
NOT_SERVED_FIELDS: Final = ("metadata", "ruleSet", "schemaTags", "schemaTagsToAdd", "schemaTagsToRemove")
LEVEL_FIELDS: Final = frozenset({"compatibility", "compatibilityLevel"})
BODY_TIMEOUT_S: Final = 30.0
MAX_BODY_BYTES: Final = 4 << 20  # larger than the limit for a schema, because escaping in JSON makes a schema longer
# Size of each piece of a long response. The loop serves other clients between pieces.
PIECE_CHARACTERS: Final = 64 << 10
LARGE_BODY_BYTES: Final = 64 << 10  # larger bodies are parsed in a thread
Handler = Callable[[web.Request, Rights], Awaitable[Json]]


async def serve(
    broker: Broker,
    service: RegistryService,
    authorizer: Authorizer,
    bound: socket,
    context: SSLContext | None,
) -> Stop:
    """Serves the registry on a socket. Returns a function that stops the server and closes the socket.

    context  the TLS context, or None for plain HTTP
    """
    logins = HttpLogins(broker)
    routes = RegistryRoutes(service, authorizer, logins, broker.clock, broker.workers, broker.cluster_id)
    return await serve_http(routes.application(), bound, context, HttpLimits())


class RegistryRoutes:
    def __init__(
        self,
        service: RegistryService,
        authorizer: Authorizer,
        logins: HttpLogins,
        clock: Clock,
        workers: Workers,
        cluster_id: str,
    ) -> None:
        self._service = service
        self._registry = service.registry
        self._authorizer = authorizer
        self._logins = logins
        self._clock = clock
        self._workers = workers
        self._cluster_id = cluster_id

    def application(self) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[self._errors])
        subject, version = "/subjects/{subject}", "/subjects/{subject}/versions/{version}"
        routes: list[tuple[str, str, Handler]] = [
            ("GET", "/", self.root),
            ("GET", "/subjects", self.subjects),
            ("POST", subject, self.lookup),
            ("DELETE", subject, self.delete_subject),
            ("GET", subject + "/versions", self.versions),
            ("POST", subject + "/versions", self.register),
            ("GET", version, self.version),
            ("GET", version + "/schema", self.version_schema),
            ("GET", version + "/referencedby", self.referenced_by),
            ("DELETE", version, self.delete_version),
            ("GET", "/schemas", self.schemas),
            ("GET", "/schemas/types", self.types),
            ("GET", "/schemas/ids/{id}", self.schema),
            ("GET", "/schemas/ids/{id}/schema", self.schema_text),
            ("GET", "/schemas/ids/{id}/subjects", self.schema_subjects),
            ("GET", "/schemas/ids/{id}/versions", self.schema_versions),
            ("GET", "/config", self.level),
            ("PUT", "/config", self.set_level),
            ("DELETE", "/config", self.remove_level),
            ("GET", "/config/{subject}", self.level),
            ("PUT", "/config/{subject}", self.set_level),
            ("DELETE", "/config/{subject}", self.remove_level),
            ("GET", "/mode", self.mode),
            ("PUT", "/mode", self.set_mode),
            ("GET", "/mode/{subject}", self.mode),
            ("PUT", "/mode/{subject}", self.set_mode),
            ("DELETE", "/mode/{subject}", self.remove_mode),
            ("POST", "/compatibility/subjects/{subject}/versions", self.compatibility),
            ("POST", "/compatibility/subjects/{subject}/versions/{version}", self.compatibility),
            ("GET", "/contexts", self.contexts),
            ("GET", "/v1/metadata/id", self.cluster),
        ]
        for method, path, handler in routes:
            app.router.add_route(method, path, self._wrap_handler(handler))
        for path in (
            "/v1/metadata/version",
            "/schemas/guids/{rest:.*}",
            "/subjects/{subject}/metadata",
            "/exporters{rest:.*}",
            "/dek-registry{rest:.*}",
        ):
            app.router.add_route("*", path, self._wrap_handler(self.left_out))
        return app

    # Subjects and their versions.

    async def root(self, request: web.Request, rights: Rights) -> Json:
        return {}

    async def subjects(self, request: web.Request, rights: Rights) -> Json:
        prefix = request.query.get("subjectPrefix", "")
        found = await self._readable(
            rights,
            _own_context(prefix) if prefix else "",
            with_deleted=_flag(request, "deleted"),
            deleted_only=_flag(request, "deletedOnly"),
        )
        return _page(request, found)

    async def lookup(self, request: web.Request, rights: Rights) -> Json:
        subject = _subject(request)
        rights.require_read(subject)
        text, _ = await self._body_schema(request)
        normalize, with_deleted = _flag(request, "normalize"), _flag(request, "deleted")
        version = await self._service.parse(
            lambda registry: registry.lookup(subject, text, normalize=normalize, with_deleted=with_deleted)
        )
        return _version_view(subject, version)

    async def register(self, request: web.Request, rights: Rights) -> Json:
        subject = _subject(request)
        rights.require_write(subject)
        text, body = await self._body_schema(request)
        for reference in text.references:
            rights.require_read(reference.subject)
        registration = Registration(
            text, _optional_id(body, "id"), _optional_id(body, "version"), _flag(request, "normalize")
        )
        return {"id": await self._service.change(lambda registry: registry.register(subject, registration))}

    async def versions(self, request: web.Request, rights: Rights) -> Json:
        subject = _subject(request)
        rights.require_read(subject)
        found = self._registry.numbers(
            subject, with_deleted=_flag(request, "deleted"), deleted_only=_flag(request, "deletedOnly")
        )
        return _page(request, found)

    async def version(self, request: web.Request, rights: Rights) -> Json:
        subject, version = self._version(request, rights)
        return _version_view(subject, version, await self._format(request, version.text))

    async def version_schema(self, request: web.Request, rights: Rights) -> Json:
        _, version = self._version(request, rights)
        return web.Response(text=(await self._format(request, version.text)).text, content_type=_media_type(request))

    async def referenced_by(self, request: web.Request, rights: Rights) -> Json:
        subject = _subject(request)
        rights.require_read(subject)
        return self._registry.referenced_by(subject, _version_name(request))

    async def delete_version(self, request: web.Request, rights: Rights) -> Json:
        subject, number = _subject(request), _version_name(request)
        rights.require_write(subject)
        is_permanent = _flag(request, "permanent")
        return await self._service.change(
            lambda registry: registry.delete_version(subject, number, is_permanent=is_permanent)
        )

    async def delete_subject(self, request: web.Request, rights: Rights) -> Json:
        subject = _subject(request)
        rights.require_write(subject)
        is_permanent = _flag(request, "permanent")
        return await self._service.change(lambda registry: registry.delete_subject(subject, is_permanent=is_permanent))

    # Schemas by id.

    async def schemas(self, request: web.Request, rights: Rights) -> Json:
        """Sends the versions in pieces, because their total size is not limited. A version that is registered while the
        response is being sent may be missing from it."""
        prefix = _own_context(request.query.get("subjectPrefix", "")) if "subjectPrefix" in request.query else ""
        with_deleted, latest_only = _flag(request, "deleted"), _flag(request, "latestOnly")
        start, end = _bounds(request)
        subjects = await self._readable(rights, prefix, with_deleted=with_deleted)
        response = web.StreamResponse(headers={"Content-Type": _media_type(request)})
        with suppress(ConnectionResetError):  # the client has disconnected
            await response.prepare(request)
            text, number = "[", 0
            for subject in subjects:
                versions = self._registry.state.versions(subject, with_deleted=with_deleted)
                for version in versions[-1:] if latest_only else versions:
                    if start <= number < end:
                        text += f"{',' if number > start else ''}{_dumped(_version_view(subject, version))}"
                    number += 1
                    if len(text) >= PIECE_CHARACTERS:
                        await response.write(text.encode(errors="replace"))
                        await asyncio.sleep(0)  # a write does not yield to the loop if the client reads fast enough
                        text = ""
                if number >= end:
                    break
            await response.write(f"{text}]".encode(errors="replace"))
            await response.write_eof()
        return response

    async def types(self, request: web.Request, rights: Rights) -> Json:
        return sorted(MODULES)

    async def schema(self, request: web.Request, rights: Rights) -> Json:
        text = self._text(request, rights)
        found = (await self._format(request, text)).as_json()
        if _flag(request, "fetchMaxId"):
            found["maxId"] = self._registry.state.last_id
        return found

    async def schema_text(self, request: web.Request, rights: Rights) -> Json:
        text = await self._format(request, self._text(request, rights))
        return web.Response(text=text.text, content_type=_media_type(request))

    async def schema_subjects(self, request: web.Request, rights: Rights) -> Json:
        return sorted({subject for subject, _ in self._places(request, rights)})

    async def schema_versions(self, request: web.Request, rights: Rights) -> Json:
        return [{"subject": subject, "version": number} for subject, number in self._places(request, rights)]

    # Compatibility.

    async def compatibility(self, request: web.Request, rights: Rights) -> Json:
        subject = _subject(request)
        rights.require_read(subject)
        number = _version_name(request) if "version" in request.match_info else None
        normalize = _flag(request, "normalize")
        text, _ = await self._body_schema(request)
        messages = await self._service.parse(lambda registry: registry.test(subject, text, number, normalize=normalize))
        found: dict[str, Json] = {"is_compatible": not messages}
        if _flag(request, "verbose"):
            found["messages"] = messages
        return found

    async def level(self, request: web.Request, rights: Rights) -> Json:
        subject = _subject(request) if "subject" in request.match_info else None
        self._require_config(rights, subject, is_change=False)
        if subject is not None and subject not in self._registry.state.levels and not _flag(request, "defaultToGlobal"):
            raise level_not_configured(subject)
        return {"compatibilityLevel": self._registry.level_of(subject)}

    async def set_level(self, request: web.Request, rights: Rights) -> Json:
        subject = _subject(request) if "subject" in request.match_info else None
        self._require_config(rights, subject, is_change=True)
        body = await self._body(request)
        if left_out := sorted(name for name in body.keys() - LEVEL_FIELDS if body[name] is not None):
            raise not_served(f"the setting {left_out[0]} of a subject")
        level = str(body.get("compatibility", body.get("compatibilityLevel", "")))
        await self._service.change(lambda registry: (None, registry.set_level(subject, level)))
        return {"compatibility": level.upper()}

    async def remove_level(self, request: web.Request, rights: Rights) -> Json:
        subject = _subject(request) if "subject" in request.match_info else None
        self._require_config(rights, subject, is_change=True)
        return {"compatibilityLevel": await self._service.change(lambda registry: registry.remove_level(subject))}

    # Modes.

    async def mode(self, request: web.Request, rights: Rights) -> Json:
        subject = _subject(request) if "subject" in request.match_info else None
        self._require_config(rights, subject, is_change=False)
        if subject is not None and subject not in self._registry.state.modes and not _flag(request, "defaultToGlobal"):
            raise mode_not_configured(subject)
        return {"mode": self._registry.mode_of(subject)}

    async def set_mode(self, request: web.Request, rights: Rights) -> Json:
        subject = _subject(request) if "subject" in request.match_info else None
        self._require_config(rights, subject, is_change=True)
        mode, is_forced = str((await self._body(request)).get("mode", "")), _flag(request, "force")
        await self._service.change(lambda registry: (None, registry.set_mode(subject, mode, is_forced=is_forced)))
        return {"mode": mode}

    async def remove_mode(self, request: web.Request, rights: Rights) -> Json:
        subject = _subject(request)
        rights.require_write(subject)
        return {"mode": await self._service.change(lambda registry: registry.remove_mode(subject))}

    # The registry itself.

    async def contexts(self, request: web.Request, rights: Rights) -> Json:
        return ["."]

    async def cluster(self, request: web.Request, rights: Rights) -> Json:
        clusters = {"kafka-cluster": self._cluster_id, "schema-registry-cluster": "schema-registry"}
        return {"id": "", "scope": {"path": [], "clusters": clusters}}

    async def left_out(self, request: web.Request, rights: Rights) -> Json:
        raise not_served(f"{request.method} {request.path}")

    async def _readable(
        self, rights: Rights, prefix: str, *, with_deleted: bool, deleted_only: bool = False
    ) -> list[str]:
        """Returns the subjects that the client may read, sorted. The subjects are searched in slices, because there may
        be many of them."""

        names: list[str] = []

        def steps() -> Iterator[None]:
            found = []
            for subject in list(self._registry.state.subjects):
                is_listed = self._registry.is_listed(subject, with_deleted, deleted_only)
                if subject.startswith(prefix) and is_listed and rights.may_read(subject):
                    found.append(subject)
                yield
            for subject in (yield from in_order(found)):
                names.append(subject)
                yield

        await work_in_slices(steps())
        return names

    def _version(self, request: web.Request, rights: Rights) -> tuple[str, Version]:
        subject = _subject(request)
        rights.require_read(subject)
        name = _version_name(request)
        return subject, self._registry.version(subject, name, with_deleted=_flag(request, "deleted"))

    def _text(self, request: web.Request, rights: Rights) -> SchemaText:
        schema_id = _schema_id(request)
        text = self._registry.text_of_id(schema_id)
        places = self._registry.state.places_of(schema_id, with_deleted=True)
        if not any(rights.may_read(subject) for subject, _ in places):
            rights.require_read(next(self._registry.state.places_of(schema_id, with_deleted=True))[0])
        return text

    def _places(self, request: web.Request, rights: Rights) -> list[tuple[str, int]]:
        schema_id = _schema_id(request)
        self._registry.text_of_id(schema_id)
        places = self._registry.state.places_of(schema_id, with_deleted=_flag(request, "deleted"))
        return [(subject, number) for subject, number in places if rights.may_read(subject)]

    async def _format(self, request: web.Request, text: SchemaText) -> SchemaText:
        """Returns the schema in the format that the client has requested."""
        format_ = request.query.get("format", "")
        if format_ in ("", "default"):
            return text
        if format_ == "serialized" and text.schema_type == PROTOBUF:
            parsed: ParsedSchema = await self._service.parse(lambda registry: registry.parsed(text))
            from odradek.registry.protobuf_schemas import ProtobufSchema

            assert isinstance(parsed, ProtobufSchema)
            return SchemaText(text.schema_type, parsed.serialized(), text.references)
        raise not_served(f"the format {format_} of {text.schema_type} schemas")

    async def _body_schema(self, request: web.Request) -> tuple[SchemaText, Mapping[str, Json]]:
        body = await self._body(request)
        if unknown := sorted(body.keys() - SCHEMA_FIELDS):
            raise RegistryError(422, f"Unrecognized field: {unknown[0]}")
        for name in NOT_SERVED_FIELDS:
            if body.get(name) is not None:
                raise not_served(f"the field {name} of a schema")
        text = body.get("schema")
        schema_type = body.get("schemaType") or AVRO
        if not isinstance(text, str) or not text:
            raise invalid_schema("Empty schema")
        if not isinstance(schema_type, str):
            raise RegistryError(422, "schemaType must be a string")
        return SchemaText(schema_type, text, _references(body.get("references") or [])), body

    async def _body(self, request: web.Request) -> Mapping[str, Json]:
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                content = await request.read()
        except TimeoutError:
            raise web.HTTPRequestTimeout from None
        except ConnectionResetError:  # the client has disconnected
            raise web.HTTPBadRequest from None
        except web.HTTPRequestEntityTooLarge:
            raise RegistryError(413, f"The body has more than {MAX_BODY_BYTES} bytes") from None
        if len(content) > LARGE_BODY_BYTES:
            return await in_thread(self._workers, lambda: _parsed_body(content))
        return _parsed_body(content)

    def _require_config(self, rights: Rights, subject: str | None, *, is_change: bool) -> None:
        if subject is None:
            rights.require_of_cluster(Operation.ALTER_CONFIGS if is_change else Operation.DESCRIBE_CONFIGS)
        elif is_change:
            rights.require_write(subject)
        else:
            rights.require_read(subject)

    # Processing that all requests share.

    def _wrap_handler(self, handler: Handler) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(request: web.Request) -> web.StreamResponse:
            origin = request.headers.get("Origin")
            if origin is not None and origin.partition("://")[2].lower() != request.host.lower():
                raise RegistryError(40301, f"The page at {origin} may not use this registry")
            if request.body_exists and request.content_type not in BODIES:
                raise RegistryError(415, "HTTP 415 Unsupported Media Type")
            found = await handler(request, await self._rights(request))
            return found if isinstance(found, web.StreamResponse) else _json(request, found, HTTPStatus.OK)

        return answer

    async def _rights(self, request: web.Request) -> Rights:
        authorization = request.headers.get("Authorization", "")
        try:
            user = await self._logins.user_of(authorization) if authorization else None
        except LoginRefused as refused:
            raise RegistryError(40101, str(refused)) from None
        return rights_of(self._authorizer, client_of(request, user), self._clock.now_ms())

    @web.middleware
    async def _errors(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            return await handler(request)
        except RegistryError as error:
            response = _json(request, {"error_code": error.code, "message": error.message}, HTTPStatus(error.status))
            if error.status == HTTPStatus.UNAUTHORIZED:
                response.headers["WWW-Authenticate"] = CHALLENGE
            return response
        except KafkaError as error:
            log.error("the schema registry could not write to its topic: %s", error)
            words = f"Error in the backend data store: {error.message or error.code.name}"
            return _json(request, {"error_code": 50001, "message": words}, HTTPStatus.INTERNAL_SERVER_ERROR)
        except web.HTTPException as error:
            words = f"HTTP {error.status} {error.reason}"
            return _json(request, {"error_code": error.status, "message": words}, HTTPStatus(error.status))


def _json(request: web.Request, found: Json, status: HTTPStatus) -> web.Response:
    return web.Response(body=_dumped(found).encode(errors="replace"), status=status, content_type=_media_type(request))


def _dumped(found: Json) -> str:
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False)


def _media_type(request: web.Request) -> str:
    accepted = [part.partition(";")[0].strip() for part in request.headers.get("Accept", "").split(",")]
    return next((each for each in accepted if each in ANSWERS), V1)


def _subject(request: web.Request) -> str:
    return _own_context(request.match_info["subject"])


def _own_context(subject: str) -> str:
    """Removes the default context from a subject. Raises RegistryError for any other context."""
    if subject.startswith(DEFAULT_CONTEXT):
        return subject.removeprefix(DEFAULT_CONTEXT)
    if subject.startswith(":."):
        raise not_served(f"the context of the subject {subject}")
    return subject


def _flag(request: web.Request, name: str) -> bool:
    return request.query.get(name, "").lower() == "true"


def _version_name(request: web.Request) -> VersionName:
    text = request.match_info["version"]
    if text in (LATEST, "-1"):
        return LATEST
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:12]) <= LAST_NUMBER or len(text) > 12:
        raise invalid_version(text)
    return int(text)


def _schema_id(request: web.Request) -> int:
    text = request.match_info["id"]
    if not text.isascii() or not text.isdigit() or len(text) > 12:
        raise RegistryError(404, "HTTP 404 Not Found")
    if int(text) > LAST_NUMBER:
        raise schema_not_found(int(text))
    return int(text)


def _bounds(request: web.Request) -> tuple[int, int]:
    """Returns the start and end index of the part of a list that `offset` and `limit` select. The end is exclusive."""
    try:
        offset, limit = int(request.query.get("offset", "0")), int(request.query.get("limit", "-1"))
    except ValueError:
        raise RegistryError(422, "offset and limit must be whole numbers") from None
    start = max(offset, 0)
    return start, sys.maxsize if limit < 0 else start + limit


def _page(request: web.Request, found: list[Json]) -> list[Json]:
    start, end = _bounds(request)
    return found[start:end]


def _parsed_body(content: bytes) -> Mapping[str, Json]:
    try:
        body = json.loads(content or b"{}")
        json.dumps(body, ensure_ascii=False).encode()  # fails for lone surrogates, which are not valid text
    except (ValueError, RecursionError) as error:
        raise RegistryError(400, f"The body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise RegistryError(400, "The body must be a JSON object")
    return body


def _optional_id(body: Mapping[str, Json], name: str) -> int | None:
    """Returns the id or version that a client specifies in mode IMPORT. A client that specifies no number may send -1
    or 0."""
    number = body.get(name)
    if number is None:
        return None
    if not isinstance(number, int) or isinstance(number, bool) or number > LAST_NUMBER:
        raise RegistryError(422, f"{name} must be a whole number")
    return number if number > 0 else None


def _references(given: Json) -> tuple[Reference, ...]:
    if not isinstance(given, list):
        raise RegistryError(422, "references must be a list")
    found = []
    for each in given:
        if (
            not isinstance(each, dict)
            or not isinstance(each.get("name"), str)
            or not isinstance(each.get("subject"), str)
        ):
            raise RegistryError(422, "a reference needs the fields name, subject and version")
        version = each.get("version")
        if not isinstance(version, int) or isinstance(version, bool):
            raise RegistryError(422, "the version of a reference must be a whole number")
        found.append(Reference(each["name"], _own_context(each["subject"]), version))
    return tuple(found)


def _version_view(subject: str, version: Version, text: SchemaText | None = None) -> dict[str, Json]:
    found = {"subject": subject, "version": version.number, "id": version.schema_id}
    return found | (text or version.text).as_json()
