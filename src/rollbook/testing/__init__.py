"""Tools to test with, for Rollbook's own tests and for those of programs built on it.

A lab of real hosts, a transport to scripted ones, and the checks that every transport must pass. `__init__.pyi` lists
the names.
"""

from __future__ import annotations

from rollbook.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__)
