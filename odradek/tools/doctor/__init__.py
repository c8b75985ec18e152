"""Implements `odradek doctor`, which finds problems with a broker, and with clients that cannot reach the broker.

facts     collects facts about the machine, a data directory, the broker, and the addresses that it advertises
findings  draws conclusions from these facts, and gives advice; does no I/O
"""
