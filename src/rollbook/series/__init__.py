"""Samples on disk and back: the journal of a run, the tables made from it, and SQL over them."""
