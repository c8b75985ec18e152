"""Recordings played again: requests translated to the ids of the broker that answers, and its answers compared."""
