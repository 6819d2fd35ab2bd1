"""Names of other libraries."""
