"""The clients of `odradek.client` for programs without an event loop: the same names, without `await`.

All of them share one event loop in a daemon thread. A client does not survive a fork: create it in the child.
"""

from odradek.client.sync.admin import Admin
from odradek.client.sync.consumer import Consumer, ShareConsumer
from odradek.client.sync.producer import Producer

__all__ = ["Admin", "Consumer", "Producer", "ShareConsumer"]
