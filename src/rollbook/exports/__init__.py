"""Export of records in other formats."""
