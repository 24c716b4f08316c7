"""What somebody else changed on a host since the last deploy: receipt, found and wanted, side by side.

Only what a receipt vouches for can drift. A file that differs from what is wanted but is as it was applied is
a planned change, not drift.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from tailtrain.planning import layout
from tailtrain.planning.carried import chunks_on
from tailtrain.planning.observed import UnitState
from tailtrain.planning.parts import Drift, counted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from tailtrain.planning.observed import Observation
    from tailtrain.planning.parts import FileChange
    from tailtrain.planning.receipt import Receipt
    from tailtrain.planning.serf_plan import SerfPlan
    from tailtrain.spec import NetworkNode

_GIB = 2**30
# A kernel update moves what a machine shows of its memory by a few MiB.
_SAME_MEMORY = 0.02
_RUNNING = ("active", "activating", "reloading")


def drift_of(
    node: NetworkNode,
    answer: Observation,
    wanted: Sequence[FileChange],
    asked: Collection[str],
    serf: SerfPlan | None = None,
) -> Iterator[Drift]:
    """Everything on a host that is not as its receipt says.

    Args:
        node: as it is declared now.
        answer: what its probe answered.
        wanted: the small files that it should have, whether or not it has them so.
        asked: the chunks that the probe looked for, all those of the declared data sets.
        serf: what the host's agent is to be; None where it is to have none.
    """
    receipt = answer.receipt
    if receipt is None:
        return
    yield from _hardware(node, answer, receipt)
    yield from _parts(answer, receipt)
    yield from _files(answer, receipt, {change.path: change for change in wanted})
    yield from _secrets(answer, receipt, serf)
    yield from _unit(answer, receipt)
    yield from _servers(answer, receipt)
    yield from _debian_unit(answer, receipt)
    yield from _drop_ins(answer)
    yield from _chunks(answer, receipt, asked)


def _hardware(node: NetworkNode, answer: Observation, receipt: Receipt) -> Iterator[Drift]:
    found = answer.hardware
    if found.cores != receipt.cores:
        yield Drift("cores", str(receipt.cores), str(found.cores), f"{node.cores} declared")
    if abs(found.memory_bytes - receipt.memory_bytes) > _SAME_MEMORY * receipt.memory_bytes:
        was, now = (f"{size / _GIB:.1f} GiB" for size in (receipt.memory_bytes, found.memory_bytes))
        yield Drift("memory", was, now, f"{node.ram_gb} GB declared")
    if len(found.gpus) != receipt.gpus:
        yield Drift(
            "GPUs",
            str(receipt.gpus),
            str(len(found.gpus)),
            "one declared" if node.has_gpu else "none declared",
        )


def _parts(answer: Observation, receipt: Receipt) -> Iterator[Drift]:
    parts = (
        (f"account {layout.ACCOUNT} and its folders", answer.account),
        (f"environment {receipt.environment}", receipt.environment in answer.environments),
        (f"code {receipt.code}", receipt.code in answer.codes),
    )
    for subject, is_there in parts:
        if not is_there:
            yield Drift(subject, _applied(receipt), "missing, or not as it was made", "there")
    if answer.peer_id != receipt.peer_id:
        yield Drift(
            "peer identity", receipt.peer_id, answer.peer_id or "missing", answer.peer_id or "a new one"
        )


def _files(answer: Observation, receipt: Receipt, wanted: Mapping[str, FileChange]) -> Iterator[Drift]:
    for path, applied in receipt.files.items():
        text = answer.files.get(path)
        found = sha256_of(text) if text is not None else ""
        if path not in answer.files:
            continue
        if found == applied:
            mode, expected = answer.modes.get(path), wanted[path].mode_and_owners if path in wanted else None
            if mode and expected and mode != expected:
                yield Drift(path, expected, mode, expected)
            continue
        when = answer.modified.get(path)
        yield Drift(
            path,
            f"{applied[:12]}, {_applied(receipt)}",
            (f"{found[:12]}, written {when}" if when else found[:12]) if found else "missing",
            sha256_of(wanted[path].after)[:12] if path in wanted else "not needed any more",
        )


def _unit(answer: Observation, receipt: Receipt) -> Iterator[Drift]:
    """A worker that should run. `tailtrain stop` also disables it, so a stop of ours shows as that."""
    run, unit = answer.run, answer.units.get(layout.WORKER_UNIT, UnitState())
    if run.run_id != receipt.run or run.state in ("", "finished", "failed"):
        return
    since = f" since {unit.since}" if unit.since else ""
    if unit.enabled and unit.active not in _RUNNING:
        yield Drift(layout.WORKER_UNIT, "started", f"{unit.active}{since}", "running")
    elif not unit.enabled and unit.active in _RUNNING:
        yield Drift(
            layout.WORKER_UNIT, "starts when the host boots", "does not", "starts when the host boots"
        )


def _secrets(answer: Observation, receipt: Receipt, serf: SerfPlan | None) -> Iterator[Drift]:
    """Files of which hosts answer nothing but a hash, the permissions and the owner."""
    for file in serf.files if serf else ():
        applied = receipt.files.get(file.path)
        found, _, mode = answer.secrets.get(file.path, "").partition(" ")
        if applied is None or (found, mode) == (applied, layout.SECRET_MODE):
            continue
        if found == applied:
            yield Drift(file.path, layout.SECRET_MODE, mode, layout.SECRET_MODE)
            continue
        when = answer.modified.get(file.path)
        written = f"{found[:12]}, written {when}" if when else found[:12]
        was = f"{applied[:12]}, {_applied(receipt)}"
        yield Drift(file.path, was, written if found else "missing", file.sha256[:12])


def _servers(answer: Observation, receipt: Receipt) -> Iterator[Drift]:
    """The chunk server and the Serf agent run from the day that their units were applied."""
    for name in (layout.CHUNKS_UNIT, layout.SERF_UNIT):
        unit = answer.units.get(name, UnitState())
        applied = f"{layout.UNIT_DIR}/{name}" in receipt.files
        if applied and unit.active not in _RUNNING:
            since = f" since {unit.since}" if unit.since else ""
            yield Drift(name, "started", f"{unit.active}{since}", "running")


def _debian_unit(answer: Observation, receipt: Receipt) -> Iterator[Drift]:
    """What was masked stays masked while ours is there."""
    unit = answer.units.get(layout.DEBIAN_SERF_UNIT, UnitState())
    if f"{layout.UNIT_DIR}/{layout.SERF_UNIT}" in receipt.files and not unit.masked:
        found = "running" if unit.active in _RUNNING else "not masked"
        yield Drift(layout.DEBIAN_SERF_UNIT, "masked", found, "masked")


def _drop_ins(answer: Observation) -> Iterator[Drift]:
    """Somebody's own changes to our units. They are left alone: who made them meant them."""
    for unit, state in answer.units.items():
        for path in state.drop_ins if unit in layout.UNITS else ():
            yield Drift(unit, "as its own file says", f"changed by {path}", "nothing beside its own file")


def _chunks(answer: Observation, receipt: Receipt, asked: Collection[str]) -> Iterator[Drift]:
    """Damaged chunks, and missing ones that the configuration names, where that is the one that was applied.

    Nothing lies under a chunk's name that was not right once. Which copies a host kept for others is not
    written down there: that one is gone shows as one that it is to get.
    """
    for sha256 in sorted(answer.damaged.keys() & asked):
        yield Drift(f"chunk {sha256[:16]}", "verified", answer.damaged[sha256], "verified")
    text = answer.files.get(layout.CONFIG)
    if text is None or sha256_of(text) != receipt.files.get(layout.CONFIG):
        return
    missing = chunks_on(answer).intersection(asked) - answer.chunks - answer.damaged.keys()
    if missing:
        what = f"chunk {min(missing)[:16]}" if len(missing) == 1 else counted(len(missing), "chunk")
        yield Drift(what, "verified", "missing", "verified")


def _applied(receipt: Receipt) -> str:
    return f"applied {receipt.at} by {receipt.by}"


def sha256_of(text: str) -> str:
    """SHA-256 of a text as a file holds it."""
    return hashlib.sha256(text.encode()).hexdigest()
