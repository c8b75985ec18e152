"""Draws the states of a transactional id into docs/using-transactions.md, from the tables of the transaction
coordinator.

`python -m tests.unit.docs.transaction_diagram` updates the diagram, and a test checks that the diagram is current. The
diagram shows the stored states and Kept, which is Ongoing with a new owner. It omits two states that exist only while
Kafka is writing a record.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from odradek.broker.transactions.tables import (
    ADD_PARTITIONS,
    COMPLETED,
    END_TXN,
    EXPIRABLE,
    INIT_PRODUCER_ID,
    INIT_PRODUCER_ID_KEEPING,
    KEPT,
    NEXT,
    PREPARED,
    ROWS,
    Row,
    TxnState,
    TxnVerdict,
)

PAGE = Path(__file__).resolve().parents[3] / "docs" / "using-transactions.md"
BEGIN, END = "```mermaid\n", "```\n"
OUTSIDE = "[*]"

Edge = tuple[Row, Row]

EXPIRED = "not used for transactional.id.expiration.ms"
TIMED_OUT = "open for longer than its timeout"
FENCED = "InitProducerId of a new producer"
KEEPING = "InitProducerId with KeepPreparedTxn"


def edges() -> dict[Edge, list[str]]:
    """Returns the reasons for each change from one state to another. A change to DEAD means that the id is removed."""
    found: dict[Edge, list[str]] = {}
    for edge, reason in _reasons():
        reasons = found.setdefault(edge, [])
        if reason not in reasons:
            reasons.append(reason)
    return found


def _reasons() -> Iterator[tuple[Edge, str]]:
    for state, row in INIT_PRODUCER_ID.items():
        if TxnVerdict.BUMP in row.values():
            yield (state, TxnState.EMPTY), "InitProducerId"
        if TxnVerdict.FENCE in row.values():
            yield (state, TxnState.PREPARE_ABORT), FENCED
            yield (state, TxnState.PREPARE_ABORT), TIMED_OUT
    for state, row in INIT_PRODUCER_ID_KEEPING.items():
        if TxnVerdict.KEEP in row.values():
            yield (state, KEPT), KEEPING
    for state, row in ADD_PARTITIONS.items():
        if TxnVerdict.ADD in row.values():
            yield (state, TxnState.ONGOING), "a partition is added"
    for (is_commit, version), grid in END_TXN.items():
        for state, row in grid.items():
            if TxnVerdict.COMMIT in row.values():
                yield (state, TxnState.PREPARE_COMMIT), "EndTxn, commit"
            if TxnVerdict.ABORT in row.values():
                only_later = TxnVerdict.ABORT not in END_TXN[is_commit, 0][state].values()
                since = " without a transaction (version 5 or later)" if only_later and state is not KEPT else ""
                assert version or not only_later
                yield (state, TxnState.PREPARE_ABORT), f"EndTxn, abort{since}"
    for state in sorted(PREPARED, key=lambda each: each.value):
        yield (state, COMPLETED[state]), "every partition has its marker"
        yield (state, state), "a topic that waits for its marker is deleted"
    for state in sorted(EXPIRABLE, key=lambda each: each.value):
        yield (state, TxnState.DEAD), EXPIRED


def allowed() -> set[Edge]:
    """Returns the transitions in NEXT between states that the diagram shows."""
    drawn = ROWS | {TxnState.DEAD}
    return {(state, after) for state, successors in NEXT.items() for after in successors if {state, after} <= drawn}


def mermaid() -> str:
    lines = ["stateDiagram-v2", f"    {OUTSIDE} --> {TxnState.EMPTY.kafka_name}: InitProducerId"]
    for (state, after), reasons in sorted(edges().items(), key=lambda edge: [_place(each) for each in edge[0]]):
        name = OUTSIDE if after is TxnState.DEAD else after.kafka_name
        lines.append(f"    {state.kafka_name} --> {name}: {'<br>'.join(reasons)}")
    return "".join(f"{line}\n" for line in lines)


def _place(row: Row) -> tuple[int, bool]:
    """Returns a sort key that places Kept directly after Ongoing."""
    return (TxnState.ONGOING.value, True) if row is KEPT else (row.value, False)


def with_diagram(page: str) -> str:
    """Returns the page with the current diagram. Raises ValueError if the page has no place for it."""
    start = page.index(BEGIN) + len(BEGIN)
    return page[:start] + mermaid() + page[page.index(END, start) :]


if __name__ == "__main__":
    PAGE.write_text(with_diagram(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
