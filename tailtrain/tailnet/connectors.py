"""Which connectors there are, looked up once.

While it reads an inventory, pyinfra 3.10 searches all installed packages for connectors, once for every host
that names one, and it reads an inventory twice: 30 ms for six hosts, 3 s for a thousand. What is installed
does not change meanwhile.
"""

from __future__ import annotations

from functools import cache

from pyinfra.api import inventory


def remember() -> None:
    """Have pyinfra keep what it found, from now on and in this process."""
    inventory.get_all_connectors = cache(inventory.get_all_connectors)
