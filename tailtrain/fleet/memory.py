"""What hosts answered last, so that they need not say it again.

A host is told the digests of the parts of its last answer, and leaves out the parts that are still the same:
where nothing changed that is nearly all of it, however large data and fleet are. The files may be deleted at
any time.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tailtrain.errors import FleetError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Parts = dict[str, Any]


class Memory:
    """The last answers of a fleet.

    Args:
        folder: where they are kept, a file for each host: the parts of its answer by the digests that the
            host gave them. None keeps nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._known: dict[str, Parts] = {}

    def known(self, host: str) -> list[str]:
        """The digests of what is remembered of a host."""
        self._known[host] = {}
        if self._folder is not None:
            # What cannot be read is not known, so it is said again.
            with suppress(OSError, ValueError, TypeError):
                self._known[host] = dict(json.loads((self._folder / f"{host}.json").read_bytes()))
        return sorted(self._known[host])

    def whole(self, host: str, reply: Mapping[str, Any]) -> Parts:
        """A host's whole answer, from what it said and what is remembered; it is remembered from now on.

        Args:
            host: `known` was asked for it before.
            reply: as `probe_program.news` makes it.

        Raises:
            FleetError: the host left out what it was not told to be known.
        """
        known, said, digests = self._known.pop(host), reply["parts"], reply["digests"]
        if missing := [part for part, digest in digests.items() if part not in said and digest not in known]:
            raise FleetError("left out a part of its answer", host=host, found=", ".join(missing))
        found = {part: said[part] if part in said else known[digest] for part, digest in digests.items()}
        parts = {digest: found[part] for part, digest in digests.items()}
        if self._folder is not None and parts.keys() != known.keys():
            # Where this cannot be written, the host only says more the next time.
            with suppress(OSError):
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                beside = self._folder / f".{host}.{os.getpid()}"
                beside.write_text(json.dumps(parts))
                beside.replace(self._folder / f"{host}.json")
        return found
