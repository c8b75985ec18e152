"""A model of transactions: the effect of each request from a producer or an administrator, and the records that readers
see.

The model contains only the rules (docs/spec/transactions.md#s2, #s3), and none of the broker's tables. It returns
whether each request is accepted, and the producer id and epoch to continue with. It also keeps the contents of every
partition.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import count

Pair = tuple[int, int]
TIMEOUT_MS = 60_000
LAST_USABLE, MAX = 32_766, 32_767
OFFSETS = -1  # index of the partition for group offsets


class State(Enum):
    EMPTY = auto()
    OPEN = auto()
    DECIDED = auto()  # some markers have not been written
    COMMITTED = auto()
    ABORTED = auto()


IDLE = (State.EMPTY, State.COMMITTED, State.ABORTED)
FINISHED = (State.COMMITTED, State.ABORTED)


@dataclass(slots=True)
class Record:
    value: bytes
    producer_id: int
    is_committed: bool | None = None  # whether the record is committed, or None while it is undecided
    offset: int | None = None  # the committed offset, if the record commits a group offset
    group: str = ""


@dataclass(slots=True)
class ProducerRequests:
    """A producer's oldest request to the coordinator whose batch has not been appended. Later batches must not overtake
    that batch."""

    epoch: int
    sequence: int
    adds: bool


@dataclass(slots=True)
class Partition:
    """The contents of a partition.

    records               in the order of the log
    epochs                newest epoch of each producer
    sequences             next sequence of each pair
    requests_by_producer  requests that wait for the coordinator, by producer id; a restart forgets them
    """

    records: list[Record] = field(default_factory=list)
    epochs: dict[int, int] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)  # the epoch of the open transaction, by producer id
    sequences: dict[Pair, int] = field(default_factory=dict)
    requests_by_producer: dict[int, ProducerRequests] = field(default_factory=dict)

    def ask(self, pair: Pair, sequence: int, *, adds: bool) -> None:
        known = self.requests_by_producer.setdefault(pair[0], ProducerRequests(pair[1], sequence, adds))
        if pair[1] > known.epoch:
            known.epoch, known.sequence = pair[1], sequence
        elif pair[1] == known.epoch:
            known.sequence = min(known.sequence, sequence)

    def overtakes(self, pair: Pair, sequence: int) -> bool:
        return pair[0] in self.requests_by_producer and sequence > self.requests_by_producer[pair[0]].sequence

    def write(self, pair: Pair, record: Record) -> None:
        self.records.append(record)
        self.epochs[pair[0]] = pair[1]
        self.open[pair[0]] = pair[1]
        self.sequences[pair] = self.sequences.get(pair, 0) + 1
        self.requests_by_producer.pop(pair[0], None)

    def mark(self, pair: Pair, *, commit: bool, version: int) -> None:
        producer_id, epoch = pair
        request = self.requests_by_producer.get(producer_id)
        if request is not None and not (version == 2 and request.adds and request.epoch == epoch):
            del self.requests_by_producer[producer_id]
        for record in self.records:
            if record.producer_id == producer_id and record.is_committed is None:
                record.is_committed = commit
        self.open.pop(producer_id, None)
        self.epochs[producer_id] = epoch

    def visible(self) -> list[bytes]:
        """Returns the values that a read_committed reader receives. It stops before the first undecided record."""
        values = []
        for record in self.records:
            if record.is_committed is None:
                break
            if record.is_committed:
                values.append(record.value)
        return values


@dataclass(slots=True)
class Txn:
    """A transactional id.

    pair   producer id and epoch of its records
    owner  producer id and epoch of the recovery that has kept its transaction
    """

    pair: Pair
    is_two_phase: bool
    state: State = State.EMPTY
    owner: Pair | None = None
    previous: Pair | None = None  # the pair that EndTxn and InitProducerId recognise as previous
    is_previous_known: bool = False  # whether InitProducerId recognises that pair; a restart may forget it
    version: int = 0  # the last step's transaction version
    partitions: set[int] = field(default_factory=set)
    started_ms: int = 0
    next_is_two_phase: bool | None = None
    # whether the transaction commits, pair of its markers, next pair, version
    decided: tuple[bool, Pair, Pair, int] | None = None
    owed: set[int] = field(default_factory=set)
    is_sealed: bool = False

    @property
    def client(self) -> Pair:
        return self.owner or self.pair


class Model:
    def __init__(self, partition_count: int, level: int) -> None:
        self.level = level
        self.now_ms = 0
        self.txns: dict[str, Txn] = {}
        self.partitions = {index: Partition() for index in (*range(partition_count), OFFSETS)}
        self.held: set[int] = set()  # partitions whose markers are currently held
        self.values = count()

    # --- Permitted requests.

    def begins(self, name: str, claimed: Pair | None, *, two_phase: bool, keep: bool) -> str:
        """Returns the outcome of InitProducerId: "new", "next", "again", "kept", "wait" (after an abort), or "" for a
        refusal."""
        if keep and self.level < 2:
            return ""
        txn = self.txns.get(name)
        if txn is None:
            return "new"
        if txn.state is State.DECIDED:
            return ""
        if txn.state is State.OPEN:
            if claimed in (None, txn.client):
                return "kept" if keep else "wait"
            is_old = claimed is not None and claimed[0] == txn.pair[0]
            return "wait" if is_old and not keep and txn.owner is None and not txn.is_two_phase else ""
        if claimed in (None, txn.pair):
            return "next"
        return "again" if txn.is_previous_known and claimed == txn.previous else ""

    def may_add(self, name: str, pair: Pair) -> bool:
        txn = self.txns[name]
        return txn.state is not State.DECIDED and txn.owner is None and txn.pair == pair

    def may_write(self, name: str, pair: Pair, index: int, *, adds: bool) -> bool:
        """Returns whether Produce is permitted or, if `index` is OFFSETS, TxnOffsetCommit.

        A request that needs the coordinator is remembered, as in a real partition.

        adds  whether the request adds the partition itself, as Produce v12 and TxnOffsetCommit v5 and later do
        """
        txn, partition = self.txns[name], self.partitions[index]
        sequence = 0 if index == OFFSETS else partition.sequences.get(pair, 0)
        is_open = partition.open.get(pair[0]) == pair[1]
        if not is_open and pair[1] >= partition.epochs.get(pair[0], -1):
            partition.ask(pair, sequence, adds=adds)
        if partition.overtakes(pair, sequence):
            return False
        if any(each.is_sealed and pair[0] in (each.pair[0], each.client[0]) for each in self.txns.values()):
            return False
        if is_open:
            return True
        if not self.may_add(name, pair) or pair[1] < partition.epochs.get(pair[0], -1):
            return False
        return adds or (index in txn.partitions and txn.state is State.OPEN)

    def ends(self, name: str, pair: Pair, *, commit: bool, version: int) -> str:
        """Returns the outcome of EndTxn: "end", "nothing" (an abort without a transaction), "again", or "" for a
        refusal."""
        txn = self.txns[name]
        kept = txn.owner is not None
        version = version if kept or self.level >= 1 else 0
        if txn.state is State.DECIDED:
            return ""
        if pair == txn.client:
            if txn.state is State.OPEN:
                return "" if kept and version == 0 else "end"
            if version == 2:
                return "" if commit else "nothing"
            return "again" if txn.state is (State.COMMITTED if commit else State.ABORTED) else ""
        is_retry = version == 2 and txn.version == 2 and pair == txn.previous and txn.state in FINISHED
        return "again" if is_retry and (txn.state is State.COMMITTED) is commit else ""

    # --- The effects of requests.

    def begin(self, name: str, outcome: str, claimed: Pair | None, answered: Pair | None, *, two_phase: bool) -> Pair:
        """Initialises the producer and returns the pair of the response. A new producer id is copied from the broker's
        response."""
        fresh = (-1 if answered is None else answered[0], 0)
        if outcome == "new":
            self.txns[name] = Txn(fresh, two_phase)
            return fresh
        txn = self.txns[name]
        if outcome == "kept":
            last = LAST_USABLE if txn.owner is None else MAX
            txn.owner = fresh if txn.client[1] >= last else (txn.client[0], txn.client[1] + 1)
            own = txn.is_two_phase
            txn.is_two_phase = own or two_phase
            txn.next_is_two_phase = two_phase
            txn.is_sealed = True
            return txn.owner
        if outcome == "next":
            txn.previous, txn.is_previous_known = txn.pair, claimed is not None
            txn.pair = fresh if txn.pair[1] >= LAST_USABLE else (txn.pair[0], txn.pair[1] + 1)
        txn.state, txn.is_two_phase = State.EMPTY, two_phase
        txn.version = txn.version if self.level >= 1 else 0
        return txn.pair

    def add(self, name: str, index: int, version: int) -> None:
        txn = self.txns[name]
        if txn.state is not State.OPEN:
            txn.state, txn.partitions, txn.started_ms = State.OPEN, set(), self.now_ms
            txn.version = version if self.level >= 1 else 0
        elif index not in txn.partitions:
            txn.version = version if self.level >= 1 else 0
        txn.partitions.add(index)

    def write(self, name: str, pair: Pair, index: int, record: Record, *, adds: bool) -> None:
        if adds and self.partitions[index].open.get(pair[0]) != pair[1]:
            self.add(name, index, 2)
        self.partitions[index].write(pair, record)

    def end(self, name: str, *, commit: bool, version: int, fresh: int) -> Pair:
        """Decides the transaction and writes the markers that are not held. Returns the next pair.

        fresh  a new producer id, if the decision needs one
        """
        txn = self.txns[name]
        version = version if txn.owner is not None or self.level >= 1 else 0
        if version == 0:
            return self._decide(txn, commit, txn.pair, txn.pair, 0)
        client = txn.client
        marked = (txn.pair[0], min(txn.pair[1] + 1, MAX))
        following = (fresh, 0) if client[1] >= LAST_USABLE else (client[0], client[1] + 1)
        txn.is_sealed = txn.is_sealed or following[0] != client[0]
        return self._decide(txn, commit, marked, following, 2)

    def fence(self, name: str, fresh: int) -> None:
        """Aborts the transaction on the coordinator's initiative, because of a new owner or a timeout."""
        txn = self.txns[name]
        if self.level >= 2 or txn.owner is not None:
            self.end(name, commit=False, version=2, fresh=fresh)
            return
        marked = (txn.pair[0], min(txn.pair[1] + 1, MAX))
        self._decide(txn, False, marked, marked, 0)
        txn.previous, txn.is_previous_known = None, False

    def _decide(self, txn: Txn, commit: bool, marked: Pair, following: Pair, version: int) -> Pair:
        was_open = txn.state is State.OPEN
        txn.decided = (commit, marked, following, version)
        txn.owed = set(txn.partitions) if was_open else set()
        txn.state = State.DECIDED
        if version == 2:
            txn.previous, txn.is_previous_known = txn.client, True
        txn.pair = marked
        txn.owner = None
        self.write_markers()
        return following

    def write_markers(self) -> None:
        """Writes the missing markers that are not held and completes the transactions that then have all their
        markers."""
        for txn in self.txns.values():
            if txn.decided is None:
                continue
            commit, marked, following, version = txn.decided
            for index in sorted(txn.owed - self.held):
                self.partitions[index].mark(marked, commit=commit, version=version)
            txn.owed &= self.held
            if not txn.owed:
                txn.pair, txn.state = following, State.COMMITTED if commit else State.ABORTED
                txn.version = version if self.level >= 1 else 0
                txn.decided, txn.partitions, txn.is_sealed = None, set(), False
                if txn.next_is_two_phase is not None:
                    txn.is_two_phase, txn.next_is_two_phase = txn.next_is_two_phase, None

    def timed_out(self) -> list[str]:
        return [
            name
            for name, txn in self.txns.items()
            if txn.state is State.OPEN and not txn.is_two_phase and self.now_ms > txn.started_ms + TIMEOUT_MS
        ]

    def restart(self) -> None:
        self.held = set()
        for partition in self.partitions.values():
            partition.requests_by_producer.clear()
        self.write_markers()
        for txn in self.txns.values():
            txn.is_previous_known = False

    def committed_offset(self, group: str) -> int:
        committed = [r.offset for r in self.partitions[OFFSETS].records if r.group == group and r.is_committed]
        return -1 if not committed or committed[-1] is None else committed[-1]
