"""The program `rollbook`, also as `python -m rollbook`."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; an interruption while it is loaded is not a traceback either."""
    try:
        from rollbook.cli import main as run  # noqa: PLC0415 - takes long enough to be interrupted
    except KeyboardInterrupt:
        from rollbook.errors import ExitCode  # noqa: PLC0415 - see above

        sys.exit(ExitCode.INTERRUPTED)
    run()


if __name__ == "__main__":
    main()
