"""A machine that is not in the inventory yet: what its entry says, from the hardware that was found there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailtrain.errors import UnsupportedError
from tailtrain.planning.hardware import GIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tailtrain.planning.observed import Hardware

# What memory is sold in, in GB.
_SOLD_SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
# Of that the kernel and the graphics chip keep some: a machine sold with 8 GB shows about 7.7 GiB, or 7.5.
_LEAST_SHOWN = 0.93


@dataclass(frozen=True)
class Entry:
    """A host of the inventory: its tailnet name, its hardware, and how to log in.

    Attributes:
        name: as the tailnet calls it.
        cores: processors that its system may use.
        ram_gb: memory, in whole GB as sold.
        storage_gb: what its disk has free, in whole GB.
        gpu: whether it has a GPU that can be trained on.
        ssh_user: the user to log in as, where it is not the one that SSH takes by itself.
        sudo: whether that user works through sudo.
    """

    name: str
    cores: int
    ram_gb: int
    storage_gb: int
    gpu: bool = False
    ssh_user: str | None = None
    sudo: bool = False

    @property
    def data(self) -> Mapping[str, object]:
        """The host's data in the inventory, in the order in which they are written there."""
        data: dict[str, object] = {"cores": self.cores, "ram_gb": self.ram_gb}
        if self.gpu:
            data["gpu"] = True
        data["storage_gb"] = self.storage_gb
        if self.ssh_user is not None:
            data["ssh_user"] = self.ssh_user
        if self.sudo:
            data["_sudo"] = True
        return data

    @property
    def strength(self) -> tuple[bool, int, int]:
        """What decides which machine is the primary: a GPU, then cores, then memory."""
        return self.gpu, self.cores, self.ram_gb


def entry_of(name: str, hardware: Hardware, *, ssh_user: str | None = None, sudo: bool = False) -> Entry:
    """The entry of a machine with this hardware.

    Raises:
        UnsupportedError: it has less than 1 GB of memory, or less than 1 GB of its disk free.
    """
    entry = Entry(
        name=name,
        cores=hardware.cores,
        ram_gb=as_sold(hardware.memory_bytes),
        storage_gb=hardware.disk_free_bytes // GIB,
        gpu=bool(hardware.gpus),
        ssh_user=ssh_user,
        sudo=sudo,
    )
    for what, whole, found in (
        ("memory", entry.ram_gb, hardware.memory_bytes),
        ("free disk space", entry.storage_gb, hardware.disk_free_bytes),
    ):
        if whole < 1:
            raise UnsupportedError(
                f"it has too little {what}",
                host=name,
                found=f"{found / GIB:.2f} GiB",
                expected="at least 1 GB",
            )
    return entry


def as_sold(memory_bytes: int) -> int:
    """Memory in the whole GB that the machine was sold with, which is a little more than it shows.

    Where it is near no size that is sold, what it shows is rounded down.
    """
    shown = memory_bytes / GIB
    for size in (*_SOLD_SIZES, math.ceil(shown)):
        if _LEAST_SHOWN * size <= shown <= size:
            return size
    return math.floor(shown)


def strongest(entries: Iterable[Entry]) -> Entry:
    """The one to be the primary; of equal ones the first."""
    return max(entries, key=lambda entry: entry.strength)
