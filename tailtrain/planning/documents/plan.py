"""A plan as a document: all that a person or a program may want to know of it, and its JSON.

The text (`tailtrain.planning.rendering.plan`) is made from the same document, so neither can say more than
the other. `docs/plan.schema.json` is made from these classes. Bytes, seconds and counts are plain numbers;
secrets are masked before they come here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tailtrain.errors import DeclarationError
from tailtrain.planning.documents.division import DivisionEntry
from tailtrain.planning.documents.host import DepartedEntry, HostEntry, Lock
from tailtrain.planning.documents.topology import TopologyEntry
from tailtrain.planning.secrets import masked

FORMAT: Literal[1] = 1
SCHEMA_ID = f"urn:tailtrain:plan:{FORMAT}"

Hash = Annotated[str, Meta(pattern="^[0-9a-f]+$")]
Count = Annotated[int, Meta(ge=0)]


class Run(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The training run that the plan starts, goes on with, or finds finished."""

    id: Annotated[str, Meta(description="Hash of data, model, training settings, code and nodes.")]
    state: Annotated[str, Meta(description="As its primary says it; empty where the run is new.")]
    trained: Annotated[float | None, Meta(description="How much of its tokens it has, from 0 to 1.")]


class DatasetEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A data set, and how its records are shared out."""

    domain: str
    file: str
    manifest: Annotated[Hash, Meta(description="SHA-256 of the list of its chunks: the data set's id.")]
    bytes: Annotated[Count, Meta(description="Size of the file.")]
    records: Annotated[Count, Meta(description="All records, held-out ones included.")]
    trained_on: Count
    held_out: Annotated[
        Count, Meta(description="Records that are only ever validated on; every node has them.")
    ]
    chunks: Count
    shared_out: Annotated[
        Count | None,
        Meta(description="Sum of the nodes' quotas, equal to `trained_on`; null where each has all."),
    ]
    moved: Annotated[
        Count | None,
        Meta(description="Records that come to another node than before; null where no node has any yet."),
    ]
    least_moved: Annotated[
        Count | None, Meta(description="The least that any placement with these quotas could move.")
    ]


class Diff(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hunks of a unified diff without context that are the same on all these hosts, secrets masked."""

    path: str
    hosts: tuple[str, ...]
    before: Annotated[
        Literal["no such file", "on the host"], Meta(description="What the file is compared with.")
    ]
    hunks: Annotated[tuple[tuple[str, ...], ...], Meta(description="Each hunk as its lines, heading first.")]


class PhaseEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A phase, in the order in which they are done; one without hosts has nothing to do."""

    name: str
    title: str
    hosts: Annotated[tuple[str, ...], Meta(description="Who does something in it, those that left included.")]


class Gate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What must be left of the fleet after each phase for the next one to begin."""

    primary: Annotated[str, Meta(description="Nothing goes on without it.")]
    needed: Annotated[Count, Meta(description="Nodes that must be left, the primary among them.")]
    nodes: Count
    reachable: Count
    open: Annotated[bool, Meta(description="Whether those that answered are enough to begin.")]


class KnownLater(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that no plan can tell yet."""

    what: str
    after: Annotated[str, Meta(description="The phase that makes it known.")]


class Destruction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that is interrupted or removed."""

    host: str
    kind: Literal["interrupt", "remove", "leave"]
    what: str
    why: str
    bytes: Annotated[Count, Meta(description="What this frees.")]
    paths: tuple[str, ...]


class Totals(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The plan in numbers."""

    hosts: Annotated[Count, Meta(description="Hosts of the inventory.")]
    changing: Count
    unchanged: Count
    unknown: Count
    leaving: Annotated[Count, Meta(description="Hosts that are no longer in the inventory.")]
    share: Annotated[Count, Meta(description="Sum of the shares: 65536 is one.")]
    packs_to_upload: Annotated[Count, Meta(description="To the storage backend, from the control machine.")]
    bytes_to_upload: Count
    chunks_to_send: Annotated[Count, Meta(description="To hosts, from wherever they come.")]
    bytes_to_send: Count
    seconds_to_send: Annotated[
        float, Meta(description="Hosts are sent to side by side: the slowest one's time.")
    ]
    records_moved: Count
    least_moved: Count
    bytes_freed: Count


class PlanDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a deploy would do to each host, and why."""

    format: Annotated[Literal[1], Meta(description="Version of this document's form.")] = FORMAT
    id: Annotated[Hash, Meta(description="Hash of all that will be done: equal ids, equal plans.")]
    changes: Annotated[bool, Meta(description="Whether anything will be done anywhere.")]
    run: Run
    lock: Annotated[Lock | None, Meta(description="Who is deploying at this moment.")]
    settings: Annotated[
        dict[str, str | int | float | bool | None],
        Meta(
            description="Every setting of group_data, by its name, `section.name` where it is in a section."
        ),
    ]
    code: Annotated[str, Meta(description="Id of the worker's code, a hash.")]
    datasets: tuple[DatasetEntry, ...]
    division: Annotated[
        DivisionEntry | None, Meta(description="Null where every node has the whole model.")
    ] = None
    topology: Annotated[
        TopologyEntry | None, Meta(description="Null where the model is divided among the nodes.")
    ] = None
    hosts: Annotated[tuple[HostEntry, ...], Meta(description="In the inventory's order.")]
    departed: Annotated[
        tuple[DepartedEntry, ...],
        Meta(description="Hosts that have something of this fleet's and are not in the inventory any more."),
    ]
    phases: tuple[PhaseEntry, ...]
    gate: Gate
    known_later: tuple[KnownLater, ...]
    diffs: tuple[Diff, ...]
    destructive: Annotated[tuple[Destruction, ...], Meta(description="What is interrupted or removed.")]
    totals: Totals


class _Format(msgspec.Struct):
    """The one field that documents of every version have."""

    format: int


def encode(document: PlanDocument) -> bytes:
    """The document as JSON, the same bytes for the same document."""
    return msgspec.json.format(msgspec.json.encode(document, order="deterministic"), indent=1) + b"\n"


def decode(content: bytes, *, name: str = "plan") -> PlanDocument:
    """A document from its JSON.

    Args:
        content: what `encode` made.
        name: the file it comes from, for the message.

    Raises:
        DeclarationError: it is damaged, or of another version.
    """
    fix = "Make it again: tailtrain plan --out FILE"
    try:
        version = msgspec.json.decode(content, type=_Format).format
        if version != FORMAT:
            raise DeclarationError(
                "the saved plan is of another version",
                field=name,
                found=f"format {version}",
                expected=f"format {FORMAT}",
                fix=fix,
            )
        return msgspec.json.decode(content, type=PlanDocument)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DeclarationError(
            "the file is not a saved plan, or it is damaged", field=name, found=masked(str(error)), fix=fix
        ) from None


def schema() -> dict[str, Any]:
    """The JSON schema of a plan, as `docs/plan.schema.json` publishes it."""
    made = msgspec.json.schema(PlanDocument)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": "tailtrain plan",
        "description": f"What `tailtrain plan --json` prints, format {FORMAT}.",
        **made,
    }
