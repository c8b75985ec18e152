"""Fetch requests: sessions, reads of partitions, and waiting for more data."""
