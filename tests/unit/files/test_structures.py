"""Tests that `struct` and construct describe the same bytes for the fixed-size structures."""

import pytest

from odradek.files.structures import (
    OFFSET_INDEX_ENTRY,
    SNAPSHOT_ENTRY,
    SNAPSHOT_HEADER,
    TIME_INDEX_ENTRY,
    TXN_INDEX_ENTRY,
    Structure,
)

SIZES = [
    (OFFSET_INDEX_ENTRY, 8),
    (TIME_INDEX_ENTRY, 12),
    (TXN_INDEX_ENTRY, 34),
    (SNAPSHOT_HEADER, 10),
    (SNAPSHOT_ENTRY, 46),
]


@pytest.mark.parametrize(("structure", "size_bytes"), SIZES)
def test_both_forms_of_a_structure_read_the_same_numbers(structure: Structure, size_bytes: int) -> None:
    data = bytes(range(1, size_bytes + 1))
    declared = structure.to_construct()
    assert structure.size_bytes == declared.sizeof() == size_bytes
    fields = declared.parse(data)
    assert [fields[name] for name in structure.fields] == list(structure.packed.unpack(data))
    assert declared.build(fields) == structure.packed.pack(*structure.packed.unpack(data)) == data
