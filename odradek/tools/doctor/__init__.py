"""`odradek doctor`: finds problems of a broker, and of clients that try to reach it.

facts     collects facts: about the machine, a data directory, the broker, and the addresses it advertises
findings  draws conclusions from facts, and gives advice: pure functions
"""
