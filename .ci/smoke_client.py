"""Tests an installed Odradek. Starts `odradek serve`, writes records, reads them through a consumer group, and stops
the broker."""

import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kafka import KafkaConsumer, KafkaProducer

RECORDS = [b"record %d" % number for number in range(1000)]


def main(odradek: str, variant: str) -> None:
    directory = Path(tempfile.mkdtemp())
    ready_file = directory / "ready.json"
    words = [odradek, "serve", "--port", "0", "--ready-file", str(ready_file), "--data-dir", str(directory / "data")]
    # The broker gets its own process group, so that Ctrl-Break reaches only the broker and not this script.
    if sys.platform == "win32":
        broker = subprocess.Popen(words, creationflags=subprocess.CREATE_NEW_PROCESS_GROUP)
    else:
        broker = subprocess.Popen(words)
    try:
        while not ready_file.exists():
            assert broker.poll() is None, f"the broker ended with status {broker.returncode}"
            time.sleep(0.01)
        ready = json.loads(ready_file.read_text())
        assert ready["variant"] == variant, f"the broker runs the {ready['variant']} variant"
        address = f"127.0.0.1:{ready['port']}"
        producer = KafkaProducer(bootstrap_servers=address, acks="all")
        for record in RECORDS:
            producer.send("smoke", record)
        producer.flush()
        producer.close()
        consumer = KafkaConsumer(
            "smoke",
            bootstrap_servers=address,
            group_id="smoke",
            auto_offset_reset="earliest",
            consumer_timeout_ms=60_000,
        )
        read = []
        for record in consumer:
            read.append(record.value)
            if len(read) == len(RECORDS):
                break
        consumer.close()
        assert read == RECORDS, f"{len(read)} of {len(RECORDS)} records came back"
    finally:
        broker.send_signal(signal.CTRL_BREAK_EVENT if sys.platform == "win32" else signal.SIGTERM)
    assert broker.wait(30) == 0, "the broker did not stop cleanly after the signal"
    python = sys.version.split()[0]
    print(f"Python {python}, {variant}: {len(RECORDS)} records there and back, ready in {ready['start_ms']} ms")


main(*sys.argv[1:])
