"""Runs the broker as a process: the event loop, signals, the ready line, the ready file and the exit status."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.broker.runtime.starting import CannotStart
from odradek.broker.serving import ServingBroker
from odradek.protocol.variant import variant, variant_for_people
from odradek.storage.log import LogFailed
from odradek.system.processes import allow_many_open_files, new_event_loop, on_stop

if TYPE_CHECKING:
    from aiohttp import web

    from odradek.broker.configuration.config import BrokerConfig
    from odradek.broker.control.clusters.clusters import Clusters
    from odradek.broker.control.clusters.releases import Release
    from odradek.broker.control.recording.recorder import Recorder
    from odradek.broker.serving import Prepare
    from odradek.seeds.plan import SeedPlan

__all__ = ["CannotStart", "InitialControl", "serve"]

log = logging.getLogger("odradek")

# Garbage collection thresholds for the three generations, in objects for the youngest generation and in collections for
# the others. A collection visits the live objects created since the previous collection, at 0.1 to 0.2 µs per object.
# It visits up to 5,000 objects, and every sixth time up to 30,000. A full collection would happen after 30 million new
# objects.
COLLECT_AFTER = (5_000, 5, 1_000)
# Maximum time that the loop waits before each event for a thread that is running Python, for instance to decode a long
# request. With CPython's default of 5 ms, long requests on 500 connections delayed another client by 1.6 s of CPU time.
# With this value, the delay was 0.9 s.
SWITCH_S = 0.0001
IN_FLIGHT_TIMEOUT_S = 5.0  # maximum time that a stopping broker waits for its responses to be sent


@dataclass(frozen=True, slots=True)
class InitialControl:
    """The initial control settings of the process's default cluster.

    rules    a JSON or YAML file with one fault rule or a list of rules
    seed     the seed for odd responses
    emulate  the Kafka release to emulate
    """

    rules: Path | None = None
    seed: int = 0
    emulate: str | None = None

    def release(self) -> Release | None:
        """Returns the release to emulate, or None if no release is emulated. Raises CannotStart if the release is
        unknown."""
        if self.emulate is None:
            return None
        from odradek.broker.control.clusters.releases import release_named
        from odradek.broker.control.problems import Problem  # imported here because most brokers are not controlled

        try:
            return release_named(self.emulate)
        except Problem as error:
            raise CannotStart(f"--{error}") from None

    def apply_to(self, clusters: Clusters) -> None:
        """Applies the rules and the seed to the default cluster. Raises CannotStart or OSError."""
        # Imported here because most brokers are not controlled.
        from odradek.broker.control.clusters.clusters import DEFAULT
        from odradek.broker.control.problems import Problem

        faults = clusters.get(DEFAULT).faults
        if self.rules is not None:
            try:
                rules = _parsed(self.rules)
                faults.add(rules)
                faults.record_call("POST", "/faults", rules)
            except (ValueError, Problem) as error:
                raise CannotStart(f"--faults {self.rules}: {error}") from None
        if self.seed:
            faults.be_odd(self.seed)
            faults.record_call("POST", "/odd", {"seed": self.seed})


def _parsed(path: Path) -> object:
    """Parses a file as YAML if it has a YAML file extension, otherwise as JSON. Raises CannotStart, OSError or
    ValueError."""
    text = path.read_text(encoding="utf-8")
    try:
        return _yaml(text, path) if path.suffix in (".yaml", ".yml") else json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _yaml(text: str, path: Path) -> object:
    try:
        import yaml  # installed by odradek[yaml]
    except ModuleNotFoundError:
        raise CannotStart(f"--faults {path}: YAML needs PyYAML: pip install 'odradek[yaml]', or write JSON") from None
    try:
        # The round trip through JSON rejects values that JSON does not have, such as dates.
        return json.loads(json.dumps(yaml.safe_load(text)))
    except (yaml.YAMLError, TypeError) as error:
        raise ValueError(" ".join(str(error).split())) from None


def serve(
    config: BrokerConfig,
    ready_file: Path | None,
    milliseconds_since_start: Callable[[], int],
    ready_note: str | None = None,
    record: Path | None = None,
    control: InitialControl | None = None,
    seed: SeedPlan | None = None,
) -> int:
    """Serves clients until a signal stops the broker, and returns the exit status. A second signal ends the process
    immediately.

    ready_note  text to print after the ready line; {node_id} is replaced by the broker's id
    record      a file that is overwritten with a recording of the requests and responses
    control     the initial control settings; they apply only if the control interface is enabled
    seed        the plan for the objects to create before the broker accepts clients
    raises      CannotStart, or OSError if the disk fails or the ready file cannot be written
    """
    loop = new_event_loop()
    try:
        return loop.run_until_complete(
            _serve(
                loop,
                config,
                ready_file,
                milliseconds_since_start,
                ready_note,
                record,
                control or InitialControl(),
                seed,
            )
        )
    finally:
        loop.close()


async def _serve(
    loop: asyncio.AbstractEventLoop,
    config: BrokerConfig,
    ready_file: Path | None,
    milliseconds_since_start: Callable[[], int],
    ready_note: str | None,
    record: Path | None,
    control: InitialControl,
    seed: SeedPlan | None,
) -> int:
    stop_requested = asyncio.Event()

    def on_signal(number: signal.Signals) -> None:
        if stop_requested.is_set():
            os._exit(128 + number)
        stop_requested.set()

    on_stop(loop, on_signal)
    allow_many_open_files()  # each log that receives records keeps a file open
    recorder = None if record is None else _recorder(record, loop)
    clusters: Clusters | None = None
    prepare = None if seed is None else _applying(seed)
    if config.odradek_control_enable:
        clusters = _clusters(loop)
        serving = await clusters.start_default(
            config, partial(_add_control, clusters), recorder, control.release(), prepare
        )
    elif recorder is None:
        serving = ServingBroker(config, loop, prepare=prepare)
        await serving.start()
    else:
        serving = await _recorded(config, loop, recorder, prepare)
    # Objects that were created at startup stay alive, so the garbage collector need not visit them again. Requests
    # leave no reference cycles behind, except after errors. With the default threshold of 700 objects, searching for
    # cycles took a tenth of a Produce request's time.
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
    gc.enable()
    sys.setswitchinterval(SWITCH_S)
    try:
        if clusters is not None:
            control.apply_to(clusters)
        _say_ready(serving, ready_file, milliseconds_since_start())
        if ready_note is not None:
            print(ready_note.format(node_id=config.node_id), flush=True)
        await stop_requested.wait()
    finally:
        log.info("stopping")
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)
        if clusters is not None:
            await clusters.close()
        is_clean = await _stopped_cleanly(serving)
        if recorder is not None:
            recorder.close()
    return 0 if is_clean else 1


def _applying(seed: SeedPlan) -> Prepare:
    from odradek.broker.seeds.applying import prepare_with_seed  # imported here because most brokers have no seed

    return partial(prepare_with_seed, plan=seed)


def _clusters(loop: asyncio.AbstractEventLoop) -> Clusters:
    # Imported here because most brokers are not controlled.
    from odradek.broker.control.clusters.clusters import Clusters

    return Clusters(loop)


async def _recorded(
    config: BrokerConfig, loop: asyncio.AbstractEventLoop, recorder: Recorder, prepare: Prepare | None
) -> ServingBroker:
    # Imported here because most brokers record nothing.
    from odradek.broker.network.controlled_connection import ControlledConnection, observe

    serving = ServingBroker(config, loop, make_connection=ControlledConnection, prepare=prepare)
    await serving.start()
    for server in serving.servers:
        observe(server, [recorder.observer_of(config.node_id)])
    return serving


def _recorder(path: Path, loop: asyncio.AbstractEventLoop) -> Recorder:
    from odradek.broker.control.recording.recorder import Recorder  # imported here because most brokers record nothing

    return Recorder(path.open("wb"), loop)


def _add_control(clusters: Clusters, app: web.Application) -> None:
    # Imported when the first HTTP connection arrives, like the pages.
    from odradek.broker.control.http.routes import add_control

    add_control(app, clusters)


async def _stopped_cleanly(serving: ServingBroker) -> bool:
    try:
        await serving.stop(IN_FLIGHT_TIMEOUT_S)
    except (LogFailed, OSError) as error:
        log.critical("the broker could not stop cleanly, so the next start must read the whole log: %s", error)
        return False
    log.info("the broker has stopped; all acknowledged records are on the disk")
    return True


def _say_ready(serving: ServingBroker, ready_file: Path | None, start_ms: int) -> None:
    broker = serving.broker
    first = broker.bound[0]
    if ready_file is not None:
        ready = {
            "host": first.host,
            "port": first.port,
            "listeners": {one.name: f"{one.host}:{one.port}" for one in broker.bound},
            "http_port": None if serving.control is None else serving.control.port,
            "node_id": broker.config.node_id,
            "cluster_id": broker.cluster_id,
            "data_dir": str(broker.config.data_directory),
            "pid": os.getpid(),
            "start_ms": start_ms,
            "variant": variant(),
        }
        if serving.registry is not None:
            ready["schema_registry_port"] = serving.registry.port
        ready_file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = ready_file.with_name(f".{ready_file.name}.{os.getpid()}")
        unfinished.write_text(json.dumps(ready) + "\n")
        unfinished.replace(ready_file)
    addresses = [f"{one.host}:{one.port}" for one in broker.advertised_listeners]
    elsewhere = "" if addresses[0] == f"{first.host}:{first.port}" else f", and advertises {', '.join(addresses)}"
    if broker.config.is_advertised_by_arrival:
        elsewhere = ", and gives each client the address through which it connected"
    print(
        f"Odradek accepts Kafka clients on {first.host}:{first.port}{elsewhere}{_page(serving)}"
        f"{'' if serving.registry is None else f'; the schema registry is on {serving.registry.url}'}"
        f" (data in {broker.config.data_directory}, {start_ms} ms after start, {variant_for_people()})",
        flush=True,
    )


def _page(serving: ServingBroker) -> str:
    """Returns the part of the ready line with the page's address, or an empty string if HTTP is disabled."""
    control, config = serving.control, serving.broker.config
    if control is None:
        return ""
    configured = config.odradek_http_port
    is_other = (
        "odradek.http.port" not in config.given_settings and config.serving[0].port != 0 and control.port != configured
    )
    why = f" (port {configured} is taken)" if is_other else ""
    if control.serves_page:
        return f"; the page is on {control.url}{why}"
    return f"; health checks are on {control.url}readyz{why}"
