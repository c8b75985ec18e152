"""`odradek version`."""

from __future__ import annotations

import argparse

from odradek import __version__
from odradek.protocol.variant import variant_for_people
from odradek.tools.commands.errors import DONE


def configure(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=run)


def run(_options: argparse.Namespace) -> int:
    print(f"odradek {__version__} ({variant_for_people()})")
    return DONE
