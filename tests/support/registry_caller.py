"""A client for the HTTP interface of a broker's schema registry."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from typing import Any

from tests.support.broker_process import BrokerProcess

V1 = "application/vnd.schemaregistry.v1+json"
SETTINGS = {"odradek.schema.registry.enable": "true", "odradek.schema.registry.port": "0"}


class RegistryCaller:
    """Sends each request to the registry over a new connection."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """Sends a request. Returns the status and the decoded JSON of the response. A string body is sent unchanged,
        any other body as JSON."""
        connection = HTTPConnection("127.0.0.1", self._broker.ready["schema_registry_port"], timeout=30)
        try:
            sent = body if isinstance(body, str | None) else json.dumps(body)
            given = {"Content-Type": V1} if sent is not None else {}
            given.update({name.replace("_", "-"): value for name, value in headers.items()})
            connection.request(method, path, sent, given)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def register(self, subject: str, *fields: str) -> tuple[int, Any]:
        return self.ask("POST", f"/subjects/{subject}/versions", {"schema": record(*fields)})


def record(*fields: str) -> str:
    rows = [{"name": name, "type": "long", "default": 0} for name in fields]
    return json.dumps({"type": "record", "name": "R", "fields": rows})
