"""Tests that every licence in the image is known and allows redistribution with software under Apache-2.0."""

import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
LOCKED = (REPOSITORY / "docker/requirements.txt").read_text()


def licences(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(REPOSITORY / ".ci/licences"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def installed(folder: Path, *headers: str) -> Path:
    info = folder / "some_thing-1.0.dist-info"
    (info / "licenses").mkdir(parents=True)
    (info / "METADATA").write_text("\n".join(("Metadata-Version: 2.4", "Name: some-thing", "Version: 1.0", *headers)))
    (info / "licenses/LICENSE.txt").write_text("You may.\n")
    (info / "RECORD").write_text(f"{info.name}/METADATA,,\n{info.name}/licenses/LICENSE.txt,,\n")
    return folder


def test_every_package_in_the_image_has_an_allowed_licence_with_its_text() -> None:
    names = re.findall(r"^([\w.-]+)==", LOCKED, re.MULTILINE)
    done = licences(sysconfig.get_path("purelib"), *names)
    assert done.returncode == 0, done.stderr
    for name in ("uvloop", "aiohttp", "cryptography", "cramjam"):
        assert re.search(rf"^{name} \S+: \S+", done.stdout, re.MULTILINE)
    assert len(done.stdout) > 50_000


@pytest.mark.parametrize(
    ("header", "expression"),
    [
        ("License-Expression: MIT", "MIT"),
        ("License-Expression: Apache-2.0 OR GPL-3.0-only", "Apache-2.0 OR GPL-3.0-only"),
        ("License-Expression: (MIT AND Apache-2.0)", "(MIT AND Apache-2.0)"),
        ("Classifier: License :: OSI Approved :: BSD License", "BSD-3-Clause"),
        ("License: MIT License", "MIT"),
    ],
)
def test_an_allowed_licence_is_listed_with_its_text(tmp_path: Path, header: str, expression: str) -> None:
    done = licences(str(installed(tmp_path, header)))
    assert done.stdout.startswith(f"some-thing 1.0: {expression}\n"), done.stderr
    assert done.stdout.endswith("some-thing 1.0: LICENSE.txt\n\nYou may.\n")


@pytest.mark.parametrize(
    "headers",
    [
        (),
        ("License: UNKNOWN",),
        ("License-Expression: AGPL-3.0-or-later",),
        ("License-Expression: MIT AND GPL-3.0-only",),
        ("Classifier: License :: OSI Approved :: GNU General Public License v3 (GPLv3)",),
    ],
    ids=lambda headers: " ".join(headers) or "none",
)
def test_a_licence_that_is_not_allowed_fails(tmp_path: Path, headers: tuple[str, ...]) -> None:
    done = licences(str(installed(tmp_path, *headers)))
    assert done.returncode == 1
    assert done.stderr.startswith("some-thing: ")
    assert done.stdout == ""


def test_the_image_is_built_from_hashes_only_and_keeps_the_licences() -> None:
    dockerfile = (REPOSITORY / "docker/Dockerfile").read_text()
    installs = re.findall(r"pip (?:install|download) [^\\\n]*-r \S+", dockerfile)
    assert len(installs) == 2
    assert all("--require-hashes" in each for each in installs)
    assert ".ci/licences /opt/odradek/lib" in dockerfile
