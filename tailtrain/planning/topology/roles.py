"""Who trains, and with which share of the data: by memory, speed and disk."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tailtrain.errors import DeclarationError
from tailtrain.planning.topology.offers import Role
from tailtrain.spec.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailtrain.planning.topology.offers import Job, Offer

_GIB = 2**30
_TINY = 1e-12


def roles_of(offers: Sequence[Offer], job: Job) -> tuple[dict[str, Role], dict[str, str]]:
    """What each node can do by its memory, and why where that is not training.

    Raises:
        DeclarationError: naming each node that can do nothing, or saying that none can train.
    """
    roles: dict[str, Role] = {}
    reasons: dict[str, str] = {}
    problems = Problems()
    for offer in offers:
        needed = job.training_bytes if offer.training_bytes is None else offer.training_bytes
        if offer.memory_bytes >= needed:
            roles[offer.node] = Role.TRAINS
            continue
        has = f"{offer.memory_bytes / _GIB:.1f} GiB of memory"
        if offer.memory_bytes >= job.validation_bytes:
            roles[offer.node] = Role.DATA
            reasons[offer.node] = f"{has}; model and optimiser need {needed / _GIB:.1f} GiB"
            continue
        problems.found.append(
            DeclarationError(
                "its memory can hold neither the training nor the final model",
                host=offer.node,
                field="ram_gb",
                found=has,
                expected=f"{needed / _GIB:.1f} GiB to train, or"
                f" {job.validation_bytes / _GIB:.1f} GiB to keep data and validate",
                fix="Make model or batch_size smaller in group_data/all.py, or leave the host out",
            )
        )
    problems.raise_if_any()
    if Role.TRAINS not in roles.values():
        raise DeclarationError(
            "no node's memory can hold model and optimiser",
            field="ram_gb",
            found=f"{max((offer.memory_bytes for offer in offers), default=0) / _GIB:.1f} GiB at most",
            expected=f"{job.training_bytes / _GIB:.1f} GiB",
            fix="Make model or batch_size smaller in group_data/all.py",
        )
    return roles, reasons


def shares_of(trainers: Sequence[Offer], job: Job) -> tuple[dict[str, float], dict[str, float]]:
    """Each trainer's share of the records, and the tokens per second that it can keep up with it.

    In proportion to the speeds, as far as disks go. A node whose disk cuts its share off has done its part
    before the others, so it counts with less than its speed.

    Raises:
        DeclarationError: a speed is not above zero, or the disks cannot hold the data.
    """
    speeds = {offer.node: offer.tokens_per_second for offer in trainers}
    if slow := [node for node, speed in speeds.items() if not (speed > 0 and math.isfinite(speed))]:
        raise DeclarationError("a node's speed is not above zero", host=slow[0], field="tokens_per_second")
    if not job.sharded or not job.data_bytes:
        if short := [offer.node for offer in trainers if offer.disk_bytes < job.data_bytes]:
            raise DeclarationError(
                "its disk cannot hold all data",
                host=", ".join(short),
                expected=f"{job.data_bytes:,} bytes",
                fix="Set data_sharding = True in group_data/all.py, or free some space there",
            )
        total = sum(speeds.values())
        return {node: speed / total for node, speed in speeds.items()}, speeds
    room = {offer.node: offer.disk_bytes / job.data_bytes for offer in trainers}
    if sum(room.values()) < 1:
        raise DeclarationError(
            "the disks of all nodes that train cannot hold the data",
            field="storage_gb",
            found=f"{sum(offer.disk_bytes for offer in trainers):,} bytes free",
            expected=f"{job.data_bytes:,} bytes",
            fix="Free some space, or add a host",
        )
    shares: dict[str, float] = {}
    # Whoever's disk is full first, in order of how much of its fair part it can take.
    left, open_speed = 1.0, sum(speeds.values())
    for node in sorted(speeds, key=lambda node: room[node] / speeds[node]):
        shares[node] = min(room[node], left * speeds[node] / open_speed)
        left, open_speed = max(0.0, left - shares[node]), max(open_speed - speeds[node], speeds[node] * _TINY)
    epoch = max(share / speeds[node] for node, share in shares.items())
    rates = {node: min(speeds[node], shares[node] / epoch) for node in speeds}
    order = list(speeds)
    return {node: shares[node] for node in order}, rates
