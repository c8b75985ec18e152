"""Judges Kafka clients: finds the rules of the protocol that a client breaks, and the exchanges that prove it.

The input is recorded exchanges, the output is results; there is no clock, file or socket in between. docs/judge.md is
the user's guide.
"""
