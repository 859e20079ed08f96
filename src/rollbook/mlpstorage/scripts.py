"""The tool's remote scripts as text: each is a complete Python 3.6 program made of `standalone`."""

from __future__ import annotations

from importlib import resources

__all__ = ["MPI_COLLECTOR_SCRIPT", "SSH_COLLECTOR_SCRIPT", "TIMESERIES_SSH_SCRIPT"]

_TEXT = resources.files("rollbook.mlpstorage").joinpath("standalone.py").read_text("utf-8")

SSH_COLLECTOR_SCRIPT = f"{_TEXT}\n\nprint_json(facts())\n"
"""Prints the facts of the host it runs on as one JSON object."""

TIMESERIES_SSH_SCRIPT = f"{_TEXT}\n\nprint_json(collect_timeseries_sample())\n"
"""Prints one sample of the host it runs on as one JSON object."""

MPI_COLLECTOR_SCRIPT = f"{_TEXT}\n\ngather(sys.argv[1])\n"
"""Run by every MPI rank, with mpi4py; rank 0 writes the facts of all hosts to the path in its first argument."""
