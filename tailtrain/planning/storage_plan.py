"""The storage backend as a plan needs it: nothing secret, and no word of how it is reached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class PlannedStorage:
    """A backend, and what of the data sets it lacks.

    Attributes:
        path: the remote and the folder there, `name:folder`.
        config_sha256: of the credentials' file that nodes get.
        flags: how a node calls rclone.
        ca_text: certificates that nodes check the backend's with; None for their system's.
        uploads: bytes of each pack that it lacks, by the pack's name; None where nobody has looked.
    """

    path: str
    config_sha256: str
    flags: tuple[str, ...] = ()
    ca_text: str | None = None
    uploads: Mapping[str, int] | None = None
