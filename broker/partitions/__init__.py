"""Partitions at work: appends that share a write, reads that wait, and what is done to logs unasked."""
