"""The program `rollbook`, also as `python -m rollbook`."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; an interruption while it is loaded is not a traceback either."""
    try:
        from rollbook.cli import main as run  # noqa: PLC0415 - takes long enough to be interrupted
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
