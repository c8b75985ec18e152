"""Tests that brokers wait before they request a topology's description again: docs/spec/streams-groups.md#s10, #s13-7.

Both brokers are tested simultaneously, because the first pause takes half a minute.
tests/spec/streams_groups/test_descriptions.py tests the later pauses.
"""

import time
from pathlib import Path

from tests.conformance.streams_scene import ALL, SETTINGS, Scene, subtopology, talk_to, topology
from tests.conformance.test_streams_group_brokers import PLUGIN
from tests.support.broker_process import BrokerProcess, KafkaProcess
from tests.support.oracle import needs_kafka

pytestmark = needs_kafka

BEAT_S = 0.2
SHORTEST_S = 24.0  # 30 s minus 20 %
PATIENCE_S = 90.0


def test_scenario_115_nobody_is_asked_again_before_half_a_minute_has_passed(tmp_path: Path) -> None:
    settings = {**SETTINGS, "group.streams.topology.description.plugin.class": PLUGIN}
    with (
        KafkaProcess(tmp_path / "kafka", settings, heap="-Xmx512M") as kafka,
        BrokerProcess(tmp_path / "odradek", settings) as odradek,
    ):
        scenes = [Scene(talk_to(broker), "undescribed", broker.name == "kafka") for broker in (kafka, odradek)]
        for scene in scenes:
            scene.make_source("source", 4)
        members = {scene.is_kafka: scene.member("a") for scene in scenes}
        request_times: dict[bool, list[float]] = {is_kafka: [] for is_kafka in members}
        for scene in scenes:
            scene.topology = topology(subtopology("0", [scene.named("source")]))
            joined = members[scene.is_kafka].join()
            assert (joined.active, joined.response.topology_description_required) == (ALL, True)
            request_times[scene.is_kafka].append(time.monotonic())
        deadline = time.monotonic() + PATIENCE_S
        while any(len(times) < 2 for times in request_times.values()):
            assert time.monotonic() < deadline, request_times
            time.sleep(BEAT_S)
            for is_kafka, member in members.items():
                if member.beat().response.topology_description_required:
                    request_times[is_kafka].append(time.monotonic())
        for scene in scenes:
            scene.talk.close()
    assert [times[1] - times[0] >= SHORTEST_S for times in request_times.values()] == [True, True]
