"""Compiles the modules that compiled.toml names with mypyc, where ODRADEK_COMPILE=1 asks for it.

Without it nothing is compiled, and a wheel fits every Python. With it a module that cannot be compiled fails the build:
nobody notices from outside that a broker runs half as fast as it could. docs/variants.md says more.
"""

from __future__ import annotations

import os
import re
import sys

# Before anything that an older Python lacks: pip would show its traceback instead of the version that is needed.
if sys.version_info < (3, 11):  # noqa: UP036
    found = ".".join(map(str, sys.version_info[:3]))
    raise SystemExit(f"odradek needs Python 3.11 or later. This is Python {found}, {sys.executable}")

import tomllib
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir
from fnmatch import fnmatch
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # a build front end does not

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.modified import newer_group

from native.constructors import with_constructors

GROUP = "odradek.native"  # of all compiled modules; their code lies in odradek/native__mypyc.*.so
MESSAGES = Path("odradek", "protocol", "messages")
CORES = len(os.sched_getaffinity(0))
# Of codecs, whose functions are long: they spend their time in Python's C API, and -O2 takes twice as long for them.
CODEC_OPTIONS = ["-O1"]
# Functions of the modules are called directly: no other library may put its own in their place. 3 to 5 % of a request.
LINKAGE = ["-fvisibility=hidden", "-fno-semantic-interposition", "-fno-plt"] if sys.platform == "linux" else []
# Each module is a file of its own that only leads to the group's: 7 KB each, 15 where its code has pages of its own.
SMALL = ["-Wl,-z,noseparate-code"] if sys.platform == "linux" else []
# `make check` is where strictness belongs; and what is installed beside a build differs.
MYPY = ["--config-file=", "--explicit-package-bases", "--ignore-missing-imports", "--no-error-summary"]


def modules() -> list[str]:
    """Paths of what is compiled, relative to this file."""
    here = Path(__file__).parent
    wanted = tomllib.loads((here / "compiled.toml").read_text())
    patterns = [*wanted["modules"], *(f"{MESSAGES}/{message}.py" for message in wanted["codecs"])]
    found = {path.relative_to(here).as_posix() for pattern in patterns for path in here.glob(pattern)}
    unused = [pattern for pattern in wanted["interpreted"] if not any(fnmatch(path, pattern) for path in found)]
    if unused:
        raise SystemExit(f"compiled.toml excepts what is not there: {', '.join(unused)}")
    return sorted(path for path in found if not any(fnmatch(path, pattern) for pattern in wanted["interpreted"]))


def copies(compiled: list[str]) -> Path:
    """Where the sources lie as mypyc is given them."""
    from native.codecs import with_codecs  # it reads the schemas

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
    with chdir(copies(compiled)):  # so that the paths in tracebacks are those of the sources
        options = {"group_name": GROUP, "multi_file": True, "opt_level": "2", "debug_level": "0"}
        made = mypycify([*MYPY, *compiled], target_dir=str(made_in), **options)
    for extension in made:
        extension.extra_compile_args = [*extension.extra_compile_args, *LINKAGE]  # of all extensions: the same list
        extension.extra_link_args += SMALL
        extension.include_dirs.append(str(made_in / GROUP.rpartition(".")[0]))  # the headers of a group are there
        for paths in (extension.sources, extension.depends):
            paths[:] = map(os.path.relpath, paths)
    return made


def requirements() -> list[str]:
    """mypyc comes with mypy: the version that also checks the types."""
    return re.findall(r'"(mypy==[^"]+)"', Path("pyproject.toml").read_text())


class ParallelBuild(build_ext):
    """Compiles one C file per core at a time, those that have changed, and says how far it is."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or CORES  # the small files, one for each module

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
        # To learn what a build needs and what it will be called, setuptools runs this without building anything.
        is_building = not {"build", "build_ext", "bdist_wheel"}.isdisjoint(sys.argv)
        setup(
            ext_modules=extensions() if is_building else [Extension(f"{GROUP}__mypyc", [])],
            setup_requires=[] if is_building else requirements(),
            cmdclass={"build_ext": ParallelBuild},
        )
