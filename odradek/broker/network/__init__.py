"""The sockets and connections of a broker, and the limits on connections."""
