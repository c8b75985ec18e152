"""Handles Fetch requests: fetch sessions, partition reads, and the wait for more data."""
