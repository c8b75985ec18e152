"""Tests that `odradek inspect` shows the same contents as DumpLogSegments for every file in the recorded
directories."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.schema import snake_case
from odradek.tools.inspect.command import files_below, recognised
from odradek.tools.inspect.entries import Damage, FileEntry
from tests.support.oracle import IS_THERE, directories, dump, dump_kinds, needs_oracle, unpack

NAMES = directories() if IS_THERE else []
CLEAN = [name for name in NAMES if not name.startswith("unclean")]
UNEDITED = [name for name in NAMES if name != "unclean-torn"]  # DumpLogSegments fails on the torn segments
FIXED_KINDS = ("index", "timeindex", "txnindex", "snapshot")
DECODED_KINDS = ("transaction-state", "offsets", "share-group-state", "metadata", "metadata-snapshot")
FIELD = re.compile(r"(?P<name>\w+): (?:OptionalLong\[(?P<optional>\d+)\]|(?P<value>\S+))")
pytestmark = needs_oracle


def dumped(name: str, kind: str) -> Iterator[tuple[str, list[str]]]:
    """For each file, yields its path below the directory and the lines that DumpLogSegments printed."""
    parts = re.split(r"^Dumping (\S+)\n", dump(name, kind), flags=re.MULTILINE)[1:]
    for path, text in zip(parts[::2], parts[1::2], strict=True):
        yield path, text.splitlines()


def numbers(text: str) -> dict[str, str]:
    """Returns the values that DumpLogSegments prints as `name: value`, excluding empty values."""
    found = {match["name"]: match["optional"] or match["value"] for match in FIELD.finditer(text)}
    return {name: value for name, value in found.items() if value != "OptionalLong.empty"}


def entries(path: Path) -> list[FileEntry]:
    return [found for found in recognised(path).findings() if isinstance(found, FileEntry)]


@pytest.mark.parametrize("name", CLEAN)
def test_nothing_in_a_directory_of_kafka_is_unknown_or_damaged(name: str, tmp_path: Path) -> None:
    directory = unpack(name, tmp_path)
    everything = {path for path in directory.rglob("*") if path.is_file()}
    assert everything == set(files_below(directory))
    damages = {
        path.name: damage for path in everything for damage in recognised(path).findings() if isinstance(damage, Damage)
    }
    assert damages == {}


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name in UNEDITED for kind in dump_kinds(name) if kind in FIXED_KINDS]
)
def test_indexes_and_snapshots_hold_what_the_tool_prints(name: str, kind: str, tmp_path: Path) -> None:
    directory = unpack(name, tmp_path)
    for path, lines in dumped(name, kind):
        if "-delete/" in path:  # DumpLogSegments prints preallocated zeros as entries
            continue
        theirs = [numbers(line) for line in lines if re.match(r"(offset|timestamp|version|producerId): ", line)]
        # Kafka preallocates the indexes of active segments. For an empty index, DumpLogSegments prints one entry of
        # zeros.
        theirs = [found for found in theirs if "0" not in (found.get("position"), found.get("timestamp"))]
        ours = [shown_as_by_the_tool(entry) for entry in entries(directory / path) if entry.kind != "producer snapshot"]
        for row, found in zip(ours, theirs, strict=True):
            common = row.keys() & found.keys()
            assert len(common) >= 2
            assert {name: row[name] for name in common} == {name: found[name] for name in common}, path


def shown_as_by_the_tool(entry: FileEntry) -> dict[str, str]:
    fields = {name: str(value) for name, value in entry.fields.items()}
    if entry.kind == "producer":
        if fields["currentTxnFirstOffset"] == "-1":
            del fields["currentTxnFirstOffset"]
        if fields["lastOffset"] == "-1":
            fields = {name: fields[name] for name in fields.keys() - {"lastSequence", "lastOffset", "offsetDelta"}}
    return fields


@pytest.mark.parametrize("name", CLEAN)
def test_batches_and_records_of_users_are_where_the_tool_finds_them(name: str, tmp_path: Path) -> None:
    directory = unpack(name, tmp_path)
    for path, lines in dumped(name, "log"):
        theirs = [numbers(line) for line in lines if line.startswith(("baseOffset", "| offset"))]
        for found, row in zip(entries(directory / path), theirs, strict=True):
            if found.kind == "batch":
                assert batch_as_by_the_tool(found) == row
            else:
                assert [str(found.fields["offset"]), str(found.fields["timestamp"])] == [
                    row["offset"],
                    row.get("CreateTime", row.get("LogAppendTime")),
                ]
                if found.kind == "record":
                    sizes = [-1 if found.fields[part] is None else len(found.fields[part]) for part in ("key", "value")]
                    assert sizes == [int(row["keySize"]), int(row["valueSize"])]
                elif "endTxnMarker" in row:
                    marker = [found.fields["control"], str(found.fields["coordinatorEpoch"])]
                    assert marker == [row["endTxnMarker"], row["coordinatorEpoch"]]


def batch_as_by_the_tool(batch: FileEntry) -> dict[str, str]:
    fields = dict(batch.fields)
    names = {"leaderEpoch": "partitionLeaderEpoch", "sizeInBytes": "size", "compression": "compresscodec"}
    names |= {"isValid": "isvalid", "maxTimestamp": fields.pop("timestampType")}
    shown = {names.get(name, name): value for name, value in fields.items()} | {"position": batch.position, "magic": 2}
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in shown.items()}


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name in CLEAN for kind in dump_kinds(name) if kind in DECODED_KINDS]
)
def test_records_of_internal_topics_say_what_the_decoders_of_kafka_say(name: str, kind: str, tmp_path: Path) -> None:
    directory = unpack(name, tmp_path)
    compared = 0
    for path, lines in dumped(name, kind):
        theirs = [line for line in lines if line.startswith("| offset")]
        ours = [entry for entry in entries(directory / path) if entry.kind != "batch"]
        for entry, line in zip(ours, theirs, strict=True):
            assert said(entry) == said_by_kafka(line), f"{path}: {line}"
            compared += 1
    assert compared > 0


def said(entry: FileEntry) -> Any:
    fields = entry.fields
    if entry.kind == "control record":
        return fields.get("data") or [fields["control"], str(fields["coordinatorEpoch"])]
    if "data" in fields:
        return {"type": snake_case(fields["type"]).upper(), "version": fields["version"], "data": fields["data"]}
    value = fields["value"]
    return fields["key"], None if value is None else value | {"version": str(value["version"])}


def said_by_kafka(line: str) -> Any:
    marker = re.search(r"endTxnMarker: (\w+) coordinatorEpoch: (\d+)", line)
    if marker:
        return [marker[1], marker[2]]
    control = re.search(
        r"headerKeys: \[\] (?:LeaderChange:|SnapshotHeader|SnapshotFooter|KRaftVersion|KRaftVoters) (\{.*)", line
    )
    if control:
        return json.loads(control[1])
    keyed = re.search(r" key: (\{.*?\}\}) payload: (.*)$", line)
    if keyed:
        payload = keyed[2].removesuffix("<DELETE>")
        return json.loads(keyed[1])["data"], json.loads(payload) if payload not in ("", "null") else None
    return json.loads(line.partition(" payload: ")[2])
