"""Partitions: appends that share a write, fetches that wait for records, and the periodic maintenance of logs."""
