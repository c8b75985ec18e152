"""Tests that the schema registry loses no acknowledged schema and assigns no id twice, even if the broker is killed.

Several clients register schemas concurrently. Some schemas are registered by a single client, others by all clients.
After each kill, each acknowledged schema has its id and a version in its subject, and no id belongs to two schemas.
There are ROUNDS kills, at most 20. SEED repeats a run's choices (not its interleavings).
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from http.client import HTTPException
from pathlib import Path

from tests.support.broker_process import BrokerProcess
from tests.support.registry_caller import SETTINGS, RegistryCaller, record

ROUNDS = min(20, int(os.environ.get("ROUNDS", "20")))
SEED = int(os.environ.get("SEED") or time.time_ns() % 1_000_000)
CLIENTS = 4
SUBJECTS = [f"subject-{number}" for number in range(5)]
MAX_ROUND_S = 0.8
MAX_ROUNDS = 100  # limit for rounds beyond ROUNDS, which run until a schema is acknowledged
Acknowledged = dict[tuple[str, str], int]  # id by subject and schema


class Registrations(threading.Thread):
    """Registers schemas until the broker is killed."""

    def __init__(self, broker: BrokerProcess, name: str, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.acknowledged: Acknowledged = {}
        self.refused: list[object] = []
        self._registry = RegistryCaller(broker)
        self._rng = random.Random(seed)

    def run(self) -> None:
        number = 0
        try:
            while True:
                number += 1
                shared = self._rng.random() < 0.5
                field = f"shared_{self._rng.randrange(40)}" if shared else f"{self.name}_{number}"
                self._register(self._rng.choice(SUBJECTS), record(field))
        except (OSError, HTTPException):  # The broker was killed.
            return

    def _register(self, subject: str, schema: str) -> None:
        status, answer = self._registry.ask("POST", f"/subjects/{subject}/versions", {"schema": schema})
        if status == 200:
            self.acknowledged[subject, schema] = answer["id"]
        else:
            self.refused.append(answer)


def stored(registry: RegistryCaller) -> tuple[dict[int, str], Acknowledged]:
    """Returns the schemas by id, and the ids by subject and schema. Fails if an id has two schemas, a schema has two
    ids, or a subject has two versions with the same number."""
    status, found = registry.ask("GET", "/schemas?deleted=true")
    assert status == 200
    by_id: dict[int, str] = {}
    by_subject: Acknowledged = {}
    numbers: dict[str, list[int]] = {}
    for each in found:
        schema = json.dumps(json.loads(each["schema"]))
        assert by_id.setdefault(each["id"], schema) == schema, f"SEED={SEED}: the id {each['id']} has two schemas"
        by_subject[each["subject"], schema] = each["id"]
        numbers.setdefault(each["subject"], []).append(each["version"])
    assert len(set(by_id.values())) == len(by_id), f"SEED={SEED}: a schema has two ids"
    for subject, versions in numbers.items():
        assert versions == list(range(1, len(versions) + 1)), f"SEED={SEED}: {subject}"
    return by_id, by_subject


def test_ids_stay_unique_and_no_acknowledged_schema_is_lost(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    acknowledged: Acknowledged = {}
    ids: dict[int, str] = {}
    with BrokerProcess(
        tmp_path / "data", {**SETTINGS, "odradek.schema.registry.compatibility.level": "NONE"}
    ) as broker:
        assert isinstance(broker, BrokerProcess)
        registry = RegistryCaller(broker)
        number = 0
        while number < ROUNDS or not acknowledged:
            clients = [Registrations(broker, f"c{number}_{each}", rng.randrange(1 << 32)) for each in range(CLIENTS)]
            for each in clients:
                each.start()
            time.sleep(rng.random() * MAX_ROUND_S)  # The broker dies at a random moment.
            broker.kill9()
            for each in clients:
                each.join()
                assert each.refused == [], f"SEED={SEED}, round {number}"
                acknowledged |= {key: each.acknowledged[key] for key in each.acknowledged}
            broker.start()
            by_id, by_subject = stored(registry)
            lost = {key: found for key, found in acknowledged.items() if by_subject.get(key) != found}
            assert lost == {}, f"SEED={SEED}, round {number}"
            changed = {each: schema for each, schema in ids.items() if by_id.get(each) != schema}
            assert changed == {}, f"SEED={SEED}, round {number}: ids changed their meaning"
            ids = by_id
            number += 1
            assert number < MAX_ROUNDS, "no schema was ever acknowledged"
