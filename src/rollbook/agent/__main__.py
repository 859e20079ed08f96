"""`python -m rollbook.agent`: print the agent as it is sent."""

import sys

from rollbook.agent import text

sys.stdout.write(text())
