"""After a run: what every node measured, judged and shown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
from gevent.pool import Pool

from tailtrain.errors import FleetError, GateError
from tailtrain.fleet import remote
from tailtrain.planning import layout
from tailtrain.planning.division.measured_steps import compared_steps
from tailtrain.planning.guarantees import RunRecord
from tailtrain.planning.guarantees import judge as judge_guarantees
from tailtrain.planning.judgement import unlearned
from tailtrain.planning.parts import counted, megabytes
from tailtrain.planning.rendering.text import table, wrapped
from tailtrain.planning.topology.measured_rounds import compared

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from tailtrain.fleet.session import Session
    from tailtrain.planning.plan import Plan

REPORT = "report.json"
_FLOAT_BYTES = 4


def judge(session: Session, state: State) -> None:
    """Collect what the nodes left, write the report, show it, and hold the last gate.

    Raises:
        GateError: a node validated another model, or the model is no better than a baseline.
    """
    plan = session.plan
    names = {host.node.hostname for host in plan.hosts if not host.unreachable}
    hosts = [host for host in state.inventory if host.name in names and host in state.active_hosts]
    answers = dict(Pool(64).imap_unordered(lambda host: (host.name, _left_behind(host, plan)), hosts))
    found = {name: answer for name, answer in sorted(answers.items()) if not isinstance(answer, FleetError)}
    primary = found.get(plan.primary.node.hostname)
    if primary is None:
        raise answers.get(plan.primary.node.hostname) or GateError(
            "the primary does not answer", host=plan.primary.node.hostname
        )
    report = {
        "run_id": plan.run_id,
        "plan_id": plan.id,
        "manifest": primary["manifest"],
        "rounds": primary["rounds"],
        "topology": compared(plan.topology.topology if plan.topology else None, primary["rounds"]),
        "division": compared_steps(plan.division, primary["rounds"]),
        "validation": {name: left["validation"] for name, left in found.items()},
        "guarantees": [
            {"name": g.name, "verdict": g.verdict.value, "measured": g.measured}
            for g in judge_guarantees(
                [host.node for host in plan.hosts], session.declared.settings.training, _record(plan, found)
            )
        ],
        "emulated": [host.node.hostname for host in plan.hosts if host.emulated],
    }
    session.run_dir.mkdir(parents=True, exist_ok=True)
    (session.run_dir / REPORT).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    click.echo(render_report(report), err=True)
    for name, answer in sorted(answers.items()):
        if isinstance(answer, FleetError):
            raise GateError(answer.problem, host=name, found=answer.found)
    require_learned(report)


def require_learned(report: Mapping[str, Any]) -> None:
    """The gate after validation: every node judged this model, and it beats both baselines on each domain.

    Raises:
        GateError: naming node, domain and losses.
    """
    model, domains = report["manifest"]["sha256"], sorted(report["manifest"]["data"])
    for node, validation in report["validation"].items():
        if validation.get("model_sha256") != model:
            raise GateError(
                "validated another model", host=node, found=validation.get("model_sha256"), expected=model
            )
        if sorted(validation["domains"]) != domains:
            raise GateError(
                "did not validate every domain",
                host=node,
                found=", ".join(sorted(validation["domains"])) or "none",
                expected=", ".join(domains),
            )
        for domain, baseline in unlearned(validation):
            losses = validation["domains"][domain]
            raise GateError(
                f"the aggregated model is no better than its baseline on {domain}",
                host=node,
                field=baseline,
                found=f"{losses['loss']:.3f} nats per byte",
                expected=f"below {losses[baseline]:.3f}",
                fix="Train on more tokens, or look at the learning rate",
            )


def render_report(report: Mapping[str, Any]) -> str:
    """The report as text: contributions, losses and guarantees."""
    manifest, rounds = report["manifest"], report["rounds"]
    lines = ["", f"Run {report['run_id']}: {manifest['parameters']:,} parameters, {len(rounds)} rounds", ""]
    rows: list[Sequence[object]] = [("Node", "tokens", "share", "records", "rounds", "in the final average")]
    rows += [
        (
            c["node"],
            f"{c['tokens']:,}",
            f"{c['share']:.1%}",
            f"{c['records']:,}",
            c["rounds"],
            "yes" if c["in_final_average"] else "no",
        )
        for c in manifest["contributions"]
    ]
    lines += [*table(rows, right=(1, 2, 3, 4), indent=0), "", *_parts(manifest, report.get("division"))]
    rows = [("Held-out loss, nats per byte", "model", "untrained", "unigram", "validated on")]
    for domain, nodes in _by_domain(report["validation"]).items():
        losses = [entry["loss"] for entry in nodes.values()]
        first = next(iter(nodes.values()))
        spread = max(losses) - min(losses)
        agreed = counted(len(nodes), "node") + (f", {spread:.0e} apart" if spread else ", all equal")
        rows.append(
            (
                domain,
                f"{sum(losses) / len(losses):.3f}",
                f"{first['untrained_loss']:.3f}",
                f"{first['unigram_loss']:.3f}",
                agreed,
            )
        )
    lines += [*table(rows, right=(1, 2, 3), indent=0), ""]
    if said := report.get("topology"):
        lines.append("Predicted and measured")
        for words in said["words"]:
            lines += wrapped(words, indent=2, hanging=4)
        lines.append("")
    rows = [("Guarantee", "verdict", "measured")]
    rows += [(g["name"], g["verdict"], g["measured"]) for g in report["guarantees"]]
    lines += table(rows, indent=0)
    if report["emulated"]:
        lines += ["", f"{len(report['emulated'])} of these hosts are lab hosts: their hardware is emulated."]
    return "\n".join(lines) + "\n"


def _parts(manifest: Mapping[str, Any], steps: Mapping[str, Any] | None) -> list[str]:
    """Where the model was divided: what each node held of it at the end; what steps took."""
    held = [c for c in manifest["contributions"] if c.get("parameter_bytes")]
    if not held:
        return []
    whole = _FLOAT_BYTES * manifest["parameters"]
    rows: list[Sequence[object]] = [("Part of the model", "layers", "weights", "of all")]
    for c in held:
        first, after = c["layers"]
        of_all = f"{c['parameter_bytes'] / whole:.0%}"
        rows.append((c["node"], f"{first}-{after - 1}", megabytes(c["parameter_bytes"]), of_all))
    rows.append(("whole model", "", megabytes(whole), ""))
    words = wrapped(str(steps["words"])) if steps else []
    return [*table(rows, right=(2, 3), indent=0), *words, ""]


def _by_domain(validation: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    domains: dict[str, dict[str, Any]] = {}
    for node, result in validation.items():
        for domain, losses in result.get("domains", {}).items():
            domains.setdefault(domain, {})[node] = losses
    return domains


def _left_behind(host: Host, plan: Plan) -> dict[str, Any] | FleetError:
    """Progress, manifest, validation, status of one node, or why there is none (given back, not raised).

    A host that was set up anew after the run has validated the model, and has no progress and no status.
    """
    folder = layout.run(plan.run_id)
    mark = "--tailtrain--"
    script = f"; echo; echo {mark}; ".join(
        f"cat {folder}/{name}"
        for name in ("final/manifest.json", "validation.json", "progress.jsonl", "status.json")
    )
    try:
        output = remote.run(host, ["sh", "-c", script])
    except FleetError as error:
        return error
    try:
        manifest, validation, progress, status = output.stdout.split(mark)
        return {
            "manifest": json.loads(manifest),
            "validation": json.loads(validation),
            "rounds": [json.loads(line) for line in progress.splitlines() if line.strip()],
            "status": json.loads(status) if status.strip() else {},
        }
    except ValueError:
        return FleetError("left no complete record of this run", host=host.name, found=output.complaint)


def _record(plan: Plan, found: Mapping[str, Mapping[str, Any]]) -> RunRecord:
    primary = found[plan.primary.node.hostname]
    limits = {host.node.hostname: host.limits for host in plan.hosts if host.limits}
    entries = [entry for left in found.values() for entry in left["rounds"]]
    pairs = {
        (entry["round"], *(member["node"] for member in entry["group"])): entry
        for entry in entries
        if not entry.get("all", True)
    }
    return RunRecord(
        rounds=[entry for entry in primary["rounds"] if entry.get("all", True)],
        contributions=primary["manifest"]["contributions"],
        cores={name: limit.cpu_quota_percent // 100 for name, limit in limits.items()},
        memory_bytes={name: limit.memory_bytes for name, limit in limits.items()},
        usable_cores={name: limit.usable_cores for name, limit in limits.items()},
        views={name: left["rounds"][-1]["live"] for name, left in found.items() if left["rounds"]},
        availability={name: left["validation"].get("availability") for name, left in found.items()},
        pairs=list(pairs.values()),
        members={name: view for name, left in found.items() if (view := left["status"].get("views"))},
        deaths=primary["status"].get("deaths", ()),
    )
