"""Produce: the fast path of ordinary requests, the general request, and what transactions add."""
