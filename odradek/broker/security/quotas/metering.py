"""Use of what client quotas limit, and the throttling that follows from it.

State: a rate over a sliding window, and for partitions a bucket of tokens, for each kind of quota and those who share
it. Nothing is kept of clients without a quota, nor of those whose use has left the window. Times come in, in ms; they
may stand still or go back, as wall clocks do. Limits are per second. Source: docs/spec/security.md#s4-2, #s4-3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import floor
from typing import NamedTuple

from odradek.broker.security.quotas.entities import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    OF_CLIENTS,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Applied,
    QuotaEntity,
    Sharers,
    quota_of,
)

LONGEST_THROTTLE_MS = 2**31 - 1  # what `throttle_time_ms` can hold


class Windows(NamedTuple):
    """`quota.window.num` samples of `quota.window.size.seconds`."""

    samples: int = 11
    size_ms: int = 1000

    @property
    def full_ms(self) -> int:
        """Returns the factor of its limit that a client may use at once."""
        return (self.samples - 1) * self.size_ms


@dataclass(slots=True)
class Sample:
    begun_ms: float
    last_ms: float
    total: float


class SampledRate:
    """A rate over the last `windows.samples` windows, per second."""

    __slots__ = ("_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: deque[Sample] = deque()  # the oldest first

    def record(self, amount: float, now_ms: float) -> None:
        """amount: negative to take back what was recorded."""
        samples = self._samples
        if samples and now_ms < samples[-1].begun_ms:
            self._forget(now_ms)
        if not samples or now_ms - samples[-1].begun_ms >= self._windows.size_ms:
            samples.append(Sample(now_ms, now_ms, 0.0))
            if len(samples) > self._windows.samples + 1:
                samples.popleft()
        newest = samples[-1]
        newest.total += amount
        newest.last_ms = now_ms

    def throttle_ms(self, limit: float, now_ms: float) -> int:
        """How long nothing more may come for the rate to fall to `limit`; 0 where it does not exceed it."""
        elapsed_ms = self._elapsed_ms(now_ms)
        rate = self.total(now_ms) * 1000 / elapsed_ms
        if not rate > limit:
            return 0
        if limit <= 0:  # which no request can set
            return LONGEST_THROTTLE_MS
        return rounded((rate - limit) / limit * elapsed_ms)

    def per_second(self, now_ms: float) -> float:
        return self.total(now_ms) * 1000 / self._elapsed_ms(now_ms)

    def total(self, now_ms: float) -> float:
        self._forget(now_ms)
        return sum(sample.total for sample in self._samples)

    def is_over(self, now_ms: float) -> bool:
        """Whether nothing is remembered any more."""
        self._forget(now_ms)
        return not self._samples

    def _forget(self, now_ms: float) -> None:
        """Samples go when their last event is out of the window, or the clock was set back by more than that."""
        samples, age_ms = self._samples, self._windows.samples * self._windows.size_ms
        while samples and samples[-1].begun_ms - now_ms >= age_ms:
            samples.pop()
        while samples and now_ms - samples[0].last_ms >= age_ms:
            samples.popleft()

    def _elapsed_ms(self, now_ms: float) -> float:
        """The time that the samples are taken to cover: at least all windows but the running one, and that."""
        self._forget(now_ms)
        elapsed_ms = max(0.0, now_ms - self._samples[0].begun_ms) if self._samples else 0.0
        missing = self._windows.samples - 1 - int(elapsed_ms // self._windows.size_ms)
        return max(elapsed_ms + max(0, missing) * self._windows.size_ms, 1.0)


class TokenBucket:
    """Tokens that come back at the rate of the limit, up to what all windows together give."""

    __slots__ = ("_limit", "_tokens", "_updated_ms", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._limit = 0.0  # the last one
        self._tokens: float | None = None  # None: full
        self._updated_ms = 0.0

    def take(self, tokens: float, limit: float, now_ms: float) -> None:
        """Also where there are not so many: then the bucket goes below zero."""
        self._tokens = self._filled(limit, now_ms) - tokens

    def throttle_ms(self, limit: float, now_ms: float) -> int:
        """How long until it is not below zero any more."""
        tokens = self._filled(limit, now_ms)
        if tokens >= 0:
            return 0
        return LONGEST_THROTTLE_MS if limit <= 0 else rounded(-tokens * 1000 / limit)

    def is_full(self, now_ms: float) -> bool:
        return self._filled(self._limit, now_ms) >= self._most(self._limit)

    def _most(self, limit: float) -> float:
        return self._windows.samples * self._windows.size_ms / 1000 * limit

    def _filled(self, limit: float, now_ms: float) -> float:
        most = self._most(limit)
        if self._tokens is None:
            tokens = most
        else:
            tokens = min(most, self._tokens + limit * max(0.0, now_ms - self._updated_ms) / 1000)
        self._tokens, self._updated_ms, self._limit = tokens, now_ms, limit
        return tokens


def rounded(ms: float) -> int:
    """Rounds as Java does, to no more than fits."""
    return floor(min(ms, LONGEST_THROTTLE_MS) + 0.5)


MOST_CLIENTS_KNOWN = 10_000  # whose quotas are remembered, so as not to be looked for at each request
FIRST_CLEARANCE = 1_000  # rates


class Usage(NamedTuple):
    """A rate as metrics show it. throttle_ms: the sum of the times for which clients were throttled; how often."""

    key: str
    sharers: Sharers
    limit: float
    per_second: float
    throttle_ms: int
    throttled: int


class SharedRate:
    """Use of a quota by those who share it, and the throttling that followed. bucket: of partitions, else None."""

    __slots__ = ("bucket", "limit", "measured", "throttle_ms", "throttled")

    def __init__(self, windows: Windows) -> None:
        self.measured = SampledRate(windows)
        self.bucket: TokenBucket | None = None
        self.limit = 0.0  # when it was used last
        self.throttle_ms = 0
        self.throttled = 0

    def told(self, throttle_ms: int) -> int:
        if throttle_ms > 0:
            self.throttle_ms += throttle_ms
            self.throttled += 1
        return throttle_ms

    def is_over(self, now_ms: float) -> bool:
        """Whether it is as good as a new one. A full bucket is."""
        return self.measured.is_over(now_ms) and (self.bucket is None or self.bucket.is_full(now_ms))


class Metering:
    """windows: of all quotas but those of partitions, which have `controller_windows`."""

    def __init__(self, windows: Windows, controller_windows: Windows) -> None:
        self.windows = windows
        self.controller_windows = controller_windows
        self._limits: Mapping[QuotaEntity, Mapping[str, float]] = {}
        self._clients: dict[tuple[str, str], QuotaMeter | None] = {}
        self._rates: dict[tuple[str, Sharers], SharedRate] = {}
        self._clearance_at = FIRST_CLEARANCE

    def set_limits(self, limits: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """`limits` have changed, or are others. What has been used stays known."""
        self._limits = limits
        self._clients.clear()

    def of(self, user: str, client_id: str) -> QuotaMeter | None:
        """user: the name of the principal, without its type. None where no quota applies to this client."""
        client = (user, client_id)
        if client not in self._clients:
            if len(self._clients) >= MOST_CLIENTS_KNOWN:
                self._clients.clear()
            found = {key: quota_of(self._limits, key, user, client_id) for key in OF_CLIENTS}
            applied = {key: one for key, one in found.items() if one is not None}
            self._clients[client] = QuotaMeter(self, applied) if applied else None
        return self._clients[client]

    def usage(self, now_ms: float) -> Iterator[Usage]:
        """Lists the rates of all that have used something lately."""
        for (key, sharers), rate in self._rates.items():
            if not rate.is_over(now_ms):
                per_second = rate.measured.per_second(now_ms)
                yield Usage(key, sharers, rate.limit, per_second, rate.throttle_ms, rate.throttled)

    @property
    def rate_count(self) -> int:
        return len(self._rates)

    def rate(self, key: str, applied: Applied, now_ms: float) -> SharedRate:
        rate = self._rates.get((key, applied.sharers))
        if rate is None:
            if len(self._rates) >= self._clearance_at:
                self._clear(now_ms)
            rate = self._rates[key, applied.sharers] = SharedRate(self.windows)
            if key == CONTROLLER_MUTATION_RATE:
                rate.bucket = TokenBucket(self.controller_windows)
        rate.limit = applied.limit
        return rate

    def _clear(self, now_ms: float) -> None:
        """Forget those that have not been here lately: client ids are free to invent."""
        self._rates = {of: rate for of, rate in self._rates.items() if not rate.is_over(now_ms)}
        self._clearance_at = max(FIRST_CLEARANCE, 2 * len(self._rates))


class QuotaMeter:
    """One client that some quota applies to. Each question says how long to throttle the client, in ms."""

    __slots__ = ("_applied", "_metering")

    def __init__(self, metering: Metering, applied: Mapping[str, Applied]) -> None:
        self._metering = metering
        self._applied = applied

    def produced(self, size_bytes: int, now_ms: float) -> int:
        """For a Produce of this size."""
        return self._used(PRODUCER_BYTE_RATE, size_bytes, now_ms)

    def fetched(self, size_bytes: int, now_ms: float) -> int:
        """For an answer of this size. Negative: of one that is not sent after all."""
        return self._used(CONSUMER_BYTE_RATE, size_bytes, now_ms)

    def handled(self, time_s: float, now_ms: float) -> int:
        """For a request that took a thread this time: never longer than one window."""
        return self._used(REQUEST_PERCENTAGE, time_s * 100, now_ms, most_ms=self._metering.windows.size_ms)

    @property
    def most_fetched_bytes(self) -> int | None:
        """The largest answer for a client that has fetched nothing yet; None where that has no limit."""
        applied = self._applied.get(CONSUMER_BYTE_RATE)
        return None if applied is None else int(applied.limit * self._metering.windows.full_ms / 1000)

    def mutated(self, partitions: int, now_ms: float, *, is_strict: bool) -> int:
        """For partitions that are created or deleted. is_strict: where the answer is not 0, they must not be."""
        applied = self._applied.get(CONTROLLER_MUTATION_RATE)
        if applied is None:
            return 0
        rate = self._metering.rate(CONTROLLER_MUTATION_RATE, applied, now_ms)
        assert rate.bucket is not None
        if is_strict:
            throttle_ms = rate.bucket.throttle_ms(applied.limit, now_ms)
            if throttle_ms:
                return throttle_ms
        rate.bucket.take(partitions, applied.limit, now_ms)
        rate.measured.record(partitions, now_ms)
        return 0 if is_strict else rate.bucket.throttle_ms(applied.limit, now_ms)

    def told(self, key: str, throttle_ms: int, now_ms: float) -> None:
        """The client has been throttled for this kind of quota."""
        applied = self._applied.get(key)
        if applied is not None:
            self._metering.rate(key, applied, now_ms).told(throttle_ms)

    def _used(self, key: str, amount: float, now_ms: float, most_ms: int | None = None) -> int:
        applied = self._applied.get(key)
        if applied is None:
            return 0
        rate = self._metering.rate(key, applied, now_ms)
        rate.measured.record(amount, now_ms)
        throttle_ms = rate.measured.throttle_ms(applied.limit, now_ms)
        return throttle_ms if most_ms is None else min(throttle_ms, most_ms)
