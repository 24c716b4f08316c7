"""The specification's values as JSON in the form of Lean's derived `ToJson`, and back.

A structure is an object with Lean's field names, a constructor without arguments its bare name, a pair an
array of two, a natural number a JSON integer. The order of an object's members means nothing: Lean's own
printers put them in ascending or in descending order of their names; here they stand in the order of the
structure. Reading is stricter than Lean's, which takes no notice of fields that it does not know.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import msgspec

from tailtrain.errors import DeclarationError
from tailtrain.spec.problems import nearest, shown, shown_name
from tailtrain.spec.structures import (
    MASKED_ADDRESS,
    CoordinationProtocol,
    DatasetInfo,
    DistributedTrainingConfig,
    DistributionStrategy,
    NetworkNode,
    NetworkResources,
    NodeAssignment,
    NodeRole,
    PipelinePhase,
    StorageBackend,
    TrainingConfiguration,
    TrainingGuarantees,
    lean_name,
)
from tailtrain.spec.validation import choice_problem, validate_nodes, validate_training

if TYPE_CHECKING:
    from collections.abc import Iterator
    from enum import StrEnum

LONGEST_DOCUMENT = 4 * 1024 * 1024
"""Characters (or bytes) of JSON that are read; a fleet of a thousand nodes takes less than a megabyte."""

Value = TypeVar("Value", bound=msgspec.Struct)

_ENUMERATIONS: dict[str, type[StrEnum]] = {
    "role": NodeRole,
    "distributionStrategy": DistributionStrategy,
    "coordinationProtocol": CoordinationProtocol,
    "storageBackend": StorageBackend,
}

_STRUCTURES = (
    DatasetInfo,
    DistributedTrainingConfig,
    NetworkNode,
    NetworkResources,
    NodeAssignment,
    PipelinePhase,
    TrainingConfiguration,
    TrainingGuarantees,
)
_FIELD_NAMES = tuple(field.encode_name for kind in _STRUCTURES for field in msgspec.structs.fields(kind))

# msgspec's names of types -> words
_IN_WORDS = {
    "int": "a whole number",
    "int >= 0": "a whole number, 0 or more",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "array of length 2": "a list of two: a host name and its assignment",
    "object": "an object",
}
_AT_PATH = re.compile(r"(?P<what>.+) - at `\$(?P<path>.*)`", re.DOTALL)
_EXPECTED = re.compile(r"Expected (?P<expected>.+?)(?:, got .+)?")
_MISSING = re.compile(r"Object missing required field `(?P<name>.+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`", re.DOTALL)
_HALF_A_PAIR = re.compile("[\ud800-\udfff]")
_PATH_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")


class _Repeating(dict[str, Any]):
    """A JSON object in which a key stands more than once."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.repeated_key, _ = Counter(key for key, _ in pairs).most_common(1)[0]


def to_lean_json(value: msgspec.Struct, indent: int | None = None) -> str:
    """The value as JSON in Lean's form.

    Args:
        value: a configuration, or any other value of the specification.
        indent: spaces per level for reading; None for one line without spaces.
    """
    separators = (",", ":") if indent is None else None
    return json.dumps(msgspec.to_builtins(value), ensure_ascii=False, indent=indent, separators=separators)


def from_lean_json(text: str | bytes) -> DistributedTrainingConfig:
    """Reads a whole configuration and checks its fleet and its settings as the inventory's are checked.

    The assignments may be the specification's own, floors included; whether they are exact is not judged.

    Raises:
        DeclarationError: not JSON, not in Lean's form, or a fleet or a training that cannot be; names the
            path of the field, what was found and what was expected.
    """
    config = read_value(text, DistributedTrainingConfig)
    validate_nodes(
        config.network_topology,
        name_of=lambda place, attribute: f"networkTopology[{place}].{lean_name(attribute)}",
    )
    validate_training(
        config.training_configuration,
        name_of=lambda attribute: f"trainingConfiguration.{lean_name(attribute)}",
    )
    _check_agreement(config)
    return config


def read_value(text: str | bytes, kind: type[Value]) -> Value:
    """Reads one value of the specification from JSON in Lean's form; what it means is not checked.

    Args:
        text: the document, at most `LONGEST_DOCUMENT` long; bytes are UTF-8.
        kind: the structure to read.

    Raises:
        DeclarationError: not JSON, or not in the form of that structure.
    """
    data = _parse(text)
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        _refuse(data, str(error), error)


def masked(config: DistributedTrainingConfig) -> DistributedTrainingConfig:
    """The same configuration without the nodes' addresses."""
    return msgspec.structs.replace(config, network_topology=mask_addresses(config.network_topology))


def mask_addresses(nodes: tuple[NetworkNode, ...]) -> tuple[NetworkNode, ...]:
    """The same nodes without their addresses."""
    return tuple(msgspec.structs.replace(node, tailscale_ip=MASKED_ADDRESS) for node in nodes)


def _parse(text: str | bytes) -> object:
    if len(text) > LONGEST_DOCUMENT:
        raise _unreadable(
            "the document is too long", f"{len(text)} characters", f"{LONGEST_DOCUMENT} at most"
        )
    try:
        if isinstance(text, bytes):
            text = text.decode()
        data: object = json.loads(text, object_pairs_hook=_object)
    except UnicodeDecodeError as error:
        raise _unreadable("the document is not UTF-8", f"a wrong byte at {error.start}", "UTF-8") from error
    except json.JSONDecodeError as error:
        where = f"{error.msg} at line {error.lineno}, column {error.colno}"
        raise _unreadable("the document is not JSON", where, "JSON") from error
    except ValueError as error:  # Python refuses to read integers of more than 4,300 digits
        raise _unreadable("a number is too long", str(error), "numbers of a usual length") from error
    except RecursionError as error:
        raise _unreadable("the document is nested too deeply", "too many levels", "few levels") from error
    problem = next(_text_problems(data), None)
    if problem:
        raise problem
    return data


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(pairs)
    return plain if len(plain) == len(pairs) else _Repeating(pairs)


def _text_problems(data: object) -> Iterator[DeclarationError]:
    """Repeated keys, and halves of surrogate pairs, which JSON can write but neither Lean nor UTF-8 hold."""
    waiting: list[tuple[str, object]] = [("", data)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, _Repeating):
            yield DeclarationError(
                "the field stands more than once",
                field=_shown_path(f"{path}.{value.repeated_key}"),
                found="more than one",
                expected="one",
            )
        keys = list(value) if isinstance(value, dict) else []
        for text in [value] if isinstance(value, str) else keys:
            if _HALF_A_PAIR.search(text):
                yield DeclarationError(
                    "half a character",
                    field=_shown_path(path),
                    found=shown(text),
                    expected="whole Unicode characters",
                )
        if isinstance(value, dict):
            inside = ((f"{path}.{key}", inner) for key, inner in value.items())
        elif isinstance(value, list):
            inside = ((f"{path}[{place}]", inner) for place, inner in enumerate(value))
        else:
            continue
        waiting += [(where, inner) for where, inner in inside if isinstance(inner, str | dict | list)]


def _unreadable(problem: str, found: str, expected: str) -> DeclarationError:
    return DeclarationError(problem, field="specification file", found=found, expected=expected)


def _shown_path(path: str) -> str:
    """A path inside the document as a person reads it."""
    return shown_name(path.removeprefix(".")) or "specification file"


def _refuse(data: object, message: str, cause: Exception) -> NoReturn:
    """Says in our words, with the value that was found, what msgspec says about the document."""
    at_path = _AT_PATH.fullmatch(message)
    what, path = (at_path["what"], at_path["path"]) if at_path else (message, "")
    value, host = _follow(data, path)
    if missing := _MISSING.fullmatch(what):
        raise DeclarationError(
            "the field is missing",
            host=host,
            field=_shown_path(f"{path}.{missing['name']}"),
            found="nothing",
            expected="a value",
        ) from cause
    if unknown := _UNKNOWN.fullmatch(what):
        name = unknown["name"]
        meant = nearest(name, _FIELD_NAMES)
        raise DeclarationError(
            "the specification has no such field",
            host=host,
            field=_shown_path(f"{path}.{name}"),
            found=shown(value.get(name)) if isinstance(value, dict) else None,
            fix=f'Did you mean "{meant}"?' if meant else None,
        ) from cause
    field = path.rpartition(".")[2]
    if what.startswith("Invalid enum value") and field in _ENUMERATIONS:
        names = tuple(_ENUMERATIONS[field])
        problem = choice_problem(value, names, field=_shown_path(path), host=host)
        if problem:
            raise problem from cause
    expected = _EXPECTED.fullmatch(what)
    words = expected["expected"].replace("`", "") if expected else what
    raise DeclarationError(
        "wrong value",
        host=host,
        field=_shown_path(path),
        found=shown(value),
        expected=_IN_WORDS.get(words, words),
    ) from cause


def _follow(data: object, path: str) -> tuple[object, str | None]:
    """The value at msgspec's path, and the host whose node or assignment the path leads through."""
    value: Any = data
    host: object = None
    for key, place in _PATH_STEP.findall(path):
        try:
            value = value[key] if key else value[int(place)]
        except (KeyError, IndexError, TypeError):  # the name of an unknown field can look like a path
            return data, None
        if place and isinstance(value, dict):
            host = value.get("hostname", host)
        elif place and isinstance(value, list) and value:
            host = value[0]
    return value, shown_name(host)


def _check_agreement(config: DistributedTrainingConfig) -> None:
    """The parts that repeat the fleet must repeat it as it is."""
    resources = NetworkResources.from_nodes(config.network_topology)
    for attribute in NetworkResources.__struct_fields__:
        found, expected = getattr(config.total_resources, attribute), getattr(resources, attribute)
        if found != expected:
            raise DeclarationError(
                "the total is not that of the nodes",
                field=f"totalResources.{lean_name(attribute)}",
                found=found,
                expected=expected,
            )
    hosts = [node.hostname for node in config.network_topology]
    assigned = [host for host, _ in config.node_assignments]
    for place, (found, expected) in enumerate(zip_longest(assigned, hosts)):
        if found != expected:
            raise DeclarationError(
                "the assignments are not those of the nodes, in their order",
                field=f"nodeAssignments[{place}]",
                found="nothing" if found is None else shown(found),
                expected="nothing" if expected is None else shown(expected),
            )
