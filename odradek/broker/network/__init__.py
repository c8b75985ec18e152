"""Sockets, connections and the limits on them."""
