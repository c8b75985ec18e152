"""Runs scenarios that test a client through a small driver program, for rules that cannot be decided from traffic
alone."""
