"""Prints the text of docs/verdicts-presets.md: `python -m tests.client_lab.presets_page > docs/verdicts-presets.md`.

Runs the tours of four clients under each preset, each on a new broker, and judges the recordings. If there is a break
that examined.toml does not list, its proof is printed instead of the page.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from http.client import HTTPException
from itertools import product
from pathlib import Path

from confluent_kafka import KafkaException

from odradek.broker.control.presets.table import PRESETS
from odradek.testing.judge.reports import lines
from odradek.testing.judge.verdicts import BROKEN, KEPT, RuleVerdict, Software
from odradek.testing.sync import Cluster, Refused, Unused
from tests.client_lab.installing import InstalledClient
from tests.client_lab.running import judged_by_itself, judged_clients
from tests.client_lab.states import orders
from tests.client_lab.verdicts_page import TOURS, ExaminedBreak, Tour, read_examined

FOLDER = Path(__file__).parents[2] / ".make" / "presets"
DONE = ".done"
STREAMS = Tour("Kafka Streams 4.4.0", "kafka-streams", "4.4.0", "TourStreams.java")
CLIENTS = ("confluent-kafka", "aiokafka", "kafka-python")
TOURS_AT_ONCE = 8  # number of concurrent tours, which spend most of their time waiting
HELD_S = 3  # time that a client waits for the response to a request that a preset holds
SETTINGS: Mapping[str, Mapping[str, str]] = {
    "prepared-transaction": {"transaction.two.phase.commit.enable": "true"},
    "kept-epoch-nearly-exhausted": {"transaction.two.phase.commit.enable": "true"},
    "rights-withdrawn": {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    },
    "expiring-token": {"delegation.token.secret.key": "a secret of this test"},
}
PARAMETERS: Mapping[str, Mapping[str, str]] = {
    "throttled-client": {"client_id": "judged"},
    "stale-member-epoch": {"group": "h"},  # the tour's KIP-848 group
}
# Presets that need a group member and are therefore applied while the client is running.
WHILE_AT_WORK = {"stale-member-epoch"}
HAS_KIP_848 = {"confluent-kafka"}
TRY_AGAIN_S = 0.1


def bring_about(kafka: Cluster, preset: str) -> None:
    """Applies the preset and creates the topic `orders`."""
    if preset in WHILE_AT_WORK:
        _bring_about_later(kafka, preset)
    else:
        kafka.preset(preset, **PARAMETERS.get(preset, {}))
    with suppress(KafkaException):  # Most presets create the topic themselves.
        orders(kafka)
    _release_later(kafka)


def _bring_about_later(kafka: Cluster, preset: str) -> None:
    """Keeps trying to apply the preset until the group has the member that the preset needs or the broker has
    exited."""
    try:
        kafka.preset(preset, **PARAMETERS.get(preset, {}))
    except Refused:
        timer = threading.Timer(TRY_AGAIN_S, _bring_about_later, [kafka, preset])
        timer.daemon = True
        timer.start()
    except (OSError, HTTPException):
        return


def _release_later(kafka: Cluster) -> None:
    timer = threading.Timer(HELD_S, _release, [kafka])
    timer.daemon = True
    timer.start()


def _release(kafka: Cluster) -> None:
    """Releases all holds repeatedly until the broker exits, because some holds start only with a client's request."""
    try:
        for hold in kafka.holds():
            kafka.release(hold)
    except (OSError, HTTPException, Refused):
        return
    _release_later(kafka)


def judged(preset: str, release: InstalledClient, recording: Path) -> list[Software]:
    """Runs the tour under the preset. Returns the verdicts on its clients, or an empty list if the client did not
    encounter the preset.

    If a complete recording exists, it is judged again, and the tour does not run.
    """
    if preset in WHILE_AT_WORK and not recording.name.endswith(tuple(HAS_KIP_848)):
        return []
    if recording.with_suffix(DONE).exists():
        return judged_clients(recording)
    try:
        found = judged_by_itself(
            release, lambda kafka: bring_about(kafka, preset), recording, settings=SETTINGS.get(preset, {})
        )
    except Unused:
        return []
    recording.with_suffix(DONE).touch()
    return found


def cell(found: list[Software]) -> str:
    if not found:
        return "–"
    broken = sorted({each.rule.id for one in found for each in one.of(BROKEN)})
    kept = {each.rule.id for one in found for each in one.of(KEPT)} - set(broken)
    return ", ".join([str(len(kept)), *(f"**{rule}**" for rule in broken)])


def page(
    found: Mapping[tuple[str, Tour], list[Software]], examined: list[ExaminedBreak], when: datetime
) -> Iterator[str]:
    tours = list(dict.fromkeys(tour for _, tour in found))
    yield "# Verdicts under presets\n"
    yield f"Generated by `python -m tests.client_lab.presets_page` on {when:%Y-%m-%d}.\n"
    presets = list(dict.fromkeys(preset for preset, _ in found))
    shown = f"{len(presets)} of {len(PRESETS)} [presets](../odradek/broker/control/presets/table.py)"
    yield f"The short programs of [verdicts.md](verdicts.md) ran in {shown},"
    yield "each against a fresh broker, and [`odradek judge`](judge.md) judged them. Each cell gives the number of"
    yield "rules that the client kept, and the names of the rules that it broke. – means that the client did not"
    yield f"encounter the preset. A preset's holds were released after {HELD_S} s.\n"
    yield f"| preset | {' | '.join(tour.name for tour in tours)} |"
    yield f"|---|{'---|' * len(tours)}"
    for preset in presets:
        yield f"| `{preset}` | {' | '.join(cell(found[preset, tour]) for tour in tours)} |"
    broken = {(tour.name, verdict.rule.id) for (_, tour), all_ in found.items() for verdict in _broken(all_)}
    if not broken:
        yield "\nNo rule was broken."
        return
    yield "\n## Examined breaks\n"
    yield "| client | rule | clause | the exchanges show |\n|---|---|---|---|"
    for each in examined:
        if (each.client, each.rule) in broken:
            yield each.row()


def _broken(found: list[Software]) -> Iterator[RuleVerdict]:
    for one in found:
        yield from one.of(BROKEN)


def main() -> int:
    """Prints the page for the presets in the arguments, or for all presets if there are no arguments."""
    examined = read_examined()
    known = {(each.client, each.rule) for each in examined}
    tours = {tour: tour.installed() for tour in (*TOURS, STREAMS) if tour.package in (*CLIENTS, STREAMS.package)}
    cells = list(product(sys.argv[1:] or PRESETS, tours))
    FOLDER.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(TOURS_AT_ONCE) as threads:

        def judge(each: tuple[str, Tour]) -> list[Software] | None:
            preset, tour = each
            try:
                return judged(preset, tours[tour], FOLDER / f"{preset}-{tour.package}")
            except (OSError, HTTPException, Refused) as error:
                print(f"{preset} {tour.name}: {error!r}", file=sys.stderr)
                return None

        found: dict[tuple[str, Tour], list[Software]] = {}
        failed = set()
        for (preset, tour), verdicts in zip(cells, threads.map(judge, cells), strict=True):
            if verdicts is None:
                failed.add(preset)
                continue
            found[preset, tour] = verdicts
            print(preset, tour.name, cell(verdicts), file=sys.stderr)
        found = {(preset, tour): verdicts for (preset, tour), verdicts in found.items() if preset not in failed}
    missing = 0
    for (preset, tour), verdicts in found.items():
        for one in verdicts:
            for each in one.of(BROKEN):
                missing += (tour.name, each.rule.id) not in known
                alone = Software(one.name, one.version, verdicts={each.rule.id: each})
                print("\n".join([f"{preset}: {tour.name}", *lines([alone], {})]), file=sys.stderr)
    if missing:
        return 1
    print("\n".join(page(found, examined, datetime.now(UTC))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
