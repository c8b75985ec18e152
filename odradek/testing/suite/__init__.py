"""Scenarios that are played at a client through a small driver, for rules that traffic alone does not decide."""
