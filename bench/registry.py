"""Measures the schema registry: `python -m bench registry`.

It measures a start with the registry, the process's memory after 1,000 registrations, the rate at which eight clients
register new Avro schemas, and the latency of one client's look-ups by id. The goals are 0.5 s, 100 MB, 1,000
registrations/s, and 5 ms at p99.
"""

from __future__ import annotations

import json
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path

from tests.support.broker_process import BrokerProcess

SETTINGS = {
    "odradek.schema.registry.enable": "true",
    "odradek.schema.registry.port": "0",
    "odradek.schema.registry.compatibility.level": "NONE",
}
CLIENTS = 8
REGISTRATIONS = 1_000
LOOKUPS = 2_000


def register(port: int, client: int) -> None:
    """Registers different schemas, each in its own subject, over one connection."""
    connection = HTTPConnection("127.0.0.1", port)
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    for number in range(REGISTRATIONS // CLIENTS):
        name = f"R{client}_{number}"
        fields = [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}]
        schema = json.dumps({"type": "record", "name": name, "fields": fields})
        connection.request("POST", f"/subjects/{name}/versions", json.dumps({"schema": schema}), headers)
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status == 200, content
    connection.close()


def lookup_times_ms(port: int) -> list[float]:
    """Returns the latencies of look-ups by id in milliseconds, in ascending order."""
    connection = HTTPConnection("127.0.0.1", port)
    found = []
    for number in range(LOOKUPS):
        begin = time.perf_counter()
        connection.request("GET", f"/schemas/ids/{number % REGISTRATIONS + 1}")
        connection.getresponse().read()
        found.append((time.perf_counter() - begin) * 1000)
    connection.close()
    return sorted(found)


def memory_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))) / 1024


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        with BrokerProcess(Path(folder) / "data", SETTINGS) as broker:
            assert isinstance(broker, BrokerProcess)
            start_s = time.perf_counter() - begin
            port, pid = broker.ready["schema_registry_port"], broker.ready["pid"]
            begin = time.perf_counter()
            with ThreadPoolExecutor(CLIENTS) as threads:
                list(threads.map(register, [port] * CLIENTS, range(CLIENTS)))
            registrations = REGISTRATIONS / (time.perf_counter() - begin)
            times = lookup_times_ms(port)
            memory = memory_mb(pid)
    print("| measure | result |\n|---|---|")
    print(f"| start until the ready file | {start_s:.2f} s |")
    print(f"| registrations | {registrations:.0f}/s |")
    print(
        f"| look-up by id, median and p99 | {times[len(times) // 2]:.2f} and {times[len(times) * 99 // 100]:.2f} ms |"
    )
    print(f"| memory after {REGISTRATIONS} registrations | {memory:.0f} MB |")
    print(f"\nLoad of the machine: {Path('/proc/loadavg').read_text().split()[0]}")


if __name__ == "__main__":
    main()
