"""Measures the usage of clients with quotas and calculates their throttle times.

Clients that share a quota have one rate over a sliding window. A partition quota also has a token bucket. Nothing is
stored for clients without a quota, or for clients whose last usage is older than the window. Callers pass the current
time in ms. This time may stop or go back, as a wall clock can. Limits are per second. Source:
docs/spec/security.md#s4-2, #s4-3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import floor
from typing import NamedTuple

from odradek.broker.security.quotas.entities import (
    CLIENT_QUOTAS,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    AppliedLimit,
    QuotaEntity,
    SharingClients,
    quota_of,
)

MAX_THROTTLE_MS = 2**31 - 1  # maximum of `throttle_time_ms`


class Windows(NamedTuple):
    """The time windows for measuring: `quota.window.num` samples of `quota.window.size.seconds` each."""

    samples: int = 11
    size_ms: int = 1000

    @property
    def full_ms(self) -> int:
        """The total length of all windows except the current one. A client may use the allowance for this time all at
        once."""
        return (self.samples - 1) * self.size_ms


@dataclass(slots=True)
class Sample:
    begun_ms: float
    last_ms: float
    total: float


class SampledRate:
    """A rate per second, measured over the last `windows.samples` windows."""

    __slots__ = ("_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: deque[Sample] = deque()  # oldest first

    def record(self, amount: float, now_ms: float) -> None:
        """Records usage. A negative `amount` cancels earlier usage."""
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
        """Returns how long the client must pause, in ms, for the rate to fall to `limit`, or 0 if the rate does not
        exceed the limit."""
        elapsed_ms = self._elapsed_ms(now_ms)
        rate = self.total(now_ms) * 1000 / elapsed_ms
        if not rate > limit:
            return 0
        if limit <= 0:  # AlterClientQuotas refuses such a limit, but `max.connection.creation.rate` can be 0
            return MAX_THROTTLE_MS
        return round_throttle_ms((rate - limit) / limit * elapsed_ms)

    def per_second(self, now_ms: float) -> float:
        return self.total(now_ms) * 1000 / self._elapsed_ms(now_ms)

    def total(self, now_ms: float) -> float:
        self._forget(now_ms)
        return sum(sample.total for sample in self._samples)

    def is_over(self, now_ms: float) -> bool:
        """Returns whether the window contains no usage."""
        self._forget(now_ms)
        return not self._samples

    def _forget(self, now_ms: float) -> None:
        """Drops samples whose last usage is outside the window. Also drops samples that are further in the future than
        the window is long, which only happens if the clock was set back."""
        samples, age_ms = self._samples, self._windows.samples * self._windows.size_ms
        while samples and samples[-1].begun_ms - now_ms >= age_ms:
            samples.pop()
        while samples and now_ms - samples[0].last_ms >= age_ms:
            samples.popleft()

    def _elapsed_ms(self, now_ms: float) -> float:
        """Returns the time that the samples cover: at least all full windows plus the elapsed part of the current
        window."""
        self._forget(now_ms)
        elapsed_ms = max(0.0, now_ms - self._samples[0].begun_ms) if self._samples else 0.0
        missing = self._windows.samples - 1 - int(elapsed_ms // self._windows.size_ms)
        return max(elapsed_ms + max(0, missing) * self._windows.size_ms, 1.0)


class TokenBucket:
    """A token bucket that is refilled at the limit's rate. Its capacity is the number of tokens that the limit allows
    over all windows."""

    __slots__ = ("_limit", "_tokens", "_updated_ms", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._limit = 0.0  # the limit at the last usage
        self._tokens: float | None = None  # None for a full bucket
        self._updated_ms = 0.0

    def take(self, tokens: float, limit: float, now_ms: float) -> None:
        """Takes tokens even if there are too few. The number of tokens then becomes negative."""
        self._tokens = self._filled(limit, now_ms) - tokens

    def throttle_ms(self, limit: float, now_ms: float) -> int:
        """Returns the time in ms until the number of tokens is no longer negative."""
        tokens = self._filled(limit, now_ms)
        if tokens >= 0:
            return 0
        return MAX_THROTTLE_MS if limit <= 0 else round_throttle_ms(-tokens * 1000 / limit)

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


def round_throttle_ms(ms: float) -> int:
    """Rounds to whole milliseconds as Java does. The result is at most MAX_THROTTLE_MS."""
    return floor(min(ms, MAX_THROTTLE_MS) + 0.5)


MAX_CACHED_CLIENTS = 10_000  # maximum number of clients whose applicable quotas are cached
FIRST_CLEARANCE = 1_000  # number of rates that triggers the first removal of idle rates


class Usage(NamedTuple):
    """The usage of one quota, as shown by metrics.

    throttle_ms  total time that clients were throttled
    throttled    number of times that clients were throttled
    """

    key: str
    sharers: SharingClients
    limit: float
    per_second: float
    throttle_ms: int
    throttled: int


class SharedRate:
    """The usage of one quota by the clients that share it, with the number of times that these clients were throttled
    and the total time. `bucket` is only set for partition quotas."""

    __slots__ = ("bucket", "limit", "measured", "throttle_ms", "throttled")

    def __init__(self, windows: Windows) -> None:
        self.measured = SampledRate(windows)
        self.bucket: TokenBucket | None = None
        self.limit = 0.0  # the limit at the last usage
        self.throttle_ms = 0
        self.throttled = 0

    def note_throttle(self, throttle_ms: int) -> int:
        if throttle_ms > 0:
            self.throttle_ms += throttle_ms
            self.throttled += 1
        return throttle_ms

    def is_over(self, now_ms: float) -> bool:
        """Returns whether this rate has no recent usage, so that it can be dropped."""
        return self.measured.is_over(now_ms) and (self.bucket is None or self.bucket.is_full(now_ms))


class Metering:
    """Measures the usage of all quotas.

    windows             the windows of all rates
    controller_windows  the windows that determine the size of the token buckets of partition quotas
    """

    def __init__(self, windows: Windows, controller_windows: Windows) -> None:
        self.windows = windows
        self.controller_windows = controller_windows
        self._limits: Mapping[QuotaEntity, Mapping[str, float]] = {}
        self._clients: dict[tuple[str, str], QuotaMeter | None] = {}
        self._rates: dict[tuple[str, SharingClients], SharedRate] = {}
        self._clearance_at = FIRST_CLEARANCE

    def set_limits(self, limits: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Replaces the limits. Recorded usage is kept."""
        self._limits = limits
        self._clients.clear()

    def meter_for(self, user: str, client_id: str) -> QuotaMeter | None:
        """Returns a client's meter, or None if no quota applies to the client. `user` is the principal's name without
        its type."""
        client = (user, client_id)
        if client not in self._clients:
            if len(self._clients) >= MAX_CACHED_CLIENTS:
                self._clients.clear()
            found = {key: quota_of(self._limits, key, user, client_id) for key in CLIENT_QUOTAS}
            applied = {key: one for key, one in found.items() if one is not None}
            self._clients[client] = QuotaMeter(self, applied) if applied else None
        return self._clients[client]

    def usage(self, now_ms: float) -> Iterator[Usage]:
        """Yields all rates with recent usage."""
        for (key, sharers), rate in self._rates.items():
            if not rate.is_over(now_ms):
                per_second = rate.measured.per_second(now_ms)
                yield Usage(key, sharers, rate.limit, per_second, rate.throttle_ms, rate.throttled)

    @property
    def rate_count(self) -> int:
        return len(self._rates)

    def rate(self, key: str, applied: AppliedLimit, now_ms: float) -> SharedRate:
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
        """Drops rates that have no recent usage, because clients can invent any number of client ids."""
        self._rates = {of: rate for of, rate in self._rates.items() if not rate.is_over(now_ms)}
        self._clearance_at = max(FIRST_CLEARANCE, 2 * len(self._rates))


class QuotaMeter:
    """The meter of a client to which at least one quota applies. Its `record` methods return how long to throttle the
    client, in ms."""

    __slots__ = ("_applied", "_metering")

    def __init__(self, metering: Metering, applied: Mapping[str, AppliedLimit]) -> None:
        self._metering = metering
        self._applied = applied

    def record_produce(self, size_bytes: int, now_ms: float) -> int:
        """Records a Produce request of this size."""
        return self._record_use(PRODUCER_BYTE_RATE, size_bytes, now_ms)

    def record_fetch(self, size_bytes: int, now_ms: float) -> int:
        """Records a response of this size. A negative `size_bytes` cancels an earlier record of a response that is not
        sent."""
        return self._record_use(CONSUMER_BYTE_RATE, size_bytes, now_ms)

    def record_handling(self, time_s: float, now_ms: float) -> int:
        """Records a request that took this long to handle. The throttle time is at most one window."""
        return self._record_use(REQUEST_PERCENTAGE, time_s * 100, now_ms, max_ms=self._metering.windows.size_ms)

    @property
    def max_fetched_bytes(self) -> int | None:
        """The maximum size of a response to a client that has not fetched anything yet, or None if the client has no
        limit."""
        applied = self._applied.get(CONSUMER_BYTE_RATE)
        return None if applied is None else int(applied.limit * self._metering.windows.full_ms / 1000)

    def record_mutation(self, partitions: int, now_ms: float, *, is_strict: bool) -> int:
        """Records the creation or deletion of partitions. If `is_strict` is set and the result is not 0, nothing has
        been recorded, and the caller must refuse the request."""
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

    def note_throttle(self, key: str, throttle_ms: int, now_ms: float) -> None:
        """Records that the client has been throttled because of the quota for `key`."""
        applied = self._applied.get(key)
        if applied is not None:
            self._metering.rate(key, applied, now_ms).note_throttle(throttle_ms)

    def _record_use(self, key: str, amount: float, now_ms: float, max_ms: int | None = None) -> int:
        applied = self._applied.get(key)
        if applied is None:
            return 0
        rate = self._metering.rate(key, applied, now_ms)
        rate.measured.record(amount, now_ms)
        throttle_ms = rate.measured.throttle_ms(applied.limit, now_ms)
        return throttle_ms if max_ms is None else min(throttle_ms, max_ms)
