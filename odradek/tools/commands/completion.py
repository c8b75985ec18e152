"""`odradek completion SHELL`: what a shell reads to complete commands, options and topics."""

from __future__ import annotations

import argparse

from odradek.tools.commands.errors import DONE


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell to print the script of")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    print(shellcode(["odradek"], shell=options.shell))
    return DONE
