"""The lab: hosts with real sshd on one Linux machine, with configurable hardware and faults."""

from rollbook.testing.lab.host import LabHost
from rollbook.testing.lab.lab import Lab
from rollbook.testing.lab.resources import LabCannot

__all__ = ["Lab", "LabCannot", "LabHost"]
