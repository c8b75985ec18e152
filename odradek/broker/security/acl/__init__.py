"""ACLs, and authorization decisions based on them. These modules have no side effects (docs/spec/security.md#s3)."""
