"""What a host must be to take part, and what its worker may use of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailtrain.errors import DeclarationError, UnsupportedError
from tailtrain.planning import layout
from tailtrain.planning.node_config import NodeLimits
from tailtrain.spec.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailtrain.planning.datasets import PlannedChunk
    from tailtrain.planning.observed import Observation
    from tailtrain.spec import NetworkNode, NodeReserve

GIB = 2**30
# hivemind takes messages from peers whose clock is within 3 s; the rest is for drift during a run.
MOST_CLOCK_SKEW = 2.0
# For checkpoints, the final model and the environment's cache.
WORKING_SPACE = GIB // 2
# The kernel keeps some memory for itself: a machine sold as 8 GB shows about 7.7 GiB.
LEAST_MEMORY_SHOWN = 0.9
# Training gives way to whoever works on the machine, unless its entry in the inventory says otherwise.
DEFAULT_NICE = 5


def require_supported(node: NetworkNode, answer: Observation) -> None:
    """Refuse a host that cannot be a node, before anything is changed anywhere.

    Raises:
        DeclarationError: naming the host, all that was found, and what to do.
    """
    hardware = answer.hardware
    checks = (
        (
            answer.superuser,
            "root",
            "a login without root",
            "Set _sudo: True beside the host in the inventory",
        ),
        (hardware.architecture == "x86_64", "x86_64", hardware.architecture, "hivemind has no wheel for it"),
        (hardware.systemd, "systemd as PID 1", "no systemd", "Workers run as systemd units"),
        (
            hardware.python in (None, layout.PYTHON),
            f"Python {layout.PYTHON}",
            f"Python {hardware.python}",
            "The worker's lock is made for that version",
        ),
        (
            abs(hardware.clock_skew_seconds) <= MOST_CLOCK_SKEW,
            f"a clock within {MOST_CLOCK_SKEW:.0f} s of this machine's",
            f"{hardware.clock_skew_seconds:+.1f} s",
            "Switch on time synchronisation there (timedatectl set-ntp true)",
        ),
    )
    problems = Problems()
    for fits, expected, found, fix in checks:
        if not fits:
            problem = "this host cannot be a node"
            problems.found.append(
                UnsupportedError(problem, host=node.hostname, found=found, expected=expected, fix=fix)
            )
    problems.raise_if_any()


def require_disk(
    node: NetworkNode, answer: Observation, wanted: Sequence[PlannedChunk], missing: Sequence[PlannedChunk]
) -> None:
    """Refuse data that would not fit: in what the host has free, or in the storage that was declared.

    Raises:
        DeclarationError: naming the host, with bytes found and expected.
    """
    declared = sum(chunk.bytes for chunk in wanted) + WORKING_SPACE
    if declared > node.storage_gb * GIB:
        raise DeclarationError(
            "its chunks and checkpoints need more than its declared storage",
            host=node.hostname,
            field="storage_gb",
            found=f"{node.storage_gb * GIB:,} bytes",
            expected=f"at least {declared:,} bytes",
            fix="Declare more storage, or fewer cores: data follow the cores",
        )
    needed = needed_space(missing)
    if answer.hardware.disk_free_bytes < needed:
        raise DeclarationError(
            "too little disk space for its chunks and checkpoints",
            host=node.hostname,
            field=layout.STATE_DIR,
            found=f"{answer.hardware.disk_free_bytes:,} bytes free",
            expected=f"{needed:,} bytes",
            fix="Free some space there",
        )


def needed_space(missing: Sequence[PlannedChunk]) -> int:
    """Bytes that must be free on a host before it gets what it lacks."""
    return sum(chunk.bytes for chunk in missing) + WORKING_SPACE


def limits_of(
    node: NetworkNode, reserve: NodeReserve, answer: Observation
) -> tuple[NodeLimits, tuple[str, ...]]:
    """What the worker of a node may use, and what is to be said where that is not what was declared.

    Found counts where it is less than declared; what the node keeps for itself is taken off after that. A lab
    host emulates what is declared.
    """
    hardware = answer.hardware
    notes = []
    cores, memory = node.cores, node.ram_gb * GIB
    if answer.emulated:
        notes.append(f"lab host: emulates {node.cores} cores with {hardware.usable_cores:.2f} of one")
    else:
        if hardware.cores < node.cores:
            notes.append(f"declared {node.cores} cores, found {hardware.cores}: found counts")
            cores = hardware.cores
        if hardware.memory_bytes < LEAST_MEMORY_SHOWN * node.ram_gb * GIB:
            notes.append(
                f"declared {node.ram_gb} GB of memory, found {hardware.memory_bytes / GIB:.1f}: found counts"
            )
            memory = hardware.memory_bytes
    cores, memory = cores - reserve.cores, memory - reserve.ram_gb * GIB
    if cores < 1 or memory < WORKING_SPACE:
        raise DeclarationError(
            "nothing is left for training beside what it keeps for itself",
            host=node.hostname,
            field="reserve_cores" if cores < 1 else "reserve_ram_gb",
            found=f"{hardware.cores} cores and {hardware.memory_bytes / GIB:.1f} GiB",
            expected=f"more than {reserve.cores} cores and {reserve.ram_gb} GB",
            fix="Reserve less",
        )
    device = "cuda" if node.has_gpu and hardware.gpus else "cpu"
    if node.has_gpu and not hardware.gpus:
        notes.append("declared a GPU, found none: trains on CPU")
    usable = min(float(cores), hardware.usable_cores)
    limits = NodeLimits(
        threads=max(1, round(usable)),
        usable_cores=round(usable, 3),
        cpu_quota_percent=cores * 100,
        memory_bytes=memory,
        device=device,
        nice=DEFAULT_NICE if reserve.nice is None else reserve.nice,
    )
    return limits, tuple(notes)


def declared_limits(node: NetworkNode, reserve: NodeReserve) -> NodeLimits:
    """What the worker may use if the host has what is declared."""
    cores = node.cores - reserve.cores
    return NodeLimits(
        threads=cores,
        usable_cores=float(cores),
        cpu_quota_percent=cores * 100,
        memory_bytes=(node.ram_gb - reserve.ram_gb) * GIB,
        device="cuda" if node.has_gpu else "cpu",
        nice=DEFAULT_NICE if reserve.nice is None else reserve.nice,
    )
