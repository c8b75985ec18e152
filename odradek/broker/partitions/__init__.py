"""Manages partitions: appends that share writes, fetches that wait for records, and the periodic maintenance of
logs."""
