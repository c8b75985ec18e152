"""Handles Produce requests, with a fast path for ordinary requests, a general path, and the verification of
transactions."""
