"""Judges Kafka clients: finds the rules of the protocol that a client breaks, and the exchanges that prove it.

Judging is pure: recorded exchanges go in, and results come out, without a clock, files or sockets. docs/judge.md is the
user's guide.
"""
