"""The clients of `odradek.client` for programs without an event loop. Their methods have the same names, but no
`await`.

All blocking clients share one event loop in a daemon thread. A client cannot be used after a fork, so create it in the
child process.
"""

from odradek.client.sync.admin import Admin
from odradek.client.sync.consumer import Consumer, ShareConsumer
from odradek.client.sync.producer import Producer

__all__ = ["Admin", "Consumer", "Producer", "ShareConsumer"]
