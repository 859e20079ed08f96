"""The raw log of a recording: written, read, surveyed."""
