"""Manages partitions: appends that share writes, fetches that wait for records, and periodic log maintenance."""
