"""`python -m rollbook`: the command line."""

from __future__ import annotations

from rollbook.cli import main

if __name__ == "__main__":
    main()
