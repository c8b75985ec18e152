"""ACLs, and decisions by them. A core (docs/spec/security.md#s3)."""
