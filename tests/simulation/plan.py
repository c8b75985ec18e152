"""The properties that a seed determines: the broker's configuration, the weather, and the frequency of crashes."""

from dataclasses import dataclass
from random import Random

from odradek.broker.configuration.config import BrokerConfig
from tests.simulation.network import Weather
from tests.support.metadata import config_with


@dataclass(frozen=True, slots=True)
class Plan:
    """The properties of one seed's world."""

    level: int  # level of transaction.version
    is_durable: bool  # whether acknowledgements wait for an fsync, in which case power failures are possible too
    crashes_every_ms: int | None
    faults_every_ms: int | None
    weather: Weather
    is_compacting: bool  # whether closed segments of internal topics are compacted continuously
    duration_ms: int = 6_000

    @classmethod
    def drawn(cls, rng: Random) -> "Plan":
        return cls(
            level=rng.choice([2, 2, 2, 2, 1, 0]),
            is_durable=rng.random() < 0.3,
            crashes_every_ms=rng.choice([None, 700, 2_000, 5_000]),
            faults_every_ms=rng.choice([None, None, 1_000, 4_000]),
            weather=rng.choice([Weather(0, 0, 0), Weather(), Weather(0.1, 0.1, 0.1)]),
            is_compacting=rng.random() < 0.5,
        )


def broker_config(is_durable: bool, **settings: str) -> BrokerConfig:
    """Returns a configuration with few partitions for internal topics and with short intervals for background work."""
    if is_durable:
        settings["log_flush_interval_messages"] = "1"
    defaults = {
        "transaction_state_log_num_partitions": "2",
        "offsets_topic_num_partitions": "2",
        "transaction_abort_timed_out_transaction_cleanup_interval_ms": "500",
        "log_cleaner_backoff_ms": "150",
        "log_initial_task_delay_ms": "100",
        "log_flush_offset_checkpoint_interval_ms": "2000",
    }
    return config_with(**(defaults | settings))
