"""What the README says can be typed, can be typed; what it names, is there."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path

import click
import pytest

from tailtrain.cli import main
from tailtrain.planning.engine_settings import EngineSettings
from tailtrain.planning.settings import LoopSettings

CHECKOUT = Path(__file__).resolve().parents[2]
README = (CHECKOUT / "README.md").read_text(encoding="utf-8")


def _commands(program: str) -> list[str]:
    """Command lines of a program in the README, in code blocks and in code words."""
    spoken = re.findall(rf"^\s*{program} [^#\n]*", README, re.MULTILINE)
    quoted = re.findall(rf"`{program} ([^`]*)`", README)
    return sorted({line.strip() for line in spoken} | {f"{program} {rest}" for rest in quoted})


def _resolve(words: list[str]) -> None:
    command: click.Command = main
    context = click.Context(main)
    for word in words:
        if isinstance(command, click.Group):
            found = command.get_command(context, word)
            assert found is not None, f"no such command: {word}"
            command = found
        elif word.startswith("-"):
            options = {option for parameter in command.params for option in parameter.opts}
            assert word in options, f"{command.name} has no option {word}"


@pytest.mark.parametrize("line", _commands("tailtrain"))
def test_commands_of_tailtrain_exist_with_their_options(line: str) -> None:
    line = line.replace("\\|", "|").split(" -- ")[0]
    words = [word.strip("[],") for word in line.split()[1:]]
    choices = next((word for word in words if "|" in word), None)
    for choice in choices.split("|") if choices else [None]:
        _resolve([choice if choice and word == choices else word for word in words])


@pytest.mark.parametrize("line", _commands("make"))
def test_targets_of_make_exist(line: str) -> None:
    makefile = (CHECKOUT / "Makefile").read_text(encoding="utf-8").replace("$(VENV)", ".venv")
    for target in line.split("&&", maxsplit=1)[0].split()[1:]:
        assert re.search(rf"^(?:[\w./-]+ )*{re.escape(target)}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("line", _commands("pyinfra"))
def test_files_given_to_pyinfra_exist(line: str) -> None:
    for word in line.split()[1:]:
        if word.endswith(".py"):
            assert (CHECKOUT / word).is_file(), word


def test_every_place_in_the_tree_and_in_tables_is_there() -> None:
    tree = README.split("## The tree")[1].split("```")[1]
    folder = CHECKOUT
    for line in tree.strip().splitlines():
        names = re.split(r"  +", line.strip())[0].split(", ")
        inside = line.startswith("  ")
        for name in names:
            place = (folder if inside else CHECKOUT) / name
            assert place.exists(), name
            if not inside and place.is_dir():
                folder = place
    for path in re.findall(r"`(tests/[^`]+)`", README):
        assert (CHECKOUT / path).exists(), path


def test_nothing_is_left_to_be_filled_in() -> None:
    for name in ("README.md", "CHANGELOG.md", "DECISIONS.md"):
        text = (CHECKOUT / name).read_text(encoding="utf-8")
        assert "@@" not in text
        assert "TBD" not in text


def test_every_setting_that_group_data_shows_is_one_and_the_defaults_of_the_readme_run() -> None:
    from tailtrain.planning.engines import require_runnable  # noqa: PLC0415
    from tailtrain.planning.settings import parse_settings  # noqa: PLC0415

    values: dict[str, object] = {}
    exec((CHECKOUT / "group_data" / "all.py").read_text(encoding="utf-8"), values)  # noqa: S102 - our own file
    settings = parse_settings({name: value for name, value in values.items() if not name.startswith("__")})
    require_runnable(settings)


@pytest.mark.parametrize("section", [EngineSettings, LoopSettings])
def test_every_setting_of_engines_is_explained_with_its_default(
    section: type[EngineSettings | LoopSettings],
) -> None:
    said: dict[str, str] = {}
    text = (CHECKOUT / "docs" / "engines.md").read_text(encoding="utf-8").partition("## Settings")[2]
    for names, defaults in re.findall(r"(?m)^\| (`\w+`(?:, `\w+`)*) \| ([^|]+?) \|", text):
        values = re.sub(r"(?<=\d),(?=\d{3})", "_", defaults).split(", ")
        said |= dict(zip(re.findall(r"`(\w+)`", names), values, strict=True))
    expected = {each.name: each.default for each in fields(section)}
    shown = {name: ast.literal_eval(said[name].strip("`")) for name in expected}
    assert shown == expected
