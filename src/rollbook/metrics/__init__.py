"""Derived metrics: one catalogue, computed live and in SQL."""
