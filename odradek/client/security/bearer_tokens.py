"""Where the commands get bearer tokens from: values that are called for a token, and can be sent to a worker."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

TIMEOUT_S = 30
MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class UnsecuredTokens:
    """Tokens that nobody signed, for development, as Kafka's OAuthBearerUnsecuredLoginCallbackHandler makes them."""

    claims: Mapping[str, str]
    lifetime_s: int = 3600

    def __call__(self) -> str:
        now = int(time.time())
        claims = {**self.claims, "iat": now, "exp": now + self.lifetime_s}
        return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """The client credentials grant (KIP-768), or the file of a `file:` URL, read anew for each login."""

    url: str
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str | None = None

    def __call__(self) -> str:
        """Raises OSError when the server cannot be reached or refuses, ValueError for an answer without a token."""
        scheme = urlsplit(self.url).scheme
        if scheme not in ("http", "https", "file"):
            raise ValueError(f"the token endpoint is an http, https or file URL, not {scheme!r}")
        if scheme == "file":
            with urlopen(self.url) as file:
                return str(file.read(MOST_BYTES).decode()).strip()
        grant = {"grant_type": "client_credentials", **({"scope": self.scope} if self.scope else {})}
        request = Request(self.url, urlencode(grant).encode())
        secret = base64.b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode()
        request.add_header("Authorization", f"Basic {secret}")
        request.add_header("Accept", "application/json")
        try:
            with urlopen(request, timeout=TIMEOUT_S) as answer:
                found = json.loads(answer.read(MOST_BYTES))
        except HTTPError as refused:  # without the body, which may repeat what was sent
            raise OSError(f"{self.url} answered {refused.code} {refused.reason}") from None
        if not isinstance(found, dict) or not isinstance(found.get("access_token"), str):
            raise ValueError(f"{self.url} answered without an access_token")
        return str(found["access_token"])


def _encoded(value: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
