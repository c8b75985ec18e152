"""Contains the schema registry client that the commands use. It uses Confluent's HTTP interface, and its errors are
written for users of a command."""

from __future__ import annotations

import argparse
import json
import os
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from odradek.registry.schemas import Json, Reference, SchemaText
from odradek.tools.commands.errors import NOT_FOUND, NOT_PERMITTED, REFUSED, UNREACHABLE, CommandError
from odradek.tools.commands.schema_options import DEFAULT_URL, VARIABLE

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
MAX_REFERENCES: Final = 1_000  # maximum number of references of one schema, including indirect ones
ADVICE: Final[Mapping[int, str]] = {
    40401: "`odradek schemas list` shows all subjects. Names are case-sensitive.",
    40402: "`odradek schemas show SUBJECT` lists the versions of a subject.",
    409: "Data of one version could not be read with the other. `odradek schemas check` compares without registering.",
    42201: "Nothing was registered. Check the file and --type.",
}


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """A version of a subject in the registry, with its schema."""

    subject: str
    version: int
    schema_id: int
    text: SchemaText


@dataclass(slots=True)
class RegistryClient:
    """Sends requests to a registry. Not thread-safe.

    address  URL of the registry without the login, for use in messages
    login    value of the header Authorization, if the user specified a login
    """

    address: str
    login: str | None = None
    timeout_s: float = 15.0
    _texts: dict[int, SchemaText] = field(default_factory=dict)

    def ask(self, method: str, path: str, body: Json = None) -> Json:
        """Sends a request and returns the response. Raises CommandError if the registry cannot be reached or refuses
        the request."""
        status, content = self._exchange(method, path, body)
        try:
            answer = json.loads(content)
        except ValueError:
            answer = None
        if status < 300 and answer is not None:
            return answer
        if isinstance(answer, dict) and isinstance(answer.get("message"), str):
            raise self._refusal(status, answer.get("error_code", status), answer["message"])
        raise (
            self._refusal(status, status, "")
            if status in (401, 403)
            else CommandError(
                f"{self.address} answers with HTTP {status}, but not as a schema registry does.\n"
                f"Check the address: --registry or {VARIABLE} names the registry, not a broker or its page.",
                UNREACHABLE,
            )
        )

    def version(self, subject: str, number: int | None = None) -> StoredSchema:
        """Returns a version of a subject, by default the latest one."""
        path = f"/subjects/{quoted(subject)}/versions/{'latest' if number is None else number}"
        return _stored(self.ask("GET", path))

    def text_of_id(self, schema_id: int) -> SchemaText:
        """Returns the schema with this id. It is requested only once, because an id never changes its meaning."""
        if schema_id not in self._texts:
            self._texts[schema_id] = _text(self.ask("GET", f"/schemas/ids/{schema_id}"))
        return self._texts[schema_id]

    def resolved(self, text: SchemaText) -> Sequence[tuple[Reference, str]]:
        """Returns all schemas to which a schema refers, directly or indirectly. Each one comes after the schemas to
        which it refers itself."""
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
                raise CommandError(f"the schema refers to itself, or has more than {MAX_REFERENCES} references")
            texts[reference.name] = self.version(reference.subject, reference.version).text
            waiting.append((reference, True))
            waiting.extend((each, False) for each in reversed(texts[reference.name].references))
        return list(found.values())

    def _exchange(self, method: str, path: str, body: Json) -> tuple[int, bytes]:
        parts = urlsplit(self.address)
        connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        headers = {"Accept": f"{MEDIA_TYPE}, application/json"}
        if self.login is not None:
            headers["Authorization"] = self.login
        if body is not None:
            headers["Content-Type"] = MEDIA_TYPE
        connection = connect(parts.hostname or "localhost", parts.port, timeout=self.timeout_s)
        try:
            sent = None if body is None else json.dumps(body)
            connection.request(method, parts.path.rstrip("/") + path, sent, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise CommandError(
                f"no schema registry can be reached at {self.address}: {reason}\n"
                f"Start one with `odradek serve --schema-registry`, or name another one with --registry or {VARIABLE}.",
                UNREACHABLE,
            ) from error
        finally:
            connection.close()

    def _refusal(self, status: int, code: int, message: str) -> CommandError:
        if status == 401:
            known = "does not accept this login" if self.login else "requires a login"
            return CommandError(
                f"the registry at {self.address} {known}. Give the user's name and the file with the password.",
                NOT_PERMITTED,
            )
        if status == 403:
            return CommandError(
                f"the registry at {self.address} does not permit this: {message or 'HTTP 403'}\n"
                "A subject needs rights of the topic that it is named after: READ to see it, WRITE to change it.",
                NOT_PERMITTED,
            )
        exit_status = NOT_FOUND if status == 404 else REFUSED
        advice = ADVICE.get(code)
        return CommandError(f"{message}\n{advice}" if advice else message, exit_status)


def quoted(subject: str) -> str:
    return quote(subject, safe="")


def _stored(answer: Json) -> StoredSchema:
    return StoredSchema(answer["subject"], answer["version"], answer["id"], _text(answer))


def _text(answer: Json) -> SchemaText:
    references = tuple(
        Reference(each["name"], each["subject"], each["version"]) for each in answer.get("references") or ()
    )
    return SchemaText(answer.get("schemaType") or "AVRO", answer["schema"], references)


def registry_client(options: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> RegistryClient:
    """Creates a client as the options specify. Raises ValueError for contradictory options, and OSError."""
    url = options.registry or environ.get(VARIABLE) or DEFAULT_URL
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"--registry {parts.hostname or url}: it takes a URL such as {DEFAULT_URL}")
    user, password = parts.username and unquote(parts.username), unquote(parts.password or "")
    if options.registry_user is not None:
        user = options.registry_user
    if options.registry_password_file is not None:
        password = Path(options.registry_password_file).read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
    if user is None and options.registry_password_file is not None:
        raise ValueError("a password of the registry needs the name of its user")
    if user is not None and not password:
        raise ValueError(f"the registry's user {user} needs a password: give the file that contains it")
    login = None if user is None else "Basic " + b64encode(f"{user}:{password}".encode()).decode()
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    port = "" if parts.port is None else f":{parts.port}"
    return RegistryClient(f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}", login, options.timeout)
