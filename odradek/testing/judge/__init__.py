"""Judges Kafka clients: finds the rules of the protocol that a client breaks, and the exchanges that prove it.

Judging uses no clock, files or sockets. Its input is recorded exchanges, and its output is verdicts. docs/judge.md is
the user's guide.
"""
