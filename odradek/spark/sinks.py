"""What the sinks of a cluster have decided, and what they have left open; without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from odradek.client import TransactionDescription
from odradek.client.common.errors import ClientError
from odradek.protocol.errors import ErrorCode
from odradek.spark.brokers import Brokers
from odradek.spark.ledger import Entry, read_entries
from odradek.spark.names import task_of
from odradek.spark.two_phase import ONGOING

COMMIT, ABORT = "commit", "abort"


@dataclass(slots=True)
class SinkState:
    """`entry` is None before the first decision. `open` are transactions of its tasks that readers wait for."""

    name: str
    entry: Entry | None
    open: list[TransactionDescription] = field(default_factory=list)

    @property
    def since_ms(self) -> int | None:
        """When the oldest of them began."""
        return min((each.started_ms for each in self.open if each.started_ms is not None), default=None)

    def verdict(self, transactional_id: str) -> str:
        """What `recover` does with it: commit what the ledger has decided, abort anything else."""
        return verdict(self.entry, transactional_id)


def verdict(entry: Entry | None, transactional_id: str) -> str:
    is_decided = entry is not None and any(part.transactional_id == transactional_id for part in entry.parts)
    return COMMIT if is_decided else ABORT


async def sinks(brokers: Brokers) -> list[SinkState]:
    """All sinks that have a record in the ledger or an open transaction, by name."""
    found = {name: SinkState(name, entry) for name, entry in (await read_entries(brokers)).items()}
    async with brokers.admin() as admin:
        for listed in await admin.list_transactions(states=[ONGOING]):
            task = task_of(listed.transactional_id)
            if task is None:
                continue
            state = found.setdefault(task.sink, SinkState(task.sink, None))
            try:
                described = await admin.describe_transactions([listed.transactional_id])
            except ClientError as error:
                if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    continue
                raise
            state.open += [each for each in described.values() if each.state == ONGOING]
    return [found[name] for name in sorted(found)]


async def verdicts(brokers: Brokers, transactional_ids: Iterable[str]) -> Mapping[str, tuple[str, str]]:
    """Of those ids that are a sink's: the name of the sink, and what its ledger says."""
    tasks = {each: task for each in transactional_ids if (task := task_of(each)) is not None}
    entries = await read_entries(brokers) if tasks else {}
    return {each: (task.sink, verdict(entries.get(task.sink), each)) for each, task in tasks.items()}
