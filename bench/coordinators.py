"""Waits for coordinators. The first FindCoordinator request makes the broker create the topics that store the
coordinators' state, and this takes a while."""

import time

from bench.clients import CLIENT_TIMEOUT_S
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from tests.support.wire import Wire

GROUP, TRANSACTION = 0, 1  # key types of FindCoordinator
FIND_COORDINATOR_VERSION = 4
RETRY_S = 0.05


def await_coordinator(wire: Wire, key_type: int, key: str) -> None:
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    deadline = time.monotonic() + CLIENT_TIMEOUT_S
    while wire.ask(request, FIND_COORDINATOR_VERSION, FindCoordinatorResponse).coordinators[0].error_code:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{key} has no coordinator")
        time.sleep(RETRY_S)
