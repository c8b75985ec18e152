"""Replays recordings: translates the ids in requests to the ids of the live broker, and compares the responses."""
