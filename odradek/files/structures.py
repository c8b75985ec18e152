"""Describes the fixed-size structures in Kafka's files: index entries and producer snapshot entries.

A structure is a list of fields. `Structure.packed` is the fast form that the storage package uses to read and write
whole files. `Structure.to_construct` converts the structure for the construct library, which `odradek inspect` uses to
show the fields of entries by name. Only that method imports construct, because the import takes 12 ms, and a broker
does not need it to start.

All numbers are big-endian. The meaning of each field is described in docs/formats/indexes.md, transaction-index.md and
producer-snapshot.md.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from construct import Struct

INT16, UINT32, INT32, INT64 = "h", "L", "l", "q"  # `struct` codes of standard sizes, also used by construct


class Structure:
    """A structure of fixed size.

    fields   type of each field by name (in Kafka's camelCase), in the order of the bytes
    """

    def __init__(self, fields: Mapping[str, str]) -> None:
        self.fields = fields
        self.packed: Final = struct.Struct(">" + "".join(fields.values()))

    @property
    def size_bytes(self) -> int:
        return self.packed.size

    def to_construct(self) -> Struct[Any, Any]:
        """Returns the same structure as a construct `Struct`, whose `parse` method returns the fields by name."""
        from construct import FormatField, Renamed, Struct

        return Struct(*(Renamed(FormatField(">", kind), name) for name, kind in self.fields.items()))


OFFSET_INDEX_ENTRY: Final = Structure(
    {
        "relativeOffset": INT32,  # offset of the last record of a batch, relative to the base offset of the segment
        "position": INT32,  # position of that batch in the log file
    }
)
TIME_INDEX_ENTRY: Final = Structure(
    {
        "timestamp": INT64,  # the largest timestamp so far, ms
        "relativeOffset": INT32,  # offset of the last record of the batch with that timestamp
    }
)
TXN_INDEX_ENTRY: Final = Structure(
    {
        "version": INT16,
        "producerId": INT64,
        "firstOffset": INT64,  # first offset of the aborted transaction in this partition
        "lastOffset": INT64,  # offset of its ABORT marker
        "lastStableOffset": INT64,  # last stable offset when the marker was written
    }
)
TXN_INDEX_VERSION: Final = 0

SNAPSHOT_HEADER: Final = Structure(
    {
        "version": INT16,
        "crc": UINT32,  # CRC-32C of all following bytes
        "count": INT32,  # number of entries
    }
)
SNAPSHOT_ENTRY: Final = Structure(
    {
        "producerId": INT64,
        "producerEpoch": INT16,
        "lastSequence": INT32,  # last sequence of the producer's last batch; -1 if that batch is unknown
        "lastOffset": INT64,  # last offset of that batch
        "offsetDelta": INT32,  # distance from the first to the last record of that batch
        "timestamp": INT64,  # ms
        "coordinatorEpoch": INT32,  # epoch in the last marker; -1 if there was none
        "currentTxnFirstOffset": INT64,  # -1 if no transaction is open
    }
)
SNAPSHOT_VERSION: Final = 1
SNAPSHOT_CRC_END: Final = 6  # the CRC covers all bytes from this position onwards
