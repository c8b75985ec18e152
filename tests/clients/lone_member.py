"""A group member in its own process, which a test can kill. Arguments: BOOTSTRAP TOPIC GROUP SESSION_TIMEOUT_MS.

Prints `assigned` once it owns partitions, then polls until it is killed.
"""

import sys

from tests.clients.speakers import KafkaPython

if __name__ == "__main__":
    bootstrap, topic, group, session_timeout_ms = sys.argv[1:]
    member = KafkaPython().join(bootstrap, topic, group, session_timeout_ms=int(session_timeout_ms))
    while not member.assignment():
        member.poll()
    print("assigned", flush=True)
    while True:
        member.poll()
