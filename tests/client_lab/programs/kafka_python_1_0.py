"""An application based on kafka-python 1.0, for Python 3.6. The last line that it prints is its result."""

import os
import sys
import time
from typing import Iterable  # noqa: UP035

from kafka import KafkaConsumer
from kafka.common import KafkaError
from kafka.consumer.subscription_state import ConsumerRebalanceListener

AT = os.environ["ODRADEK_BOOTSTRAP"]


def commit_late() -> str:
    consumer = KafkaConsumer(
        bootstrap_servers=AT, group_id="g", api_version="0.9", enable_auto_commit=False, heartbeat_interval_ms=500,
        session_timeout_ms=6_000, metadata_max_age_ms=1_000,
    )  # fmt: skip

    class Pause(ConsumerRebalanceListener):  # type: ignore[misc]
        """Pauses every assigned partition, because the broker does not support this release's version of Fetch."""

        def on_partitions_revoked(self, revoked: object) -> None:
            pass

        def on_partitions_assigned(self, assigned: Iterable[object]) -> None:
            consumer.pause(*assigned)

    consumer.subscribe(["orders"], listener=Pause())
    until_s = time.monotonic() + 12
    while time.monotonic() < until_s:
        consumer.poll(100)
    consumer.commit()
    return "committed"


try:
    print(globals()[sys.argv[1]](), flush=True)
except KafkaError as error:
    print(f"raised {error!r}", flush=True)
os._exit(0)
