"""Who is who, who may do what, and how much. Decisions, and shells by name (tests/unit/test_import_rules.py)."""
