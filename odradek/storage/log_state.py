"""The state that a log begins with: as recovery found it, or nothing yet."""

from dataclasses import dataclass, field

from odradek.storage.leader_epochs import LeaderEpochs
from odradek.storage.log_sync import SnapshotToWrite
from odradek.storage.producer_state import ProducerStates
from odradek.storage.segment import Segment


@dataclass(slots=True)
class LogState:
    segments: list[Segment]
    log_start_offset: int
    end_offset: int
    recovery_point: int
    producers: ProducerStates
    leader_epochs: LeaderEpochs
    last_snapshot_offset: int = -1
    is_new: bool = False  # neither the directory nor its files are known to survive a power failure
    active_is_saved: bool = False  # the index files of the active segment are as they ought to be
    unsynced_segments: list[Segment] = field(default_factory=list)  # inactive, built anew above the recovery point
    unsynced_snapshots: list[SnapshotToWrite] = field(default_factory=list)
    noted: dict[str, str] = field(default_factory=dict)  # what the clean stop said of its files
