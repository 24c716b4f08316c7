"""The project's Jinja templates, and what their texts are held to: what the plan decides stays."""

from __future__ import annotations

import json
import re
import traceback
from typing import TYPE_CHECKING

import jinja2
import msgspec
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tailtrain.errors import DeclarationError
from tailtrain.planning import layout
from tailtrain.planning.node_config import Encoded, OtherPeers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Templates:
    """The Jinja templates of a project, strict about undefined names, and about what they may call.

    Args:
        sources: template name to its text.
    """

    def __init__(self, sources: Mapping[str, str]) -> None:
        # The results are JSON and unit files, not HTML. `tojson` quotes each value of the former; the values
        # of the latter are numbers and paths that planning makes itself.
        self._environment = ImmutableSandboxedEnvironment(
            loader=jinja2.FunctionLoader(lambda name: _source(sources, name)),
            undefined=jinja2.StrictUndefined,
            autoescape=False,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        self._environment.filters["tojson"] = _to_json

    def render(self, name: str, host: str, values: Mapping[str, object]) -> str:
        """The text of a template for one host.

        Raises:
            DeclarationError: naming the host, the template and its line.
        """
        try:
            return self._environment.get_template(name).render(values)
        except jinja2.TemplateNotFound as error:
            raise DeclarationError("no such template", host=host, field=f"templates/{error.name}") from None
        except jinja2.TemplateSyntaxError as error:
            raise DeclarationError(
                f"cannot be read: {error.message}",
                host=host,
                field=f"templates/{error.name or name}, line {error.lineno}",
            ) from None
        except Exception as error:  # noqa: BLE001 - a template is a program of the user's: it may raise anything
            raise DeclarationError(
                f"cannot be rendered: {error}", host=host, field=_place(error) or f"templates/{name}"
            ) from None

    def render_unit(self, unit: str, host: str, values: Mapping[str, object]) -> str:
        """A unit for one host, checked to be one, and to start the worker.

        Raises:
            DeclarationError: where the template makes something else.
        """
        name = f"{unit}.j2"
        text = self.render(name, host, values)
        if problem := _unit_problem(text, values, _STARTS[unit]):
            raise DeclarationError(problem, host=host, field=f"templates/{name}")
        return text

    def render_worker(self, host: str, document: Mapping[str, object]) -> str:
        """`worker.json` for one host, as `render_document`."""
        return self.render_document("worker.json", host, document)

    def render_document(self, file: str, host: str, document: Mapping[str, object]) -> str:
        """A JSON file for one host, checked to say what the document says.

        Raises:
            DeclarationError: where the template makes something else of it.
        """
        text = self.render(f"{file}.j2", host, document)
        if _says(text, document):
            return text
        try:
            rendered = json.loads(text)
        except ValueError as error:
            line = f", in line {error.lineno} of it" if isinstance(error, json.JSONDecodeError) else ""
            problem = getattr(error, "msg", str(error))
            raise DeclarationError(
                f"does not make JSON: {problem}{line}", host=host, field=f"templates/{file}.j2"
            ) from None
        # Compared as text: to Python, true is 1 and 12.0 is 12, to a worker they are not.
        found = {key: json.dumps(value, sort_keys=True) for key, value in _object(rendered).items()}
        planned = {key: json.dumps(value, sort_keys=True) for key, value in document.items()}
        if found != planned:
            wrong = sorted(key for key in {*found, *planned} if found.get(key) != planned.get(key))
            raise DeclarationError(
                "leaves out or changes values that the plan decides",
                host=host,
                field=f"templates/{file}.j2",
                found=", ".join(wrong),
            )
        return text


# What a unit's ExecStart names, whatever else a template of the user's says.
_STARTS = {
    layout.WORKER_UNIT: ("environment", "worker_module", "worker_config"),
    layout.VALIDATE_UNIT: ("environment", "config"),
    layout.CHUNKS_UNIT: ("environment", "chunk_dir"),
    layout.SERF_UNIT: ("serf_config",),
}
_SECTION = re.compile(r"\[\w+\]")
_SETTING = re.compile(r"\w+\s*=.*")


def _unit_problem(text: str, values: Mapping[str, object], named: Sequence[str]) -> str | None:
    """What is wrong with a unit file as systemd.syntax(7) has it, or with what it starts."""
    section, started = "", ""
    continued = False
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if continued or not stripped or stripped[0] in "#;":
            pass
        elif _SECTION.fullmatch(stripped):
            section = stripped
        elif not _SETTING.fullmatch(stripped) or not section:
            return f"makes no unit: line {number} of it is no setting of a section"
        elif section == "[Service]" and stripped.startswith("ExecStart="):
            started = stripped
        continued = stripped.endswith("\\") and bool(stripped)
    if not all(str(values[name]) in started for name in named):
        return f"makes a unit that does not start what it should: its ExecStart names {' and '.join(named)}"
    return None


def _to_json(value: object) -> str:
    """A value as JSON, in ASCII: so no text can fail to be encoded, or mean something to a terminal."""
    if isinstance(value, jinja2.Undefined):
        str(value)  # raises, saying which name is not there
    return value.text if isinstance(value, (Encoded, OtherPeers)) else json.dumps(value)


def _says(text: str, document: Mapping[str, object]) -> bool:
    """Whether a text is this document as JSON; found out ten times faster than what is wrong where it is not.

    Compared as text: to Python, true is 1 and 12.0 is 12, to a worker they are not.
    """
    try:
        found = msgspec.json.encode(msgspec.json.decode(text), order="sorted")
    except msgspec.DecodeError:
        return False
    return found == msgspec.json.encode(document, order="sorted")


def _object(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _source(sources: Mapping[str, str], name: str) -> tuple[str, str, None] | None:
    """A template's text, with the file name that tracebacks show."""
    return (sources[name], f"templates/{name}", None) if name in sources else None


def _place(error: Exception) -> str | None:
    """Template and line at which rendering stopped; Jinja writes them into the traceback."""
    places = [
        f"{frame.filename}, line {frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith("templates/")
    ]
    return places[-1] if places else None
