"""What one host has to do, phase by phase, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailtrain.planning import layout
from tailtrain.planning.observed import Observation, RunState, UnitState
from tailtrain.planning.parts import (
    CONTROL_MACHINE,
    Action,
    ChunkMove,
    ChunkSource,
    FileChange,
    Phase,
    Removal,
    counted,
    megabytes,
)
from tailtrain.planning.plan import CPU_LOCK, CUDA_LOCK, Material
from tailtrain.planning.serf_plan import agent_actions, mask_actions, missing_packages, secret_actions
from tailtrain.planning.sourcing import CONTROL, REMOTE, Delivery
from tailtrain.spec import NetworkNode, NodeRole

CREDENTIALS_MODE = layout.SECRET_MODE
"""How the storage backend's credentials lie on a host: mode and owners."""

_BUILDS = {CPU_LOCK: "torch's CPU build", CUDA_LOCK: "torch's CUDA build from the package index"}

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailtrain.planning.serf_plan import SerfPlan
    from tailtrain.planning.storage_plan import PlannedStorage


@dataclass(frozen=True)
class HostContext:
    """What the actions of one host follow from.

    `files` and `manifests` are those that the host lacks or has otherwise, `deliveries` are the chunks that
    it lacks with where they come from, `sources` that in sums, `moves` the reasons for which they come;
    `storage` is the backend, `removals` what it has and does not need; `finished` says that the primary
    has finished this run, of which `primary_run` is all that it said. `serf` is its agent, None where the
    `protocol` needs none.
    """

    node: NetworkNode
    answer: Observation
    material: Material
    lock: str
    run_id: str
    config_sha256: str
    files: tuple[FileChange, ...]
    deliveries: tuple[Delivery, ...]
    sources: tuple[ChunkSource, ...]
    manifests: tuple[str, ...]
    moves: tuple[ChunkMove, ...]
    removals: tuple[Removal, ...]
    storage: PlannedStorage | None
    finished: bool
    primary_run: RunState
    serf: SerfPlan | None
    protocol: str

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
    yield from mask_actions(answer, c.serf)
    if missing := missing_packages(answer, c.serf):
        names = ", ".join(missing)
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
    if action := _credentials(c):
        yield action
    yield from secret_actions(answer, c.serf)
    if c.files:
        names = ", ".join(change.path.rsplit("/", 1)[1] for change in c.files)
        if all(change.before is None for change in c.files):
            why = "not there"
        else:
            same = all(change.before == change.after for change in c.files)
            why = "permissions or owner differ" if same else "differs"
        yield Action(phase, "files", f"write {names}", why)
    yield from _server_actions(c)
    yield from agent_actions(answer, c.serf, c.files, c.protocol)


def _server_actions(c: HostContext) -> Iterator[Action]:
    phase, server = Phase.PROVISION, c.answer.units.get(layout.CHUNKS_UNIT, UnitState())
    changed = any(change.path.endswith(layout.CHUNKS_UNIT) for change in c.files)
    if server.active != "active":
        yield Action(phase, "serve", "start the chunk server", "not running")
    elif changed:
        yield Action(phase, "serve", "restart the chunk server", "its unit changes")
    elif not server.enabled:
        why = "would not, after a boot"
        yield Action(phase, "serve", "have the chunk server start with the host", why)


def _credentials(c: HostContext) -> Action | None:
    """The storage backend's credentials: written where they differ, removed where nothing needs them."""
    wanted = f"{c.storage.config_sha256} {CREDENTIALS_MODE}" if c.storage else ""
    if c.answer.credentials == wanted:
        return None
    if not c.storage:
        return Action(
            Phase.PROVISION, "credentials", "remove the storage's credentials", "no backend needs them"
        )
    return Action(
        Phase.PROVISION,
        "credentials",
        f"write credentials {c.storage.config_sha256[:8]} of {c.storage.path}, for the worker alone",
        "differ, or their permissions do" if c.answer.credentials else "not there",
    )


def _distribute_actions(c: HostContext) -> Iterator[Action]:
    if c.storage and c.storage.uploads and c.node.role is NodeRole.PRIMARY:
        size = sum(c.storage.uploads.values())
        what = f"upload {counted(len(c.storage.uploads), 'pack')}, {megabytes(size)}, to {c.storage.path}"
        yield Action(Phase.DISTRIBUTE, "upload", what, "not there yet")
    first = [delivery for delivery in c.deliveries if delivery.wave == 1]
    why = "; ".join(f"{move.why} {move.detail}".rstrip() for move in c.moves) or "not there"
    parts = [
        f"{verb} {counted(len(group), 'chunk')}, {megabytes(sum(d.chunk.bytes for d in group))}"
        for verb, group in (
            ("send", [d for d in first if d.sent]),
            ("fetch", [d for d in first if not d.sent]),
        )
        if group
    ]
    if first or c.manifests:
        yield Action(Phase.DISTRIBUTE, "chunks", "; ".join(parts) or "send the manifests", why)
    later = [delivery.chunk.bytes for delivery in c.deliveries if delivery.wave > 1]
    if later:
        what = f"fetch {counted(len(later), 'chunk')}, {megabytes(sum(later))}"
        yield Action(Phase.DISTRIBUTE, "copies", what, why)


def sources_of(deliveries: Sequence[Delivery], storage: PlannedStorage | None) -> Iterator[ChunkSource]:
    """What comes to a host from each place, in the order of the first chunk from there."""
    names = {CONTROL: CONTROL_MACHINE, REMOTE: storage.path if storage else REMOTE}
    groups: dict[tuple[str, str], list[int]] = {}
    for delivery in deliveries:
        groups.setdefault((delivery.sources[0], delivery.why), []).append(delivery.chunk.bytes)
    for (source, why), sizes in groups.items():
        yield ChunkSource(names.get(source, source), why, len(sizes), sum(sizes))


def _train_actions(c: HostContext) -> Iterator[Action]:
    if c.finished:
        return
    answer = c.answer
    run, unit = answer.run, answer.units.get(layout.WORKER_UNIT, UnitState())
    ours = run.run_id == c.run_id
    if unit.active != "active":
        if ours and run.state not in ("", "finished"):
            why = f"{run.state} at round {max(run.round, 0)}, unit is {unit.active}: resumes there"
        else:
            why = "not running"
        yield Action(Phase.TRAIN, "start", "start the worker", why)
    elif run.config_sha256 != c.config_sha256 or _of_the_worker(c.files) or not c.has_programs:
        why = "configuration, unit or code changed"
        if not ours:
            why = "for another run than before"
        yield Action(Phase.TRAIN, "restart", "restart the worker", why)
    elif c.serf and c.serf.new_key(answer):
        yield Action(Phase.TRAIN, "restart", "restart the worker", "the fleet's gossip key changes")
    elif not unit.enabled:
        yield Action(Phase.TRAIN, "start", "have the worker start with the host", "would not, after a boot")
    if c.node.role is NodeRole.PRIMARY:
        yield Action(Phase.TRAIN, "watch", "train until the token target, showing progress", "not finished")


def _of_the_worker(files: Sequence[FileChange]) -> bool:
    """Whether any of these files is one that the worker was started with."""
    others = (
        *(f"{layout.UNIT_DIR}/{unit}" for unit in (layout.CHUNKS_UNIT, layout.SERF_UNIT)),
        layout.STORAGE_CA,
        layout.TOPOLOGY,
    )
    return any(change.path not in others for change in files)


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
