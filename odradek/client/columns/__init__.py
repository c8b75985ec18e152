"""Record batches as columns: Arrow arrays in and out, without a Python object per record.

`read_records` converts the batches of a Fetch response or of a segment to an Arrow table of records, and `read_headers`
converts them to a table with one row per batch. `encode` builds batches from Arrow arrays of keys, values and
timestamps. This package needs numpy and pyarrow (`pip install odradek[columns]`), so other modules import it only when
they use it.
"""

from odradek.client.columns.encoding import EncodedBatch, encode
from odradek.client.columns.headers import HEADER_SCHEMA, read_headers
from odradek.client.columns.records import RECORD_SCHEMA, read_records
from odradek.protocol.messages.fetch_response import AbortedTransaction

__all__ = [
    "HEADER_SCHEMA",
    "RECORD_SCHEMA",
    "AbortedTransaction",
    "EncodedBatch",
    "encode",
    "read_headers",
    "read_records",
]
