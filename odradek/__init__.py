"""Odradek: a Kafka broker in one Python process. `python -m odradek serve` starts it."""

import os

__version__ = "0.1.0"  # defined only here; `.ci/release set` changes this version and its copies

if os.environ.get("ODRADEK_PURE", "0") not in ("", "0"):
    # Import only the sources, even if compiled modules are installed; see docs/variants.md.
    import sys
    from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader

    def _sources_only(folder: str) -> FileFinder:
        if folder != __path__[0] and not folder.startswith(__path__[0] + os.sep):
            raise ImportError
        return FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES))

    sys.path_hooks.insert(0, _sources_only)
