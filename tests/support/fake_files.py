"""Files and directories in memory: their contents, the durable part, and the state after a power failure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

PAGE_BYTES = 4096


@dataclass(slots=True)
class Write:
    position: int
    data: bytes
    is_doomed: bool = False  # whether a sync of this write has failed

    def apply(self, content: bytearray) -> None:
        end = self.position + len(self.data)
        if len(content) < end:
            content.extend(bytes(end - len(content)))
        content[self.position : end] = self.data


@dataclass(slots=True)
class Truncate:
    size_bytes: int
    is_doomed: bool = False

    def apply(self, content: bytearray) -> None:
        if self.size_bytes <= len(content):
            del content[self.size_bytes :]
        else:
            content.extend(bytes(self.size_bytes - len(content)))


@dataclass(slots=True, eq=False)
class File:
    content: bytearray = field(default_factory=bytearray)  # the content that a reader sees
    durable: bytes = b""
    pending: list[Write | Truncate] = field(default_factory=list)
    is_cold: bool = False

    def settle(self) -> None:
        """Makes all pending changes durable, except those for which a sync has failed."""
        durable = bytearray(self.durable)
        for change in self.pending:
            if not change.is_doomed:
                change.apply(durable)
        self.durable = bytes(durable)
        self.pending = [change for change in self.pending if change.is_doomed]

    def doom(self) -> None:
        for change in self.pending:
            change.is_doomed = True


@dataclass(slots=True)
class NameChange:
    """An atomic change to names: `removed` disappears and `added` appears."""

    removed: str | None
    added: str | None
    node: Node | None


@dataclass(slots=True, eq=False)
class Directory:
    entries: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)
    pending: list[NameChange] = field(default_factory=list)

    def change(self, removed: str | None, added: str | None, node: Node | None) -> None:
        change = NameChange(removed, added, node)
        apply(change, self.entries)
        self.pending.append(change)


Node: TypeAlias = File | Directory


# Surviving a power failure.


class EverythingSurvives:
    def names(self, directory: Directory) -> dict[str, Node]:
        return directory.entries

    def content(self, file: File) -> bytes:
        return bytes(file.content)


class OnlySyncedSurvives:
    def names(self, directory: Directory) -> dict[str, Node]:
        return directory.durable

    def content(self, file: File) -> bytes:
        return file.durable


class NamesOnly(OnlySyncedSurvives):
    def names(self, directory: Directory) -> dict[str, Node]:
        return directory.entries


class BytesOnly(OnlySyncedSurvives):
    def content(self, file: File) -> bytes:
        return bytes(file.content)


class Chance:
    """Decides at random which changes survive. A write can survive completely, not at all, up to some byte, or with
    some of its pages missing."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def names(self, directory: Directory) -> dict[str, Node]:
        names = dict(directory.durable)
        for change in directory.pending:
            if self._random.random() < 0.5:
                apply(change, names)
        return names

    def content(self, file: File) -> bytes:
        content = bytearray(file.durable)
        for change in file.pending:
            fate = self._random.randrange(4)
            if fate == 0:
                continue
            if fate == 1 or isinstance(change, Truncate):
                change.apply(content)
            elif fate == 2:
                Write(change.position, change.data[: self._random.randrange(len(change.data) + 1)]).apply(content)
            else:
                self._some_pages(change, content)
        return bytes(content)

    def _some_pages(self, write: Write, content: bytearray) -> None:
        """Applies only some pages of a write. The file gets its new size; the remaining pages keep their content, or
        read as zeros."""
        end = write.position + len(write.data)
        if len(content) < end:
            content.extend(bytes(end - len(content)))
        at = write.position
        while at < end:
            stop = min((at // PAGE_BYTES + 1) * PAGE_BYTES, end)
            if self._random.random() < 0.5:
                content[at:stop] = write.data[at - write.position : stop - write.position]
            at = stop


Survival: TypeAlias = EverythingSurvives | OnlySyncedSurvives | Chance


def copy_of(root: Directory, survival: Survival) -> Directory:
    """Returns a copy in which everything that survives is durable. A file with two names stays a single file."""
    copies: dict[int, Node] = {}

    def copy(node: Node) -> Node:
        if id(node) not in copies:
            if isinstance(node, File):
                content = survival.content(node)
                copies[id(node)] = File(bytearray(content), content)
            else:
                new = copies[id(node)] = Directory()
                new.entries = {name: copy(child) for name, child in survival.names(node).items()}
                new.durable = dict(new.entries)
        return copies[id(node)]

    copied = copy(root)
    assert isinstance(copied, Directory)
    return copied


def apply(change: NameChange, names: dict[str, Node]) -> None:
    if change.removed is not None:
        names.pop(change.removed, None)
    if change.added is not None and change.node is not None:
        names[change.added] = change.node


def files(directory: Directory) -> Iterator[File]:
    for node in directory.entries.values():
        if isinstance(node, File):
            yield node
        else:
            yield from files(node)


def directories(directory: Directory) -> Iterator[Directory]:
    yield directory
    for node in directory.entries.values():
        if isinstance(node, Directory):
            yield from directories(node)
