"""Produce requests: the fast path for ordinary requests, the general path, and the handling of transactions."""
