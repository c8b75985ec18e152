"""Replays recordings: translates the ids in requests to the live broker's ids, and compares the responses."""
