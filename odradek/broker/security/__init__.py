"""Authentication, authorization and quotas. Which modules are pure and which have side effects is listed in
tests/unit/test_import_rules.py."""
