"""Rollbook: the record of every host in a cluster."""

__version__ = "0.1.0"
