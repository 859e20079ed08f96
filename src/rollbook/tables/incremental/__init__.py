"""Parsing only what changed between two samples of a source."""
