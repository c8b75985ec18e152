"""The CRC-32C of record batches.

The function is taken from the extension module inside the package crc32c. Importing the package itself would also
import its command line and `importlib.metadata`, which takes longer than importing all of `odradek.protocol`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import cast


def _load() -> Callable[..., int]:
    """Returns the CRC function. Its arguments are a Buffer and, optionally, the CRC of the preceding bytes."""
    package = find_spec("crc32c")
    places = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("crc32c._crc32c", places) if places is not None else None
    if spec is None or spec.loader is None:
        from crc32c import crc32c as from_package  # used for releases of the package with a different layout

        return cast(Callable[..., int], from_package)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast(Callable[..., int], module.crc32c)


crc32c = _load()
