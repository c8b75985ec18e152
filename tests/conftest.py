"""For every suite: a property holds or does not, however long a busy machine takes to find out."""

from hypothesis import HealthCheck, settings

from tests.support.examples import ARE_THE_SAME, examples

settings.register_profile(
    "unhurried",
    deadline=None,
    derandomize=ARE_THE_SAME,
    max_examples=examples(100),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("unhurried")
