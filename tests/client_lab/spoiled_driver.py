"""A driver that runs another driver and corrupts that driver's input or output in the way that the first argument
specifies."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys

from odradek.client.network.cluster import Cluster
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.leave_group_response import LeaveGroupResponse


async def leave() -> None:
    """Sends a LeaveGroup for a static member, which a client with `group.instance.id` must not do."""
    cluster = Cluster(os.environ["ODRADEK_BOOTSTRAP"], client_id="judged")
    await cluster.start()
    member = MemberIdentity(group_instance_id=os.environ["ODRADEK_GROUP_INSTANCE_ID"])
    await cluster.ask(LeaveGroupRequest(group_id=os.environ["ODRADEK_GROUP"], members=[member]), LeaveGroupResponse)
    await cluster.close()


def main() -> None:
    how, *command = sys.argv[1:]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdin is not None
        assert driver.stdout is not None
        for line in sys.stdin:
            verb, *words = line.split()
            if verb == "set" and how == "heeds no setting":
                print("{}", flush=True)
                continue
            if verb == "produce" and how == "reversed":
                words = [*words[:2], *reversed(words[2:])]
            if verb == "produce" and how == "sent twice":
                driver.stdin.write(line)
                driver.stdin.flush()
                driver.stdout.readline()
            driver.stdin.write(" ".join([verb, *words]) + "\n")
            driver.stdin.flush()
            answer = json.loads(driver.stdout.readline())
            if how == f"{verb} raises":
                answer = {"error": "on purpose"}
            if verb in ("poll", "groups") and how == "delivered twice":
                answer["records"] *= 2
            print(json.dumps(answer), flush=True)
        driver.stdin.close()
    if how == "leaves":
        asyncio.run(leave())


main()
