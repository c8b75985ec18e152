"""Requests schemas from a registry with Confluent's HTTP interface."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final
from urllib.parse import quote, urlsplit

from odradek.client.schema_registry.address import RegistryAddress
from odradek.registry.schemas import Json, Reference, SchemaText

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
MAX_REFERENCES: Final = 1_000  # maximum number of references of one schema, including indirect references


class RegistryFailure(Enum):
    """The kinds of registry errors."""

    UNREACHABLE = auto()
    NO_REGISTRY = auto()  # the address belongs to another HTTP server
    LOGIN = auto()  # the login is missing or wrong
    FORBIDDEN = auto()
    NOT_FOUND = auto()
    REFUSED = auto()


class SchemaRegistryError(Exception):
    """Raised if a registry cannot be reached or refuses a request.

    code  the error code in the registry's response, or its HTTP status if the response has no code; 0 if there was no
          response
    """

    def __init__(self, message: str, failure: RegistryFailure, code: int = 0) -> None:
        super().__init__(message)
        self.failure = failure
        self.code = code


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """A version of a subject in the registry, with its schema."""

    subject: str
    version: int
    schema_id: int
    text: SchemaText


class SchemaRegistryClient:
    """Sends requests to a registry. Not thread-safe."""

    def __init__(self, address: RegistryAddress, timeout_s: float = 15.0) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._texts: dict[int, SchemaText] = {}

    @property
    def url(self) -> str:
        """The URL of the registry without the login."""
        return self._address.url

    def ask(self, method: str, path: str, body: Json = None) -> Json:
        """Sends a request and returns the response. Raises SchemaRegistryError if the registry cannot be reached or
        refuses the request."""
        status, content = self._exchange(method, path, body)
        try:
            answer = json.loads(content)
        except ValueError:
            answer = None
        if status < 300 and answer is not None:
            return answer
        if isinstance(answer, dict) and isinstance(answer.get("message"), str):
            raise self._refusal(status, answer.get("error_code", status), answer["message"])
        if status in (401, 403):
            raise self._refusal(status, status, "")
        raise SchemaRegistryError(
            f"{self.url} answers with HTTP {status}, but is not a schema registry",
            RegistryFailure.NO_REGISTRY,
            status,
        )

    def version(self, subject: str, number: int | None = None, *, with_deleted: bool = False) -> StoredSchema:
        """Returns a version of a subject, by default the latest.

        with_deleted  True to return the version even if it was softly deleted
        """
        path = f"/subjects/{quoted(subject)}/versions/{'latest' if number is None else number}"
        return _stored(self.ask("GET", f"{path}?deleted=true" if with_deleted else path))

    def version_numbers(self, subject: str, *, with_deleted: bool = False) -> list[int]:
        """Returns the version numbers of a subject, in ascending order. With `with_deleted`, includes softly deleted
        versions."""
        path = f"/subjects/{quoted(subject)}/versions"
        return sorted(map(int, self.ask("GET", f"{path}?deleted=true" if with_deleted else path)))

    def text_of_id(self, schema_id: int) -> SchemaText:
        """Returns the schema with this id. Each schema is requested only once, because the schema with a given id never
        changes."""
        if schema_id not in self._texts:
            self._texts[schema_id] = _text(self.ask("GET", f"/schemas/ids/{schema_id}"))
        return self._texts[schema_id]

    def resolved(self, text: SchemaText) -> Sequence[tuple[Reference, str]]:
        """Returns all schemas that a schema refers to, directly or indirectly, with the references to them. A schema
        comes after the schemas that it refers to.

        Raises SchemaRegistryError if a schema cannot be read, refers to itself, or has too many references.
        """
        found: dict[str, tuple[Reference, str]] = {}
        texts: dict[str, SchemaText] = {}
        waiting = [(each, False) for each in reversed(text.references)]
        while waiting:
            reference, is_complete = waiting.pop()
            if reference.name in found:
                continue
            if is_complete:
                found[reference.name] = reference, texts[reference.name].text
                continue
            if len(texts) == MAX_REFERENCES or reference.name in texts:
                raise SchemaRegistryError(
                    f"the schema refers to itself, or has more than {MAX_REFERENCES} references",
                    RegistryFailure.REFUSED,
                )
            # Softly deleted versions are included, because schemas may still refer to them.
            texts[reference.name] = self.version(reference.subject, reference.version, with_deleted=True).text
            waiting.append((reference, True))
            waiting.extend((each, False) for each in reversed(texts[reference.name].references))
        return list(found.values())

    def _exchange(self, method: str, path: str, body: Json) -> tuple[int, bytes]:
        parts = urlsplit(self.url)
        connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        headers = {"Accept": f"{MEDIA_TYPE}, application/json"}
        if self._address.login is not None:
            headers["Authorization"] = self._address.login
        if body is not None:
            headers["Content-Type"] = MEDIA_TYPE
        connection = connect(parts.hostname or "localhost", parts.port, timeout=self._timeout_s)
        try:
            sent = None if body is None else json.dumps(body)
            connection.request(method, parts.path.rstrip("/") + path, sent, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise SchemaRegistryError(
                f"no schema registry can be reached at {self.url}: {reason}", RegistryFailure.UNREACHABLE
            ) from error
        finally:
            connection.close()

    def _refusal(self, status: int, code: int, message: str) -> SchemaRegistryError:
        if status == 401:
            known = "does not accept this login" if self._address.login else "requires a login"
            return SchemaRegistryError(f"the registry at {self.url} {known}", RegistryFailure.LOGIN, code)
        if status == 403:
            return SchemaRegistryError(
                f"the registry at {self.url} does not permit this: {message or 'HTTP 403'}",
                RegistryFailure.FORBIDDEN,
                code,
            )
        return SchemaRegistryError(
            message, RegistryFailure.NOT_FOUND if status == 404 else RegistryFailure.REFUSED, code
        )


def quoted(subject: str) -> str:
    return quote(subject, safe="")


def _stored(answer: Json) -> StoredSchema:
    return StoredSchema(answer["subject"], answer["version"], answer["id"], _text(answer))


def _text(answer: Json) -> SchemaText:
    references = tuple(
        Reference(each["name"], each["subject"], each["version"]) for each in answer.get("references") or ()
    )
    return SchemaText(answer.get("schemaType") or "AVRO", answer["schema"], references)
