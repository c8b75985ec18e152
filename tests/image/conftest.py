"""Fixtures for the image built by `.ci/image`, and for containers that are removed when a test finishes."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.image.machine import Container, Image

Run = Callable[..., Container]


def pytest_configure() -> None:
    if "IMAGE_ROOT" not in os.environ:
        pytest.exit("there is no image to test: say make image-test", returncode=2)


@pytest.fixture(scope="session")
def image() -> Image:
    return Image.built()


@pytest.fixture
def start(image: Image, tmp_path: Path) -> Iterator[Run]:
    """Yields a function that starts a container, like `docker run`, and returns it."""
    started: list[Container] = []

    def run(*words: str, name: str = "broker", **options: Any) -> Container:
        container = Container(image, tmp_path / f"{len(started)}-{name}", words, hostname=name, **options)
        started.append(container)
        container.start()
        return container

    yield run
    for container in started:
        container.remove()
