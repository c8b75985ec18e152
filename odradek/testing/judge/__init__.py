"""Judges Kafka clients by finding the protocol rules that a client breaks and the exchanges that prove it.

Judging turns recorded exchanges into verdicts, without a clock, files or sockets. docs/judge.md is the user's guide.
"""
