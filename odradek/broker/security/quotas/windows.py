"""The arithmetic of quotas: a rate over a sliding window, and a bucket of tokens. Source: docs/spec/security.md#s4-3.

Times come in, in ms; they may stand still or go back, as wall clocks do. Limits are per second.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import floor
from typing import NamedTuple

LONGEST_THROTTLE_MS = 2**31 - 1  # what `throttle_time_ms` can hold


class Windows(NamedTuple):
    """`quota.window.num` samples of `quota.window.size.seconds`."""

    samples: int = 11
    size_ms: int = 1000

    @property
    def full_ms(self) -> int:
        """What a client may use at once is its limit times this."""
        return (self.samples - 1) * self.size_ms


@dataclass(slots=True)
class Sample:
    begun_ms: float
    last_ms: float
    total: float


class SampledRate:
    """What came in the last `windows.samples` windows, per second."""

    __slots__ = ("_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: deque[Sample] = deque()  # the oldest first

    def record(self, amount: float, now_ms: float) -> None:
        """amount: negative to take back what was recorded."""
        samples = self._samples
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
        """Samples go when their last event is out of the window."""
        samples, age_ms = self._samples, self._windows.samples * self._windows.size_ms
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
    """As Java rounds, and no more than fits."""
    return floor(min(ms, LONGEST_THROTTLE_MS) + 0.5)
