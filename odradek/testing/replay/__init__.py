"""Plays recordings again: translates requests to the ids of the live broker, and compares its responses."""
