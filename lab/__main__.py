"""`python -m lab`."""

from lab.cli import lab_group

lab_group(prog_name="python -m lab")
