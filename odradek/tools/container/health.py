"""Implements `odradek health`, the image's health check, which exits with 0 if the broker is ready.

The command requests /readyz. If the HTTP port is switched off or uses TLS, it only connects to the first listener. This
module imports little, because the command runs every few seconds.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping, Sequence

TIMEOUT_S = 4.0
DEFAULT_HTTP_PORT = "9644"


def ports(settings: Mapping[str, str]) -> tuple[int | None, int]:
    """Returns the HTTP port and the port of the first listener that does not belong to a controller. The HTTP port is
    None if HTTP is switched off or uses TLS."""
    http_port = int(settings.get("odradek.http.port", DEFAULT_HTTP_PORT))
    if settings.get("odradek.http.security.protocol") == "SSL":
        http_port = -1
    controllers = {name.strip().upper() for name in settings.get("controller.listener.names", "CONTROLLER").split(",")}
    listeners = [entry.strip().partition("://") for entry in settings["listeners"].split(",")]
    first = next(address for name, _, address in listeners if name.upper() not in controllers)
    return None if http_port < 0 else http_port, int(first.rpartition(":")[2])


def check(http_port: int | None, port: int) -> str | None:
    """Returns None if the broker is ready, or the reason that it is not. Raises OSError."""
    with socket.create_connection(("127.0.0.1", port if http_port is None else http_port), TIMEOUT_S) as connection:
        if http_port is None:
            return None
        connection.sendall(b"GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n")
        answer = b""
        while part := connection.recv(65536):
            answer += part
    status, _, rest = answer.partition(b"\r\n")
    return None if status.split()[1:2] == [b"200"] else rest.rpartition(b"\r\n")[2].decode(errors="replace")


def main(words: Sequence[str] = ()) -> int:
    """Runs `odradek health` with these arguments and returns the exit status. Prints the reason if the broker is not
    ready. The default port comes from the environment and the mounted server.properties."""
    http_port: int | None = None
    match [part for word in words for part in word.split("=", 1)]:
        case []:
            pass
        case ["--http-port", number] if number.isdecimal():
            http_port = int(number)
        case _:
            print("odradek health: the only option is --http-port N. See `odradek health --help`", file=sys.stderr)
            return 2
    from odradek.broker.configuration.environment import settings_of_environment
    from odradek.protocol.java_properties import parse_properties
    from odradek.tools.container.environment import complete, mounted_configuration
    from odradek.tools.container.other_images import as_apache_kafka

    mounted = mounted_configuration()
    in_file = {} if mounted is None else parse_properties(mounted.read_text(encoding="utf-8"))
    mapped = as_apache_kafka(os.environ, in_file, read_file=lambda path: "", is_file=lambda path: True)
    environment = complete(mapped.variables, in_file, read_secret=lambda name: "")
    configured, port = ports({**in_file, **settings_of_environment(environment.variables)})
    checked_port = configured if http_port is None else http_port
    try:
        problem = check(checked_port, port)
    except OSError as error:
        problem = f"port {port if checked_port is None else checked_port} of 127.0.0.1: {error.strerror or error}"
    if problem is not None:
        print(f"odradek health: the broker is not ready: {problem}", file=sys.stderr)
    return 0 if problem is None else 1


if __name__ == "__main__":
    raise SystemExit(main())
