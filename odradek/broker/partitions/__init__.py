"""Partitions at work: appends that share a write, reads that wait, and the periodic chores on logs."""
