"""Tests that Kafka's codec reads every message that Odradek's codec writes, at every version, and writes the same bytes
again.

Recorded exchanges contain only messages that clients happened to send. Here the values are random, and records of
internal topics are included.
"""

import subprocess
from pathlib import Path
from random import Random

from odradek.protocol import kip_1289
from odradek.protocol.codec import encode
from odradek.protocol.schema import load
from tests.support.broker_process import REFERENCE
from tests.support.message_values import LargeChoices, RandomChoices, build_message, versions
from tests.support.oracle import needs_kafka, run_kafka

pytestmark = needs_kafka

SOURCE = Path(__file__).with_name("Reencode.java")
SEEDS = 20


def lines() -> list[str]:
    found = []
    for module, version in versions():
        if load(module).key == kip_1289.API_KEY:  # No Kafka release has this API.
            continue
        for seed in range(SEEDS):
            rng = Random(f"{module} {version} {seed}")
            choices = LargeChoices(rng, longest=150) if seed == 0 else RandomChoices(rng)
            written = encode(build_message(module, version, choices), version)
            found.append(f"{load(module).name} {version} {written.hex()}")
    return found


def test_every_message_comes_back_byte_for_byte(tmp_path: Path) -> None:
    classpath = run_kafka("classpath", "--version", REFERENCE).strip()
    subprocess.run(["javac", "-cp", classpath, "-d", tmp_path, SOURCE], check=True)
    sent = lines()
    java = ["java", "-cp", f"{classpath}:{tmp_path}", "Reencode"]
    answer = subprocess.run(java, input="\n".join(sent), capture_output=True, text=True, check=True, timeout=300)
    received = answer.stdout.splitlines()
    assert len(received) == len(sent)
    different = [(ours, theirs) for ours, theirs in zip(sent, received, strict=True) if ours.split(" ")[2] != theirs]
    assert not different, f"{len(different)} of {len(sent)}, the first: {different[0]}"
