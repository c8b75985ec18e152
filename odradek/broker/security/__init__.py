"""Authentication, authorization and quotas. tests/unit/test_import_rules.py lists which of these modules are pure and
which have side effects."""
