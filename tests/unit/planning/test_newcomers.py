"""What the entry of a new machine says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtrain.errors import UnsupportedError
from tailtrain.planning.hardware import GIB, LEAST_MEMORY_SHOWN
from tailtrain.planning.newcomers import Entry, as_sold, entry_of, strongest
from tailtrain.planning.observed import Hardware


def hardware(memory: float = 7.7, disk: float = 200.9, gpus: tuple[str, ...] = ()) -> Hardware:
    """Four cores; memory and free disk in GiB."""
    return Hardware(
        architecture="x86_64",
        system="Debian GNU/Linux 12",
        python="3.11",
        systemd=True,
        cores=4,
        usable_cores=4.0,
        memory_bytes=round(memory * GIB),
        gpus=gpus,
        disk_free_bytes=round(disk * GIB),
        clock_skew_seconds=0.0,
    )


@pytest.mark.parametrize(
    ("shown", "sold"),
    [
        (0.95, 1),
        (1.93, 2),
        (3.75, 4),
        (7.7, 8),
        (7.45, 8),
        (9.4, 10),
        (11.6, 12),
        (14.2, 15),
        (15.5, 16),
        (31.2, 32),
        (62.7, 64),
        (503.6, 512),
        (7.2, 7),
        (13.9, 14),
        (2.4, 2),
        (28.8, 29),
        (64.0, 64),
    ],
)
def test_memory_is_given_as_it_is_sold(shown: float, sold: int) -> None:
    assert as_sold(round(shown * GIB)) == sold


@given(st.integers(0, 3000 * GIB))
def test_a_plan_finds_no_less_memory_than_was_written(memory: int) -> None:
    assert as_sold(memory) * GIB * LEAST_MEMORY_SHOWN <= memory


def test_an_entry_is_what_was_found() -> None:
    assert entry_of("a", hardware()) == Entry("a", cores=4, ram_gb=8, storage_gb=200)
    found = entry_of("a", hardware(gpus=("0000:01:00.0",)), ssh_user="me", sudo=True)
    assert found == Entry("a", cores=4, ram_gb=8, storage_gb=200, gpu=True, ssh_user="me", sudo=True)


@pytest.mark.parametrize(("memory", "disk", "words"), [(0.4, 10, "memory"), (8, 0.9, "free disk space")])
def test_a_machine_with_almost_nothing_is_refused(memory: float, disk: float, words: str) -> None:
    with pytest.raises(UnsupportedError, match=f"a: it has too little {words}"):
        entry_of("a", hardware(memory, disk))


def test_the_strongest_has_a_gpu_then_cores_then_memory() -> None:
    def entry(name: str, cores: int, ram_gb: int, *, gpu: bool = False) -> Entry:
        return Entry(name, cores=cores, ram_gb=ram_gb, storage_gb=10, gpu=gpu)

    weak, cores, memory = entry("weak", 4, 8), entry("cores", 8, 8), entry("memory", 8, 16)
    gpu = entry("gpu", 2, 4, gpu=True)
    everyone = [weak, cores, memory, gpu]
    for expected in ("gpu", "memory", "cores", "weak"):
        assert strongest(everyone).name == expected
        everyone = [one for one in everyone if one.name != expected]
    assert strongest([entry("first", 1, 1), entry("second", 1, 1)]).name == "first"
