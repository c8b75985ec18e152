"""Replays recordings: translates the ids in requests to those of the live broker, and compares the responses."""
