"""What one host has to do, phase by phase, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailtrain.planning import layout
from tailtrain.planning.observed import Observation, RunState, UnitState
from tailtrain.planning.parts import Action, ChunkMove, FileChange, Phase, Removal, counted, megabytes
from tailtrain.planning.plan import CPU_LOCK, CUDA_LOCK, Material
from tailtrain.spec import NetworkNode, NodeRole

_BUILDS = {CPU_LOCK: "torch's CPU build", CUDA_LOCK: "torch's CUDA build from the package index"}

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailtrain.planning.datasets import PlannedChunk


@dataclass(frozen=True)
class HostContext:
    """What the actions of one host follow from.

    `files`, `chunks` and `manifests` are those that the host lacks or has otherwise, `moves` the chunks by
    the reason for which they come, `removals` what it has and does not need; `finished` says that the primary
    has finished this run, of which `primary_run` is all that it said.
    """

    node: NetworkNode
    answer: Observation
    material: Material
    lock: str
    run_id: str
    config_sha256: str
    files: tuple[FileChange, ...]
    chunks: tuple[PlannedChunk, ...]
    manifests: tuple[str, ...]
    moves: tuple[ChunkMove, ...]
    removals: tuple[Removal, ...]
    finished: bool
    primary_run: RunState

    @property
    def has_programs(self) -> bool:
        """Whether the host has the environment and the code that its worker needs."""
        return (
            self.material.locks[self.lock] in self.answer.environments
            and self.material.code_id in self.answer.codes
        )


def actions_of(c: HostContext) -> Iterator[Action]:
    """The actions of one host, in the order in which they are done."""
    yield from _provision_actions(c)
    yield from _distribute_actions(c)
    yield from _train_actions(c)
    yield from _judge_actions(c)
    yield from _clean_actions(c)


def _provision_actions(c: HostContext) -> Iterator[Action]:
    answer, phase = c.answer, Phase.PROVISION
    if answer.missing_packages:
        names = ", ".join(answer.missing_packages)
        yield Action(phase, "packages", f"install {names}", "not installed")
    if not answer.account:
        why = answer.account_trouble or "not there"
        yield Action(phase, "account", f"create account {layout.ACCOUNT} and folders", why)
    if c.material.locks[c.lock] not in answer.environments:
        yield Action(
            phase,
            "environment",
            f"build the environment {c.lock}, {_BUILDS[c.lock]}",
            "another lock" if answer.environments else "not there",
        )
    if c.material.code_id not in answer.codes:
        why = "code changed" if answer.codes else "not there"
        yield Action(phase, "code", f"send the worker's code {c.material.code_id}", why)
    if answer.peer_id is None:
        yield Action(phase, "identity", "send a peer identity", "none yet")
    if c.files:
        names = ", ".join(change.path.rsplit("/", 1)[1] for change in c.files)
        if all(change.before is None for change in c.files):
            why = "not there"
        else:
            same = all(change.before == change.after for change in c.files)
            why = "permissions or owner differ" if same else "differs"
        yield Action(phase, "files", f"write {names}", why)


def _distribute_actions(c: HostContext) -> Iterator[Action]:
    if not c.chunks and not c.manifests:
        return
    size = sum(chunk.bytes for chunk in c.chunks)
    why = "; ".join(move.why for move in c.moves) or "not there"
    what = f"send {counted(len(c.chunks), 'chunk')}, {megabytes(size)}" if c.chunks else "send the manifests"
    yield Action(Phase.DISTRIBUTE, "chunks", what, why)


def _train_actions(c: HostContext) -> Iterator[Action]:
    if c.finished:
        return
    run, unit = c.answer.run, c.answer.units.get(layout.WORKER_UNIT, UnitState())
    ours = run.run_id == c.run_id
    if unit.active != "active":
        if ours and run.state not in ("", "finished"):
            why = f"{run.state} at round {max(run.round, 0)}, unit is {unit.active}: resumes there"
        else:
            why = "not running"
        yield Action(Phase.TRAIN, "start", "start the worker", why)
    elif run.config_sha256 != c.config_sha256 or c.files or not c.has_programs:
        why = "configuration, unit or code changed"
        if not ours:
            why = "for another run than before"
        yield Action(Phase.TRAIN, "restart", "restart the worker", why)
    elif not unit.enabled:
        yield Action(Phase.TRAIN, "start", "have the worker start with the host", "would not, after a boot")
    if c.node.role is NodeRole.PRIMARY:
        yield Action(Phase.TRAIN, "watch", "train until the token target, showing progress", "not finished")


def _judge_actions(c: HostContext) -> Iterator[Action]:
    run, final = c.answer.run, c.primary_run.final_sha256
    known = c.finished and bool(final)
    if c.node.role is NodeRole.PRIMARY:
        if not known:
            yield Action(
                Phase.AGGREGATE,
                "aggregate",
                "aggregate the model",
                "after training" if not c.finished else "not there",
            )
    elif not known or run.final_sha256 != final:
        why = "after aggregation" if not known else "not there"
        yield Action(Phase.VALIDATE, "model", "receive the aggregated model", why)
    validated = known and run.validated_sha256 == final
    if not validated or not run.learned:
        why = "no better than a baseline" if validated else "not validated here"
        why = why if known else "after aggregation"
        yield Action(Phase.VALIDATE, "validate", "validate the aggregated model", why)


def _clean_actions(c: HostContext) -> Iterator[Action]:
    if c.removals:
        things = ", ".join(removal.what for removal in c.removals)
        freed = sum(removal.bytes for removal in c.removals)
        yield Action(Phase.CLEAN, "prune", f"remove {things}", f"no longer needed; frees {megabytes(freed)}")
