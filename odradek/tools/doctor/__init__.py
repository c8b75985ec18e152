"""`odradek doctor`: what stands in the way of a broker, or of the clients that look for it.

facts     what can be seen from here: the machine, a data directory, the broker and the addresses that it tells
findings  what that means, and what to do: plain functions
"""
