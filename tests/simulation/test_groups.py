"""Tests that classic groups keep their guarantees while members join, work, fall silent and leave at random, the disk
fails, and the broker is killed.

After every event there is one assignment for each generation, generations only increase, and OffsetFetch returns the
committed offsets. When the faults end, every member that wants to be in the group is in it, and none is waiting.
"""

from random import Random

import pytest

from odradek.broker.groups.common.outcome import GroupConfig
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.leave_group_request import MemberIdentity
from odradek.protocol.messages.sync_group_response import SyncGroupResponse
from tests.simulation.seeds import seeds
from tests.support.group_scene import PendingRequest, Scene, subscription

SEEDS = seeds(150)
EVENTS = 120
SESSION_MS, REBALANCE_MS = 10_000, 20_000
START_OVER = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}
JOIN_AGAIN = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}


class Client:
    """A consumer that behaves like a real one: it joins, syncs, sends heartbeats and commits, and starts again when a
    response requires it."""

    def __init__(self, name: str, scene: Scene, rng: Random) -> None:
        self.name = name
        self.scene = scene
        self.version = rng.choice([3, 5, 9])
        self.instance = name if rng.random() < 0.3 else None
        self.protocols = {"range": subscription("t")} | ({"sticky": subscription("t")} if rng.random() < 0.5 else {})
        self.is_alive = True
        self.is_busy = False  # A busy consumer processes records. It sends heartbeats and ignores their responses.
        self.member_id = ""
        self.generation = -1
        self.assignment: bytes | None = None
        self.joining: PendingRequest[JoinGroupResponse] | None = None
        self.syncing: PendingRequest[SyncGroupResponse] | None = None

    @property
    def is_in(self) -> bool:
        return self.assignment is not None

    def reconnect(self) -> None:
        """Opens a new connection. Pending responses are lost, but the client keeps its member id."""
        self.joining = self.syncing = None

    def start_over(self) -> None:
        self.member_id, self.generation, self.assignment = "", -1, None
        self.reconnect()

    def step(self) -> None:
        """Sends the consumer's next request, or handles a response that has arrived."""
        try:
            if self.is_busy:
                self.scene.heartbeat(self.member_id, self.generation, instance=self.instance)
            else:
                self._step()
        except KafkaError:
            self.reconnect()  # The coordinator could not write, so the client looks up the coordinator again.

    def _step(self) -> None:
        if self.joining is not None:
            if not self.joining.is_parked:
                self._joined(self.joining.answer)
        elif self.syncing is not None:
            if not self.syncing.is_parked:
                self._synced(self.syncing.answer)
        elif self.assignment is None:
            self._join()
        else:
            self._apply(self.scene.heartbeat(self.member_id, self.generation, instance=self.instance))

    def _join(self) -> None:
        self.joining = self.scene.join(
            self.member_id,
            client=self.name,
            instance=self.instance,
            protocols=self.protocols,
            version=self.version,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
        )

    def _joined(self, answer: JoinGroupResponse) -> None:
        self.joining = None
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        if code is not ErrorCode.NONE:
            self._apply(code)
            return
        self.member_id, self.generation = answer.member_id, answer.generation_id
        assignments = None
        if answer.leader == answer.member_id and not answer.skip_assignment:
            assignments = {
                member.member_id: f"{answer.generation_id}:{member.member_id}".encode() for member in answer.members
            }
        self.syncing = self.scene.sync(self.member_id, self.generation, assignments, instance=self.instance)

    def _synced(self, answer: SyncGroupResponse) -> None:
        self.syncing = None
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE:
            self.assignment = answer.assignment
        else:
            self._apply(code)

    def _apply(self, code: ErrorCode) -> None:
        if code in START_OVER:
            self.start_over()
        elif code in JOIN_AGAIN or (code is not ErrorCode.NONE and self.assignment is None):
            self.assignment = None
            self.reconnect()


class World:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        delay_ms = self.rng.choice([0, 0, 3_000])
        self.scene = Scene(GroupConfig(group_initial_rebalance_delay_ms=delay_ms, group_max_size=6))
        self.clients = [Client(f"c{number}", self.scene, self.rng) for number in range(5)]
        self.trace = [f"SEED={seed}"]
        self.generation = 0  # highest generation with a recorded assignment
        self.assignments: dict[tuple[int, str], bytes] = {}  # assignment by (generation, member id)
        self.committed = -1

    def event(self) -> None:
        rng, client = self.rng, self.rng.choice(self.clients)
        event = rng.choices(
            ["step", "time", "commit", "die", "revive", "busy", "leave", "crash", "disk"],
            [40, 12, 10, 6, 6, 3, 3, 2, 4],
        )[0]
        self.trace.append(f"{self.scene.now_ms} {event} {client.name}")
        match event:
            case "step":
                for each in rng.sample(self.clients, rng.randint(1, len(self.clients))):
                    if each.is_alive:
                        each.step()
            case "time":
                self.scene.advance(rng.choice([1, 1_000, 5_000, 12_000]))
            case "commit":
                self.commit(client)
            case "die":
                client.is_alive = False
                client.reconnect()
            case "revive":
                if not client.is_alive:
                    client.is_alive, client.is_busy = True, False
                    client.start_over()
            case "busy":
                client.is_busy = client.is_alive and not client.is_busy
            case "leave":
                self.leave(client)
            case "crash":
                self.scene.writes_fail = False
                self.scene.restart()
                for each in self.clients:
                    each.reconnect()
            case "disk":
                self.scene.writes_fail = not self.scene.writes_fail

    def commit(self, client: Client) -> None:
        if not client.is_in:
            return
        offset = self.rng.randint(self.committed + 1, self.committed + 5)
        code = self.scene.commit(
            offset, member_id=client.member_id, generation=client.generation, instance=client.instance
        )
        if code is ErrorCode.NONE:
            self.committed = offset

    def leave(self, client: Client) -> None:
        identity = MemberIdentity(member_id=client.member_id, group_instance_id=client.instance)
        try:
            self.scene.leave(identity)
        except KafkaError:
            return
        client.start_over()

    def check(self) -> None:
        for client in self.living:
            if not client.is_in:
                continue
            assert client.assignment is not None
            # A static member keeps its place even when its member id changes.
            place = client.instance or client.member_id
            before = self.assignments.setdefault((client.generation, place), client.assignment)
            assert before == client.assignment, f"{client.name} has two assignments in generation {client.generation}"
            decided_in = int(client.assignment.partition(b":")[0] or client.generation)
            assert decided_in == client.generation, "an assignment of another generation"
            if self.scene.heartbeat(client.member_id, client.generation, instance=client.instance) is ErrorCode.NONE:
                assert client.generation >= self.generation, "an older generation is in force again"
                self.generation = max(self.generation, client.generation)
        assert self.scene.fetch() == self.committed, "a committed offset was lost"

    def settle(self) -> None:
        """Stops all faults and lets the clients continue. Revives the first client; other dead or busy clients do not
        change."""
        self.scene.writes_fail = False
        self.clients[0].is_alive, self.clients[0].is_busy = True, False
        for client in self.clients:
            if client.is_alive and not client.is_busy and client.assignment is not None:
                # The member rejoins. The resulting rebalance must complete without the busy members.
                client.assignment = None
                client.reconnect()
        for _ in range(200):
            for client in self.clients:
                if client.is_alive:
                    client.step()
            self.scene.advance(1_000)

    @property
    def living(self) -> list[Client]:
        return [client for client in self.clients if client.is_alive and not client.is_busy]

    @property
    def busy_in_force(self) -> set[str]:
        """Returns the ids of busy members that no rebalance has removed.

        There is no rebalance if neither the leader nor a member with a changed subscription rejoins.
        """
        return {
            client.member_id
            for client in self.clients
            if client.is_alive and client.is_busy and client.generation == self.generation
        }


@pytest.mark.parametrize("seed", SEEDS)
def test_groups_hold_together_and_nobody_is_stuck(seed: int) -> None:
    world = World(seed)
    try:
        for _ in range(EVENTS):
            world.event()
            world.check()
        world.settle()
        world.check()
        assert all(client.is_in for client in world.living), "somebody never got in"
        assert world.scene.groups() == {"billing": "Stable"}
        assert {client.generation for client in world.living} == {world.generation}
        shares = [client.assignment for client in world.living]
        assert len(set(shares)) == len(shares), "two members have the same share"
        members = {member.member_id for member in world.scene.describe().members}
        living = {client.member_id for client in world.living}
        assert living <= members <= living | world.busy_in_force, "somebody dead is still in"
    except AssertionError as failure:
        raise AssertionError("\n".join([*world.trace, str(failure)])) from failure
