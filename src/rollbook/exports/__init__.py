"""Records in other formats."""
