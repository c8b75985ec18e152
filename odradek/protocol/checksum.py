"""The CRC-32C of record batches.

The function comes from the extension module inside the package crc32c. Importing the package itself also imports its
command line and `importlib.metadata`, which takes longer than all of `protocol`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import cast


def _load() -> Callable[..., int]:
    """Called with a Buffer, and with the CRC of what stands before it; without that, nothing does."""
    package = find_spec("crc32c")
    places = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("crc32c._crc32c", places) if places is not None else None
    if spec is None or spec.loader is None:
        from crc32c import crc32c as from_package  # it has another shape than the one we know

        return cast(Callable[..., int], from_package)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast(Callable[..., int], module.crc32c)


crc32c = _load()
