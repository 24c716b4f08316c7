"""What the exit codes of `plan`, `apply` and the deploys say."""

from __future__ import annotations

EXIT_NO_CHANGES = 0
EXIT_ERROR = 1
EXIT_CHANGES = 2
EXIT_UNKNOWN_HOSTS = 3
EXIT_LOCKED = 4
EXIT_INTERRUPTED = 130
"""As shells do it: 128 and the number of SIGINT."""
