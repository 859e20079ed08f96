"""Comparison of runs: what differs, by how much, whether repeats prove it, and which facts changed."""
