# The public names, each listed once: `__init__.py` loads a name from here when it is first used.

from rollbook.testing.conformance import check_transport as check_transport
from rollbook.testing.fake import Fake as Fake
from rollbook.testing.fakehost import FakeHost as FakeHost
from rollbook.testing.fakehost import pages_of as pages_of
from rollbook.testing.lab import Lab as Lab
from rollbook.testing.lab import LabCannot as LabCannot
from rollbook.testing.lab import LabHost as LabHost
from rollbook.testing.machines import linux as linux
from rollbook.testing.slurm import SlurmLab as SlurmLab
