"""The version of Rollbook."""

__version__ = "0.1.0"
