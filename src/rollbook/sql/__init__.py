"""SQL over a record."""
