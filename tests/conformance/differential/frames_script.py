"""Scripts that send truncated, overlong or malformed frames, and frames of an unknown version or API.

Each frame is sent over a new connection. The broker may respond, close the connection or do neither. The scripts
compare this outcome and the bytes of any response.
"""

import json
from collections.abc import Callable
from functools import cache

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import UnsupportedVersion
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages import request_class
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.struct import Message
from tests.conformance.differential.conversation import Talk
from tests.support.oracle import ORACLE

SERVED = (0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 19, 20, 21, 22, 23, 32, 33, 35, 37, 42, 44, 47, 60, 61, 74, 75)


@cache
def versions_of(key: int) -> tuple[int, int]:
    apis = json.loads((ORACLE / "exchanges" / "api-versions-4.3.1.json").read_text())["apis"]
    return next((api["min"], api["max"]) for api in apis if api["key"] == key)


def framed(body: bytes, announced: int | None = None) -> bytes:
    return (len(body) if announced is None else announced).to_bytes(4, signed=True) + body


def header(key: int, version: int, client_id: bytes = b"\0\4talk") -> bytes:
    return key.to_bytes(2, signed=True) + version.to_bytes(2, signed=True) + (7).to_bytes(4) + client_id


def cut_short(talk: Talk, _: int) -> None:
    """Sends default requests at their lowest and highest versions, without the last byte or without the body. Both
    brokers close the connection."""
    for key in SERVED:
        for version in versions_of(key):
            if key == 0 and version < 3:
                continue
            message: Message = request_class(key)()
            try:
                frame = request_bytes(message, version, 7, "talk")[4:]
            except UnsupportedVersion:
                continue
            talk.send_frame(f"{ApiKey(key).name} v{version} without its last byte", framed(frame[:-1]), show=False)
            talk.send_frame(f"{ApiKey(key).name} v{version} without its body", framed(header(key, version)), show=False)


def versions(talk: Talk, _: int) -> None:
    """Sends versions of each API outside the advertised range, and unknown APIs."""
    for key in SERVED:
        low, high = versions_of(key)
        for version in sorted({low - 1, high + 1, -1, 32767}):
            talk.send_frame(f"{ApiKey(key).name} v{version}", framed(header(key, version) + b"\0" * 40))
    for key in (-1, 4, 5, 6, 7, 999, 32767):
        talk.send_frame(f"API {key}", framed(header(key, 0) + b"\0" * 40))


def api_versions(talk: Talk, _: int) -> None:
    """Sends ApiVersions at unknown versions, which a broker answers with version 0 (KIP-511), and with valid and
    invalid names of client software."""
    for version in (5, 6, 99, 32767, -1):
        talk.send_frame(f"ApiVersions v{version}", framed(header(18, version) + b"\0" * 8))
    for name, software in (("", "1"), ("x", ""), ("a b", "1"), ("x", "1 "), ("-x", "1"), ("x.y-z", "1.2-3")):
        request = ApiVersionsRequest(client_software_name=name, client_software_version=software)
        answer = talk.quietly(request, 3)
        talk.note(f"software {name!r} {software!r}", answer.error_code)


def lengths(talk: Talk, _: int) -> None:
    """Sends impossible frame lengths."""
    for announced in (-1, -(2**31), 2**31 - 1, 104_857_601, 0, 1, 3, 7):
        body = b"\0" * max(0, min(announced, 16))
        talk.send_frame(f"announces {announced}", framed(body, announced), wait_s=2.0)


def surplus(talk: Talk, _: int) -> None:
    """Sends requests followed by surplus bytes, which brokers ignore."""
    for key in (3, 16, 60):
        low, high = versions_of(key)
        for version in (low, high):
            frame = request_bytes(request_class(key)(), version, 7, "talk")[4:] + b"\1\2\3"
            talk.send_frame(f"{ApiKey(key).name} v{version} with three more bytes", framed(frame), show=False)


def client_ids(talk: Talk, _: int) -> None:
    """Sends valid and invalid client ids. Null is valid; a wrong length or invalid UTF-8 is an error."""
    for label, client_id in {
        "null": b"\xff\xff",
        "empty": b"\0\0",
        "too long": b"\x7f\xfftalk",
        "length -2": b"\xff\xfe",
        "not UTF-8": b"\0\2\xff\xfe",
        "no tagged fields behind": b"\0\0",
    }.items():
        talk.send_frame(f"client id {label}", framed(header(18, 0, client_id)), show=False)


SCRIPTS: dict[Callable[[Talk, int], None], int] = {
    cut_short: 61,  # This API has only version 0, so each script runs once.
    versions: 61,
    api_versions: 61,
    lengths: 61,
    surplus: 61,
    client_ids: 61,
}
