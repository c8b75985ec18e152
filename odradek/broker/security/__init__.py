"""Authentication, authorization and quotas. Decisions, and shells by name (tests/unit/test_import_rules.py)."""
