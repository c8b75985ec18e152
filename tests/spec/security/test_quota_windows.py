"""Tests measured rates and the resulting throttle times (docs/spec/security.md#s4-3)."""

import pytest

from odradek.broker.security.quotas.metering import MAX_THROTTLE_MS, SampledRate, TokenBucket, Windows

WINDOWS = Windows(11, 1000)
T0 = 1_800_000_000_000


def rate(*recorded: tuple[float, int]) -> SampledRate:
    """Returns a rate with the given samples, each as (amount, ms after T0)."""
    found = SampledRate(WINDOWS)
    for amount, after_ms in recorded:
        found.record(amount, T0 + after_ms)
    return found


def test_ten_seconds_worth_of_the_limit_are_free_at_the_start() -> None:
    assert rate((100_000, 0)).throttle_ms(10_000, T0) == 0
    assert rate((100_010, 0)).throttle_ms(10_000, T0) == 1


def test_scenario_144_fifteen_seconds_worth_within_moments_are_throttled_for_five() -> None:
    assert rate((75_000, 0), (75_000, 35)).throttle_ms(10_000, T0 + 35) == 4965


def test_the_throttle_is_the_time_after_which_the_rate_has_fallen_to_the_limit() -> None:
    used = rate((150_000, 0))
    throttle_ms = used.throttle_ms(10_000, T0)
    assert throttle_ms == 5000
    assert (
        used.throttle_ms(10_000, T0 + throttle_ms) == 5000
    )  # As in Kafka, the samples are averaged over ten windows even while there are fewer windows.
    assert used.throttle_ms(10_000, T0 + 10_999) == 4001
    assert used.throttle_ms(10_000, T0 + 11_000) == 0


def test_the_window_grows_from_ten_full_samples_to_eleven() -> None:
    used = rate(*((1_000, 1000 * second) for second in range(30)))
    assert used.total(T0 + 29_000) == 11_000
    assert used.per_second(T0 + 29_000) == 1_100
    assert used.per_second(T0 + 29_999) == pytest.approx(11_000 / 10.999)


def test_a_sample_goes_when_its_last_event_has_left_the_window() -> None:
    used = rate((500, 0), (500, 999), (1, 5_000))
    assert used.total(T0 + 11_998) == 1001
    assert used.total(T0 + 11_999) == 1


def test_reverted_usage_does_not_count() -> None:
    used = rate((150_000, 0), (-150_000, 0), (50_000, 10))
    assert used.throttle_ms(10_000, T0 + 10) == 0


def test_a_clock_that_goes_back_does_no_harm() -> None:
    used = rate((50_000, 0), (50_000, -5_000), (50_000, 100))
    assert used.throttle_ms(10_000, T0 - 5_000) == 5_000
    assert used.throttle_ms(10_000, T0 + 100) == 4_900


def test_a_clock_that_is_set_back_by_hours_throttles_nobody_for_hours() -> None:
    """Checks that samples in the future are dropped. Otherwise, they would not expire for hours, and all usage until
    then would count."""
    used = rate((100_000, 0))
    for second in range(600):
        used.record(9_900, T0 - 3 * 3_600_000 + 1000 * second)
    assert used.throttle_ms(10_000, T0 - 3 * 3_600_000 + 599_999) == 0


def test_a_throttle_fits_into_its_field_however_small_the_limit() -> None:
    assert rate((1e12, 0)).throttle_ms(0.001, T0) == MAX_THROTTLE_MS
    assert rate((1, 0)).throttle_ms(0, T0) == MAX_THROTTLE_MS


def test_a_limit_that_is_no_number_limits_nothing() -> None:
    assert rate((1e12, 0)).throttle_ms(float("nan"), T0) == 0


def test_scenario_147_a_bucket_holds_all_windows_and_may_go_below_zero_once() -> None:
    bucket = TokenBucket(WINDOWS)
    bucket.take(11, 1, T0)
    assert bucket.throttle_ms(1, T0) == 0
    bucket.take(6, 1, T0)
    assert bucket.throttle_ms(1, T0) == 6000
    assert bucket.throttle_ms(1, T0 + 45) == 5955
    assert bucket.throttle_ms(1, T0 + 6000) == 0


def test_a_bucket_fills_up_at_the_rate_of_the_limit_and_no_further() -> None:
    bucket = TokenBucket(WINDOWS)
    bucket.take(11, 1, T0)
    assert not bucket.is_full(T0 + 10_999)
    assert bucket.is_full(T0 + 11_000)
    bucket.take(12, 1, T0 + 1_000_000)
    assert bucket.throttle_ms(1, T0 + 1_000_000) == 1000
