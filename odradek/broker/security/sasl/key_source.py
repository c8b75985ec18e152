"""Where the keys of signed tokens come from: a JWKS by file or URL, read at the start and again from time to time.

Reading is done in a thread. What cannot be read leaves the keys as they were. A key that a token names and nobody knows
has the source read early, once in a while and not for each such token.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote, urlsplit

from odradek.broker.security.sasl.tokens_signed import InvalidKeySet, VerificationKey, read_key_set

if TYPE_CHECKING:
    from ssl import SSLContext

    from odradek.broker.runtime.clock import Timers
    from odradek.broker.runtime.workers import JobResult, Workers

B = TypeVar("B", bytes, bytearray)

log = logging.getLogger("odradek.sasl")

TIMEOUT_S = 10.0  # for a whole reading
MAX_BYTES = 1 << 20
SCHEMES = ("file", "http", "https")


def reader_of(url: str, timeout_s: float = TIMEOUT_S) -> Callable[[], bytes]:
    """Reads the text behind a URL; waits, and raises OSError. Raises ValueError for a URL of another scheme."""
    scheme, _, path, *_ = urlsplit(url)
    if scheme not in SCHEMES:
        raise ValueError(f"its scheme is none of {', '.join(SCHEMES)}")

    def read_file() -> bytes:
        with Path(unquote(path)).open("rb") as file:
            return _not_too_much(file.read(MAX_BYTES + 1))

    def read_url() -> bytes:
        with ThreadPoolExecutor(1) as thread:  # whose loop is its own; the first reading is waited for on the broker's
            return thread.submit(asyncio.run, _fetched(url, timeout_s)).result()

    return read_file if scheme == "file" else read_url


async def _fetched(url: str, timeout_s: float) -> bytes:
    """Raises OSError. The time limit is for all of it: a server that sends a byte now and then does not get more."""
    from aiohttp import ClientError, ClientSession, ClientTimeout

    trusted = _trusted_authorities() if url.startswith("https:") else True
    try:
        async with (
            ClientSession(timeout=ClientTimeout(total=timeout_s), trust_env=True) as session,
            session.get(url, ssl=trusted, raise_for_status=True) as response,
        ):
            found = bytearray()
            async for piece in response.content.iter_any():
                found += piece
                _not_too_much(found)
            return bytes(found)
    except TimeoutError:
        raise OSError(f"no whole answer in {timeout_s:g} s") from None
    except ClientError as error:
        raise OSError(str(error)) from error


def _trusted_authorities() -> SSLContext:
    """Read anew each time: they are exchanged too.

    `create_default_context` also refuses certificates without the key identifiers of RFC 5280, from Python 3.13 on;
    Kafka takes them.
    """
    from ssl import PROTOCOL_TLS_CLIENT, SSLContext

    context = SSLContext(PROTOCOL_TLS_CLIENT)
    context.load_default_certs()
    return context


def _not_too_much(found: B) -> B:
    if len(found) > MAX_BYTES:
        raise OSError(f"it has more than {MAX_BYTES} bytes")
    return found


class KeySource:
    """`keys` are the present ones. Use on the loop thread.

    refresh_ms  from one reading to the next
    retry_ms    after a reading that failed; doubled up to `max_retry_ms`, which also keeps early ones apart
    """

    def __init__(
        self,
        read: Callable[[], bytes],
        workers: Workers,
        timers: Timers,
        *,
        refresh_ms: int,
        retry_ms: int,
        max_retry_ms: int,
    ) -> None:
        """Waits for the first reading. Raises OSError, InvalidKeySet."""
        self.keys: tuple[VerificationKey, ...] = read_key_set(read())
        self._warn_of_none()
        self._read = read
        self._workers = workers
        self._timers = timers
        self._refresh_ms = refresh_ms
        self._first_retry_ms = self._retry_ms = retry_ms
        self._max_retry_ms = max_retry_ms
        self._is_reading = False
        self._may_be_early = True
        self._timer = timers.after(refresh_ms, self._refresh)

    def _warn_of_none(self) -> None:
        if not self.keys:
            log.warning("the JWKS of OAUTHBEARER has no RSA or EC key for signatures: no token is accepted")

    def key_missed(self) -> None:
        if self._may_be_early and not self._is_reading:
            self._may_be_early = False
            self._timers.after(self._max_retry_ms, self._allow_early)
            self._timer.cancel()
            self._refresh()

    def _allow_early(self) -> None:
        self._may_be_early = True

    def _refresh(self) -> None:
        self._is_reading = True
        self._workers.run(lambda: read_key_set(self._read()), self._done)

    def _done(self, outcome: JobResult[tuple[VerificationKey, ...]]) -> None:
        self._is_reading = False
        try:
            self.keys = outcome.result()
        except (OSError, InvalidKeySet) as error:
            log.warning("the keys of OAUTHBEARER tokens stay as they are, since the JWKS cannot be read: %s", error)
            self._timer = self._timers.after(self._retry_ms, self._refresh)
            self._retry_ms = min(2 * self._retry_ms, self._max_retry_ms)
        else:
            self._warn_of_none()
            self._retry_ms = self._first_retry_ms
            self._timer = self._timers.after(self._refresh_ms, self._refresh)
