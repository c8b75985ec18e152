"""Scenarios that test a client through a small driver program, for rules that its traffic alone does not decide."""
