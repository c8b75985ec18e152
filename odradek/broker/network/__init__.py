"""The broker's sockets and connections, and the limits on connections."""
