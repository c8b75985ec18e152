"""Tests that imports follow the rules of the repository. Each package imports only the packages below it
(CONTRIBUTING.md). Slow modules are not imported before the first connection. Certain system functions are used only in
the listed files."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
# The layers of `odradek/`, from low to high. All other packages in the folder are for users: client, dual write, Spark,
# tools.
LAYERS = ("schemas", "system", "protocol", "files", "control_calls", "registry", "seeds", "storage", "broker")
PACKAGES = (*LAYERS, "odradek")
MAY_IMPORT = {
    "schemas": {"schemas"},
    "protocol": {"protocol", "schemas"},
    "system": {"system"},
    "files": {"files", "system", "protocol"},
    "storage": {"storage", "files", "system", "protocol"},
    "control_calls": {"control_calls"},
    "registry": {"registry"},
    "seeds": {"seeds", "registry", "protocol"},
    "broker": {"broker", "storage", "control_calls", "registry", "seeds", "files", "system", "protocol"},
    "odradek": {"odradek", "control_calls", "registry", "seeds", "files", "system", "protocol"},
}
# Folders and files of odradek/, in order. Each entry imports only itself and earlier entries, including imports for
# types.
ODRADEK_ORDER = (
    "schemas",
    "system",
    "protocol",
    "files",
    "control_calls",
    "registry",
    "seeds",
    "storage",
    "broker",
    "client",
    "dualwrite",
    "testing",
    "spark",
    "log_format.py",
    "serve.py",
    "tools",
    "cli.py",
    "__main__.py",
)
# Files that start a broker for the command line or the image, or that refer to its start.
STARTS_THE_BROKER = ("odradek/serve.py", "odradek/tools/container/entry.py", "odradek/tools/container/health.py")

# Folders and files of broker/, in order. Each entry imports only itself and earlier entries, including imports for
# types.
BROKER_ORDER = (
    "runtime",  # clock, threads, responses completed later
    "patterns",
    "api",  # code that all APIs share
    "configuration",
    "network",
    "security",  # decisions, and the shells named below
    "groups",  # three cores that do not import one another
    "transactions",
    "shares/core",
    "metadata",
    "partitions",
    "coordinators",
    "produce",
    "fetch",
    "shares/leader",  # the share group leaders' work
    "broker.py",  # the broker as its handlers see it
    "handlers",
    "client_limits.py",  # applies quotas to connections
    "in_process",  # the client with which the broker calls itself, without a socket
    "facts",  # snapshots of the broker's state, for the page and the control interface
    "http",  # metrics, health and the page
    "registry",  # the port, the topic and the rights of the schema registry
    "seeds",  # topics, records and users created before the first client connects
    "serving.py",  # sockets, dispatch and pages around the broker
    "control",  # brokers controlled by client tests
    "process.py",
)

# Cores make decisions. They learn about events only through their arguments.
CORES = tuple(f"odradek.broker.{name}" for name in ("groups", "transactions", "shares.core"))
# The files of broker/security/ only make decisions. These files are exceptions, because they read files, use sockets,
# or log.
SHELLS_OF_SECURITY = frozenset(
    {
        "odradek/broker/security/authorization.py",
        "odradek/broker/security/sasl/oauthbearer_setup.py",
        "odradek/broker/security/sasl/setup.py",
        "odradek/broker/security/listeners.py",
        "odradek/broker/security/tls/certificates.py",
        "odradek/broker/security/tls/context.py",
        "odradek/broker/security/tls/handshake.py",
    }
)
OUTSIDE_A_CORE = frozenset(
    {
        "aiofiles",
        "asyncio",
        "concurrent",
        "datetime",
        "glob",
        "io",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "queue",
        "random",
        "secrets",
        "selectors",
        "shutil",
        "signal",
        "socket",
        "storage",
        "subprocess",
        "system",
        "tempfile",
        "threading",
        "time",
        "uuid",
        "uvloop",
    }
)
SLOW_TO_IMPORT = (
    "argparse",
    "argcomplete",
    "construct",
    "cramjam",
    "aiohttp",
    "jwt",
    "prometheus_client",
    "xxhash",
    "cryptography",
)
# The version of the release, which any file may import from odradek/__init__.py.
VERSION = ("odradek", "odradek.__version__")
BUILT_IN_NAMES = sys.stdlib_module_names
LIBRARIES = {
    "uvloop",
    "crc32c",
    "construct",
    "cramjam",
    "argcomplete",
    "aiohttp",
    "jwt",
    "prometheus_client",
    "xxhash",
    "cryptography",
    "mypy_extensions",
}
OPTIONAL = {
    "psycopg",
    "numpy",
    "pyarrow",
    "pyspark",
    "py4j",  # comes with pyspark
    "pygal",
    "yaml",
    "avro",
    "jsonschema",
    "referencing",  # comes with jsonschema
    "google",  # google.protobuf
    "proto_schema_parser",
    "antlr4",  # comes with proto-schema-parser
    "pytest",  # loads odradek/testing/pytest_plugin.py itself
}  # These libraries come with an extra. Code that needs them is imported only when it is used.


def modules(*packages: str) -> Iterator[Path]:
    for path in sorted((REPOSITORY / "odradek").rglob("*.py")):
        if package_of(path.relative_to(REPOSITORY).with_suffix("").as_posix().replace("/", ".")) in packages:
            yield path


def package_of(module: str) -> str:
    """Returns the layer of a module in `odradek`, or `odradek` if the module is in no layer. For any other module,
    returns the first part of its name."""
    names = module.split(".")
    return names[1] if names[0] == "odradek" and len(names) > 1 and names[1] in LAYERS else names[0]


def named(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


@cache
def imports(path: Path) -> tuple[tuple[str, int], ...]:
    """Returns the full name of each imported module or object, with the line of the import. Includes imports inside
    functions and for types."""
    found: list[tuple[str, int]] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{named(path)}:{node.lineno}: relative imports hide where a name comes from"
            found.append((node.module or "", node.lineno))
            found += [(f"{node.module}.{alias.name}", node.lineno) for alias in node.names]
    return tuple(found)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_those_below_it(package: str) -> None:
    breaches = []
    for path in modules(package):
        allowed = MAY_IMPORT[package] | ({"broker"} if named(path) in STARTS_THE_BROKER else set())
        for name, line in imports(path):
            if name not in VERSION and package_of(name) in PACKAGES and package_of(name) not in allowed:
                breaches.append(f"{named(path)}:{line}: {package} must not import {name}")
    assert breaches == []


def test_nothing_that_ships_imports_the_tests_or_a_library_that_is_not_a_dependency() -> None:
    known = BUILT_IN_NAMES | LIBRARIES | OPTIONAL | {"odradek"}
    breaches = [
        f"{named(path)}:{line}: {name}"
        for path in modules(*PACKAGES)
        for name, line in imports(path)
        if name.partition(".")[0] not in known
    ]
    assert breaches == []


def test_spark_is_known_only_to_what_it_calls() -> None:
    names = (
        "avro_columns/decoding",
        "files/reader",
        "sink",
        "source",
        "listener",
        "data_source",
        "jobs/session",
        "jobs/inputs",
        "jobs/audit",
        "jobs/export",
        "jobs/diff",
        "jobs/profile",
    )
    know_it = {f"odradek/spark/{name}.py" for name in names}
    breaches = [
        f"{named(path)}:{line}: {name}"
        for path in modules(*PACKAGES)
        for name, line in imports(path)
        if name.partition(".")[0] == "pyspark" and named(path) not in know_it
    ]
    assert breaches == []


@pytest.mark.parametrize("core", CORES)
def test_a_core_has_no_clock_no_file_no_socket_and_no_other_core(core: str) -> None:
    others = tuple(other for other in CORES if other != core)
    breaches = []
    for path in sorted((REPOSITORY / core.replace(".", "/")).rglob("*.py")):
        for name, line in imports(path):
            if package_of(name) in OUTSIDE_A_CORE:
                breaches.append(f"{named(path)}:{line}: a core must not import {name}")
            if name.startswith("odradek.broker.") and not (name == core or name.startswith(f"{core}.")):
                breaches.append(f"{named(path)}:{line}: a core imports only itself and protocol, not {name}")
            if name.startswith(others):
                breaches.append(f"{named(path)}:{line}: one core must not import another: {name}")
    assert breaches == []


def test_the_judge_imports_protocol_only_and_has_no_clock_no_file_and_no_socket() -> None:
    breaches = [
        f"{named(path)}:{line}: {name}"
        for path in sorted((REPOSITORY / "odradek/testing/judge").rglob("*.py"))
        for name, line in imports(path)
        if package_of(name) in OUTSIDE_A_CORE
        or (name.startswith("odradek.") and not name.startswith(("odradek.testing.judge", "odradek.protocol")))
    ]
    assert breaches == []


def test_in_security_only_shells_have_a_clock_a_file_or_a_socket() -> None:
    breaches = [
        f"{named(path)}:{line}: {name}"
        for path in modules("broker")
        if place_in_broker(named(path)) == "security" and named(path) not in SHELLS_OF_SECURITY
        for name, line in imports(path)
        if package_of(name) in OUTSIDE_A_CORE
    ]
    assert breaches == []


@cache
def imports_within(*packages: str) -> dict[str, dict[str, int]]:
    """Returns, for each file in these packages, the files in these packages that it imports, with the line of the
    import. Includes imports inside functions and for types."""
    files = {
        path.relative_to(REPOSITORY).with_suffix("").as_posix().replace("/", "."): path for path in modules(*packages)
    }
    files = {name.removesuffix(".__init__"): path for name, path in files.items()}
    return {
        named(path): {named(files[name]): line for name, line in imports(path) if name in files and files[name] != path}
        for path in files.values()
    }


def place_in_broker(file: str) -> str:
    """Returns the folder of broker/ that contains the file (for shares/: core or leader), or the file itself if it is
    in no folder."""
    below = file.split("/")[2:]
    return "/".join(below[: 2 if below[0] == "shares" else 1])


def test_the_folders_of_broker_import_one_another_in_their_order_only() -> None:
    rank = {place: position for position, place in enumerate(BROKER_ORDER)}
    breaches = [
        f"{file}:{line}: {place_in_broker(file)} must not import {imported}"
        for file, imported_at in imports_within("broker").items()
        for imported, line in imported_at.items()
        if imported != "odradek/broker/__init__.py" and rank[place_in_broker(imported)] > rank[place_in_broker(file)]
    ]
    assert breaches == []


def test_the_folders_of_odradek_import_one_another_in_their_order_only() -> None:
    rank = {place: position for position, place in enumerate(ODRADEK_ORDER)}
    breaches = [
        f"{file}:{line}: {file.split('/')[1]} must not import {imported}"
        for file, imported_at in imports_within(*PACKAGES).items()
        for imported, line in imported_at.items()
        if "odradek/__init__.py" not in (file, imported) and rank[imported.split("/")[1]] > rank[file.split("/")[1]]
    ]
    assert breaches == []


@cache
def rooms() -> list[str]:
    """Returns the folders that contain code files. Excludes folders such as `shares/`, which contain only other
    folders."""
    return sorted({named(path.parent) for path in modules(*PACKAGES) if path.name != "__init__.py"})


def within(folder: str, file: str) -> str | None:
    """Returns the folder or file below `folder` that contains `file`, or None if `file` is elsewhere."""
    if not file.startswith(f"{folder}/"):
        return None
    parts = file.removeprefix(f"{folder}/").split("/")
    known = set(rooms())
    for length in range(1, len(parts) + 1):
        place = "/".join([folder, *parts[:length]])
        if place in known or length == len(parts):
            return place
    return None


def in_circles(pairs: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Returns the pairs (importing place, imported place) that lie on a cycle, or on a path between two cycles."""
    while True:
        importing, imported = {first for first, _ in pairs}, {second for _, second in pairs}
        left = {(first, second) for first, second in pairs if second in importing and first in imported}
        if left == pairs:
            return left
        pairs = left


@pytest.mark.parametrize("folder", rooms())
def test_no_two_places_of_a_folder_import_each_other_by_any_detour(folder: str) -> None:
    """Checks that the imports form no cycle. An `__init__` does not count, because it only lists a package's
    exports."""
    pairs = set()
    for file, imported_at in imports_within(*PACKAGES).items():
        here = within(folder, file)
        if here is None or file.endswith("__init__.py"):
            continue
        for imported in imported_at:
            there = within(folder, imported)
            if there is not None and there != here and not imported.endswith("__init__.py"):
                pairs.add((here, there))
    assert in_circles(pairs) == set()


def test_a_circle_is_found_and_a_chain_is_none() -> None:
    assert in_circles({("a", "b"), ("b", "c"), ("d", "a")}) == set()
    assert in_circles({("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")}) == {("a", "b"), ("b", "c"), ("c", "a")}


def test_protocol_files_and_storage_know_no_event_loop() -> None:
    breaches = [
        f"{named(path)}:{line}: {name}"
        for path in modules("protocol", "files", "storage")
        for name, line in imports(path)
        if name.partition(".")[0] in {"asyncio", "uvloop", "socket", "selectors"}
    ]
    assert breaches == []


# Modules and functions that exist only on some systems. `odradek.system` has a replacement for each, with a fallback.
OF_SOME_SYSTEMS = frozenset(
    {
        *("fcntl", "msvcrt", "resource", "termios", "_winapi"),  # modules
        *("os.fdatasync", "os.fsync", "os.pread", "os.preadv", "os.pwrite", "os.pwritev", "os.sendfile", "os.statvfs"),
        *("os.sysconf", "os.getuid", "os.geteuid", "os.memfd_create", "os.sched_getaffinity", "os.sync", "os.rename"),
        *("os.O_DIRECTORY", "os.O_CLOEXEC", "os.RWF_NOWAIT", "os.posix_fallocate", "os.fork", "os.killpg"),
        *("socket.TCP_CORK", "socket.MSG_MORE", "socket.SO_REUSEPORT", "socket.SO_REUSEADDR", "time.CLOCK_BOOTTIME"),
        *("sys.platform", "signal.SIGKILL", "os.register_at_fork", ".add_signal_handler"),
    }
)
ONLY_THERE = {
    "odradek/tools/commands/interruption.py": {"os.killpg", "signal.SIGKILL", "sys.platform"},  # process groups
    "odradek/client/sync/background.py": {"os.register_at_fork", "sys.platform"},  # process forks
    # A job writes each of these files in one go, and the files must survive a power failure.
    "odradek/spark/jobs/export_plan.py": {"os.fsync"},
    "odradek/spark/jobs/parquet.py": {"os.fsync"},
}


def abilities_in(path: Path) -> set[str]:
    found = {name for name, _ in imports(path)} & OF_SOME_SYSTEMS
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            found |= {ast.unparse(node), f".{node.attr}"} & OF_SOME_SYSTEMS
    return found


def test_functions_that_only_some_systems_have_are_used_in_one_place() -> None:
    elsewhere = {
        named(path): found
        for path in modules(*PACKAGES)
        if package_of(named(path).removesuffix(".py").replace("/", ".")) != "system" and (found := abilities_in(path))
    }
    assert elsewhere == ONLY_THERE


def test_protocol_reads_no_clock_and_no_randomness() -> None:
    breaches = [
        f"{named(path)}:{line}: {name}"
        for path in modules("protocol")
        for name, line in imports(path)
        if name.partition(".")[0] in {"time", "random", "secrets", "uuid"}
    ]
    assert breaches == []


# A cluster under test has its own clock and timers (docs/testing.md), which code using another clock would ignore.
# `perf_counter` only measures the broker's own work. HTTP uses the system's time.
CLOCKS = ("odradek/broker/runtime/clock.py", "odradek/broker/runtime/controlled_time.py")
CLOCK_MODULES = frozenset({"time", "datetime"})
OTHER_CLOCKS = frozenset({"time", "time_ns", "monotonic", "monotonic_ns", "now", "utcnow", "today"})
OTHER_TIMERS = frozenset({"call_later", "call_at", "wait_for", "timeout", "timeout_at", "sleep", "Timer"})
BY_THE_SYSTEM = {
    "odradek/broker/broker.py": {"time"},  # monotonic time for a broker that is given no clock
    # the time when certificates become valid, which clients check
    "odradek/broker/control/clusters/chosen_listeners.py": {"now"},
    "odradek/broker/control/clusters/clusters.py": {"time"},  # real time, which limits how long exchanges are kept
    "odradek/broker/control/http/live_recording.py": {"wait_for"},  # HTTP
    "odradek/broker/control/nodes/nodes.py": {"sleep"},  # waits for the disk
    # a caller's timeout, and the pause between requests
    "odradek/broker/control/presets/preset_client.py": {"sleep", "timeout"},
    # the real times at which bytes arrive
    "odradek/broker/control/recording/recorder.py": {"call_later", "monotonic_ns", "time_ns"},
    "odradek/broker/control/http/request_events.py": {"sleep"},  # HTTP
    "odradek/broker/control/http/waiting.py": {"sleep", "time"},  # a caller's timeout, and the pause between checks
    "odradek/broker/http/connections.py": {"sleep"},  # HTTP
    "odradek/broker/http/page/actions.py": {"sleep"},  # HTTP: an action retries its request
    "odradek/broker/http/page/routes.py": {"timeout"},  # HTTP
    "odradek/broker/http/pages.py": {"timeout"},  # HTTP
    "odradek/broker/network/server.py": {"timeout"},  # limits the wait for requests in flight when the process stops
    "odradek/broker/http/page/record_writing.py": {"sleep"},  # until a topic that is created automatically has leaders
    "odradek/broker/registry/routes.py": {"timeout"},  # HTTP
    "odradek/broker/seeds/applying.py": {"sleep"},  # waits until the coordinator has loaded
    "odradek/broker/registry/topic.py": {"sleep"},  # waits until the topic can be read again
    "odradek/broker/partitions/cleaning.py": {"sleep"},  # limits a worker's share of the disk
}


def clocks_in(source: str) -> set[str]:
    """Returns the names of the system clocks and timers that the source uses. `asyncio.sleep(0)` does not count,
    because it only yields to the loop."""
    found: set[str] = set()
    nodes = list(ast.walk(ast.parse(source)))
    turns = {id(each.func) for each in nodes if isinstance(each, ast.Call) and ast.unparse(each) == "asyncio.sleep(0)"}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module in {*CLOCK_MODULES, "asyncio", "threading"}:
            forbidden = OTHER_CLOCKS if node.module in CLOCK_MODULES else OTHER_TIMERS
            found |= {each.name for each in node.names} & (forbidden | {"sleep"})
        elif isinstance(node, ast.Attribute) and id(node) not in turns:
            of = ast.unparse(node.value).removesuffix("()").rpartition(".")[2]
            if of.endswith("loop"):
                found |= {node.attr} & (OTHER_TIMERS | OTHER_CLOCKS)
            elif of in CLOCK_MODULES:
                found |= {node.attr} & (OTHER_CLOCKS | {"sleep"})
            elif of in ("asyncio", "threading"):
                found |= {node.attr} & OTHER_TIMERS
    return found


def test_only_the_clock_reads_clocks_and_arms_timers() -> None:
    found = {
        named(path): clocks_in(path.read_text()) for path in modules("storage", "broker") if named(path) not in CLOCKS
    }
    assert {path: names for path, names in found.items() if names} == BY_THE_SYSTEM


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("now_s = loop.time", {"time"}),
        ("self._loop.time()", {"time"}),
        ("asyncio.get_running_loop().call_later(1, f)", {"call_later"}),
        ("get_event_loop().call_at(1, f)", {"call_at"}),
        ("async def f():\n    async with asyncio.timeout(1): pass", {"timeout"}),
        ("asyncio.sleep(delay_s)", {"sleep"}),
        ("asyncio.sleep(0)", set()),
        ("time.sleep(1)", {"sleep"}),
        ("from asyncio import sleep, wait_for", {"sleep", "wait_for"}),
        ("threading.Timer(1, f)", {"Timer"}),
        ("from threading import Timer", {"Timer"}),
        ("clock = time.monotonic", {"monotonic"}),
        ("datetime.datetime.now()", {"now"}),
        ("time.perf_counter()", set()),
        ("clock.now_ms()", set()),
    ],
)
def test_a_clock_of_the_system_is_found_however_it_is_named(source: str, found: set[str]) -> None:
    assert clocks_in(source) == found


# Modules that only a broker with a seed or a schema registry imports.
OPTIONAL_PARTS = ("odradek.seeds", "yaml", "odradek.registry", "odradek.broker.registry", "avro", "google.protobuf")


def test_a_broker_that_has_started_has_imported_nothing_slow() -> None:
    """Checks that a broker imports no slow modules or optional parts. A separate process prints its modules after a
    complete start and stop."""
    script = (
        "import os, signal, sys, tempfile, threading\n"
        "from pathlib import Path\n"
        "from odradek.serve import ServeOptions, run\n"
        "folder = Path(tempfile.mkdtemp())\n"
        "ready = folder / 'ready.json'\n"
        "def stop_when_ready():\n"
        "    while not ready.exists(): pass\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "threading.Thread(target=stop_when_ready, daemon=True).start()\n"
        "status = run(ServeOptions(port=0, data_dir=folder / 'data', ready_file=ready))\n"
        f"print(status, [name for name in {(*SLOW_TO_IMPORT, *OPTIONAL_PARTS)!r} if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.splitlines()[-1:] == ["0 []"], done.stdout + done.stderr


@pytest.mark.linux  # for other systems, tests/elsewhere imports asyncio first
@pytest.mark.parametrize("module", ["odradek.client", "odradek.client.sync"])
def test_the_client_comes_without_the_broker_and_without_anything_slow(module: str) -> None:
    unwanted = (*SLOW_TO_IMPORT, "uvloop", "odradek.broker", "odradek.storage")
    script = (
        f"import sys, {module} as client\n"
        "[getattr(client, name) for name in client.__all__]\n"
        f"print([name for name in {unwanted!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stdout + done.stderr
