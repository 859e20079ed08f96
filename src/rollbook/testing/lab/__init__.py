"""The lab: hosts with real sshd on one Linux machine, with configurable hardware and faults."""

from rollbook.testing.lab.ground import LabCannot
from rollbook.testing.lab.host import LabHost
from rollbook.testing.lab.lab import Lab

__all__ = ["Lab", "LabCannot", "LabHost"]
