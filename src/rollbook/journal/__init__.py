"""The journal of a recording: written, read, surveyed."""
