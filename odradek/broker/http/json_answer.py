"""Builds the HTTP server's JSON responses. Each response ends with a newline, so that after curl, the shell prompt
starts on a new line."""

from __future__ import annotations

import json
from collections.abc import Mapping

from aiohttp import web

JSON = "application/json"


def json_line(body: object) -> str:
    return f"{json.dumps(body)}\n"


def json_answer(
    body: object, *, status: int = 200, headers: Mapping[str, str] | None = None, content_type: str = JSON
) -> web.Response:
    return web.Response(text=json_line(body), status=status, headers=headers, content_type=content_type)
