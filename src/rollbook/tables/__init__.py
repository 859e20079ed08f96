"""From a journal to one Parquet table per sampled source."""
