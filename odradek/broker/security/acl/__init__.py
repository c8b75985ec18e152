"""ACLs, and decisions based on them, without side effects (docs/spec/security.md#s3)."""
