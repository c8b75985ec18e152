"""Compiles the modules listed in compiled.toml with mypyc if ODRADEK_COMPILE=1 is set.

Otherwise nothing is compiled, and the wheel works with every Python. If a module cannot be compiled, the build fails,
because otherwise nobody would notice that the broker runs at half its speed. docs/variants.md explains the variants.
"""

from __future__ import annotations

import os
import re
import sys

# This check precedes all code that needs a newer Python. Otherwise pip would show a traceback instead of the required
# version.
if sys.version_info < (3, 11):  # noqa: UP036
    found = ".".join(map(str, sys.version_info[:3]))
    raise SystemExit(f"odradek needs Python 3.11 or later. This is Python {found}, {sys.executable}")

import tomllib
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir
from fnmatch import fnmatch
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # A build front end does not add this directory.

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.modified import newer_group

from native.constructors import with_constructors

GROUP = "odradek.native"  # the group of all compiled modules; its code is in odradek/native__mypyc.*.so
MESSAGES = Path("odradek", "protocol", "messages")
CORES = len(os.sched_getaffinity(0))
# The codecs' functions are long. Compiling them with -O2 takes twice as long and gains little, because they spend their
# time in Python's C API.
CODEC_OPTIONS = ["-O1"]
# Makes the modules call one another's functions directly, because no other library can replace them. This saves 3 to 5
# % of the time per request.
LINKAGE = ["-fvisibility=hidden", "-fno-semantic-interposition", "-fno-plt"] if sys.platform == "linux" else []
# Each compiled module is a small library that only refers to the group's library. It is 7 KB with this option, and 15
# KB without it, because its code then starts on a separate page.
SMALL = ["-Wl,-z,noseparate-code"] if sys.platform == "linux" else []
# `make check` enforces strict types. A build cannot enforce them, because its environment contains different packages.
MYPY = ["--config-file=", "--explicit-package-bases", "--ignore-missing-imports", "--no-error-summary"]


def modules() -> list[str]:
    """Returns the paths of the modules to compile, relative to this file."""
    here = Path(__file__).parent
    wanted = tomllib.loads((here / "compiled.toml").read_text())
    patterns = [*wanted["modules"], *(f"{MESSAGES}/{message}.py" for message in wanted["codecs"])]
    found = {path.relative_to(here).as_posix() for pattern in patterns for path in here.glob(pattern)}
    unused = [pattern for pattern in wanted["interpreted"] if not any(fnmatch(path, pattern) for path in found)]
    if unused:
        raise SystemExit(f"patterns under interpreted in compiled.toml match no module: {', '.join(unused)}")
    return sorted(path for path in found if not any(fnmatch(path, pattern) for pattern in wanted["interpreted"]))


def copies(compiled: list[str]) -> Path:
    """Writes the sources for mypyc and returns their directory."""
    from native.codecs import with_codecs  # imported here, because only a build needs it

    root = Path("build", "sources")
    for path in Path("odradek").rglob("*.py"):
        text, copy = path.read_text(), root / path
        if path.as_posix() in compiled:
            text = with_codecs(text, path.stem) if path.parent == MESSAGES else with_constructors(text)
        if not copy.exists() or copy.read_text() != text:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(text)
    return root


def extensions() -> list[Extension]:
    from mypyc.build import mypycify

    compiled = modules()
    print(f"odradek: {len(compiled)} modules to C, which takes a minute", file=sys.stderr, flush=True)
    made_in = Path("build").absolute()
    with chdir(copies(compiled)):  # Tracebacks then contain the paths of the sources.
        options = {"group_name": GROUP, "multi_file": True, "opt_level": "2", "debug_level": "0"}
        made = mypycify([*MYPY, *compiled], target_dir=str(made_in), **options)
    for extension in made:
        # All extensions share the same list, so it must not be changed in place.
        extension.extra_compile_args = [*extension.extra_compile_args, *LINKAGE]
        extension.extra_link_args += SMALL
        extension.include_dirs.append(str(made_in / GROUP.rpartition(".")[0]))  # contains the headers of the group
        for paths in (extension.sources, extension.depends):
            paths[:] = map(os.path.relpath, paths)
    return made


def requirements() -> list[str]:
    """Returns the requirement for mypy, which includes mypyc, in the version that `make check` uses."""
    return re.findall(r'"(mypy==[^"]+)"', Path("pyproject.toml").read_text())


class ParallelBuild(build_ext):
    """Compiles the C files that have changed, one per core at a time, and prints the progress."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or CORES  # for the small files, one per module

    def build_extension(self, ext: Extension) -> None:
        if len(ext.sources) > 1:
            with ThreadPoolExecutor(CORES) as pool:
                ext.extra_objects = list(pool.map(lambda source: self._compiled(source, ext), ext.sources))
            ext.sources = []
        super().build_extension(ext)

    def _compiled(self, source: str, ext: Extension) -> str:
        (made,) = self.compiler.object_filenames([source], output_dir=self.build_temp)
        if newer_group([source, *ext.depends, __file__], made):
            print(f"odradek: {Path(source).relative_to('build').with_suffix('')}", file=sys.stderr, flush=True)
            self.compiler.compile(
                [source],
                output_dir=self.build_temp,
                include_dirs=ext.include_dirs,
                extra_postargs=[*ext.extra_compile_args, *(CODEC_OPTIONS if "___messages___" in source else [])],
            )
        return made


if __name__ == "__main__":
    if os.environ.get("ODRADEK_COMPILE", "") in ("", "0"):
        setup()
    else:
        # setuptools also runs this file to find out a build's requirements and name, without building anything.
        is_building = not {"build", "build_ext", "bdist_wheel"}.isdisjoint(sys.argv)
        setup(
            ext_modules=extensions() if is_building else [Extension(f"{GROUP}__mypyc", [])],
            setup_requires=[] if is_building else requirements(),
            cmdclass={"build_ext": ParallelBuild},
        )
