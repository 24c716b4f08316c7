"""A plan as text: at most 80 columns where names allow, the same bytes for the same plan, nothing cut off."""

from __future__ import annotations

import difflib
from itertools import islice
from typing import TYPE_CHECKING

from tailtrain.planning.plan import ACTION_ORDER, HostPlan, Phase, Plan, counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailtrain.spec import DistributedTrainingConfig

_PHASE_WORDS = {
    Phase.PROVISION: "provision",
    Phase.DISTRIBUTE: "1 data distribution",
    Phase.TRAIN: "2 distributed training",
    Phase.AGGREGATE: "3 model aggregation",
    Phase.VALIDATE: "4 validation",
    Phase.CLEAN: "clean",
}


def table(rows: Sequence[Sequence[object]], *, right: Sequence[int] = (), indent: int = 2) -> list[str]:
    """Rows as aligned lines; the columns in `right` are set flush right."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = []
    for row in cells:
        parts = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append((" " * indent + "  ".join(parts)).rstrip())
    return lines


def render_plan(plan: Plan, *, diff: bool = False) -> str:
    """The whole plan; with `diff`, also what changes in each text file."""
    lines = [f"Plan {plan.id}: run {plan.run_id} ({plan.run_state or 'new'})"]
    lines += ["", *_data(plan), "", *_shares(plan)]
    notes = [(h.node.hostname, note) for h in plan.hosts for note in h.notes]
    if notes:
        lines += ["", "Notes", *table(notes)]
    lines += ["", *_work(plan)]
    if diff:
        lines += list(_diffs(plan.hosts))
    lines += ["", summary(plan)]
    return "".join(f"{_printable(line)}\n" for line in lines)


def _printable(line: str) -> str:
    """A line without anything that a terminal would obey: some of it comes from hosts."""
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii") for sign in line
    )


def summary(plan: Plan) -> str:
    """One line: how much will be done."""
    unknown = [host.node.hostname for host in plan.hosts if host.unreachable]
    tail = f" Unknown: {', '.join(unknown)}." if unknown else ""
    if not plan.changes:
        return f"No changes: {len(plan.hosts) - len(unknown)} hosts are as declared.{tail}"
    busy = [host for host in plan.hosts if host.actions]
    chunks = [chunk for host in plan.hosts for chunk in host.chunks]
    size = sum(chunk.bytes for chunk in chunks) / 1e6
    phases = [phase.value for phase in Phase if plan.phase_hosts(phase)]
    moved = f"{counted(len(chunks), 'chunk')} ({size:.1f} MB) to send; " if chunks else ""
    return f"Plan: {len(busy)} of {len(plan.hosts)} hosts change; {moved}{', '.join(phases)}.{tail}"


def render_configuration(config: DistributedTrainingConfig) -> str:
    """A configuration of the specification as tables."""
    nodes = {node.hostname: node for node in config.network_topology}
    rows: list[Sequence[object]] = [
        ("Node", "role", "address", "cores", "GB", "GPU", "weight", "natural", "coding")
    ]
    for name, given in config.node_assignments:
        node = nodes[name]
        rows.append(
            (
                name,
                node.role.value,
                node.tailscale_ip,
                given.cores_allocated,
                given.ram_allocated_gb,
                "yes" if given.gpu_available else "no",
                given.weight.raw,
                f"{given.natural_language_shard_size:,}",
                f"{given.coding_language_shard_size:,}",
            )
        )
    training = config.training_configuration
    lines = [
        (
            f"{training.distribution_strategy.value}, {training.coordination_protocol.value},"
            f" {training.storage_backend.value}; {training.resource_allocation}, {training.load_balancing}"
        ),
        "",
        *table(rows, right=(3, 4, 6, 7, 8), indent=0),
        "",
    ]
    data: list[Sequence[object]] = [("Data set", "MB", "records")]
    data += [(d.file, d.size_mb, f"{d.records:,}") for d in config.data_distribution]
    lines += [*table(data, right=(1, 2), indent=0), ""]
    phases: list[Sequence[object]] = [("Phase", "nodes", "action")]
    phases += [(phase.name, phase.nodes, phase.action) for phase in config.training_pipeline]
    return "\n".join([*lines, *table(phases, indent=0)]) + "\n"


def _data(plan: Plan) -> list[str]:
    rows: list[Sequence[object]] = [("Data set", "records", "trained on", "held out", "chunks", "MB")]
    rows += [
        (
            d.domain,
            f"{d.records:,}",
            f"{d.train_records:,}",
            f"{d.heldout_records:,}",
            len(d.train) + len(d.heldout),
            f"{d.file_bytes / 1e6:.1f}",
        )
        for d in plan.datasets
    ]
    return table(rows, right=(1, 2, 3, 4, 5), indent=0)


def _shares(plan: Plan) -> list[str]:
    domains = [dataset.domain for dataset in plan.datasets]
    rows: list[Sequence[object]] = [("Node", "role", "cores", "share", *domains, "path")]
    for host in plan.hosts:
        quotas = [f"{host.quotas[domain]:,}" for domain in domains]
        path = "unreachable" if host.unreachable else host.path
        node = host.node
        rows.append(
            (node.hostname, node.role.value, node.cores, f"{host.share / 655.36:.2f} %", *quotas, path)
        )
    totals = [
        f"{sum(host.quotas[domain] for host in plan.hosts):,}"
        if plan.settings.training.data_sharding
        else "all of it each"
        for domain in domains
    ]
    cores, share = sum(h.node.cores for h in plan.hosts), sum(h.share for h in plan.hosts)
    rows.append(("sum", "", cores, f"{share}/65536", *totals, ""))
    moved = [
        f"{counted(records, 'record')} of {domain} to another node than before"
        for domain, records in plan.moved.items()
        if records
    ]
    return [*table(rows, right=range(2, 4 + len(domains)), indent=0), *moved]


def _work(plan: Plan) -> Iterator[str]:
    for host in plan.hosts:
        if host.unreachable:
            yield f"{host.node.hostname}: unreachable, what is there is unknown"
            yield from (f"  {line}" for line in host.unreachable.splitlines())
            yield "  its records wait for it; the others go on without it while the gate holds"
    for phase in Phase:
        hosts = plan.phase_hosts(phase)
        yield f"{_PHASE_WORDS[phase]}{'' if hosts else ': nothing to do'}"
        yield from _folded(phase, hosts)
    yield f"gate after each phase: the primary and {plan.quorum} of {len(plan.hosts)} nodes"


def _folded(phase: Phase, hosts: Sequence[HostPlan]) -> Iterator[str]:
    """Lines of one phase; hosts that do the same for the same reason share a line."""
    groups: dict[tuple[int, str, str], list[str]] = {}
    for host in hosts:
        for action in host.actions:
            if action.phase is phase:
                place = ACTION_ORDER.index(action.key)
                groups.setdefault((place, action.what, action.why), []).append(host.node.hostname)
    everyone = len(hosts) > 1
    for (_, what, why), names in sorted(groups.items(), key=lambda item: item[0][0]):
        who = "all" if everyone and len(names) == len(hosts) else ", ".join(names)
        yield f"  {what} ({why})"
        yield f"    on {who}" if who != "all" else f"    on all {len(names)} hosts"


def _diffs(hosts: Sequence[HostPlan]) -> Iterator[str]:
    """Unified diffs without context; hosts that change the same lines in the same way share them."""
    hunks: dict[tuple[str, str, str], list[str]] = {}
    for host in hosts:
        for change in host.files:
            origin = "no such file" if change.before is None else "on the host"
            for hunk in _hunks(change.before or "", change.after):
                hunks.setdefault((change.path, origin, hunk), []).append(host.node.hostname)
    shared: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for (path, origin, hunk), names in hunks.items():
        shared.setdefault((path, origin, tuple(names)), []).append(hunk)
    for (path, origin, who), their_hunks in shared.items():
        yield ""
        yield f"{path} on {', '.join(who)}"
        yield f"  --- {origin}"
        yield "  +++ planned"
        yield from (f"  {line}" for hunk in their_hunks for line in hunk.split("\n"))


def _hunks(before: str, after: str) -> list[str]:
    """The hunks of a unified diff, each with its heading."""
    hunks: list[list[str]] = []
    lines = difflib.unified_diff(before.split("\n"), after.split("\n"), lineterm="", n=0)
    for line in islice(lines, 2, None):  # the first two name the files
        if line.startswith("@@"):
            hunks.append([])
        hunks[-1].append(line)
    return ["\n".join(hunk) for hunk in hunks]
