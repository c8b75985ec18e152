"""Handlers of Produce and Fetch, and of other requests about records."""
