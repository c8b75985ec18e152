"""Handles Fetch requests: their sessions, the reads of partitions, and the wait for more data."""
