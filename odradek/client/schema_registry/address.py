"""A schema registry's address and login, as specified by the user.

This module has few imports, because commands that use no registry import it for the default address.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

VARIABLE: Final = "ODRADEK_SCHEMA_REGISTRY"
DEFAULT_URL: Final = "http://localhost:8081"


class RegistryAddress(NamedTuple):
    """A registry's URL and login.

    url    the URL without the login, so that messages can contain it
    login  the value of the Authorization header, or None
    """

    url: str
    login: str | None = None


def registry_address(url: str, user: str | None = None, password: str | None = None) -> RegistryAddress:
    """Parses the URL of a registry. `user` and `password` take precedence over a login in the URL. Raises ValueError if
    the URL or the login is invalid; the message contains no password."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{parts.hostname or url} is not the URL of a schema registry, such as {DEFAULT_URL}")
    name = user if user is not None or parts.username is None else unquote(parts.username)
    secret = unquote(parts.password or "") if password is None else password
    if name is None and password is not None:
        raise ValueError("a password of the registry needs the name of its user")
    if name is not None and not secret:
        raise ValueError(f"the registry's user {name} needs a password")
    login = None if name is None else "Basic " + b64encode(f"{name}:{secret}".encode()).decode()
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    port = "" if parts.port is None else f":{parts.port}"
    return RegistryAddress(f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}", login)
