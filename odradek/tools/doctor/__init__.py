"""Implements `odradek doctor`, which finds problems with a broker and with clients that cannot reach it.

facts     collects facts about the machine, a data directory, the broker, and its advertised addresses
findings  draws conclusions from these facts and gives advice; does no I/O
"""
