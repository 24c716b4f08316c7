"""The group data that a new project begins with."""

from __future__ import annotations

import re

from tailtrain.planning.engines import require_runnable
from tailtrain.planning.settings import SETTINGS, parse_settings
from tailtrain.planning.training_text import training_text


def settings_in(text: str) -> dict[str, object]:
    values: dict[str, object] = {}
    exec(compile(text, "all.py", "exec"), values)  # noqa: S102  # the text under test
    return {name: value for name, value in values.items() if name in SETTINGS}


def test_it_runs_as_it_is() -> None:
    settings = parse_settings(settings_in(training_text()))
    require_runnable(settings)
    assert dict(settings.datasets).keys() == {"natural", "coding"}


def test_what_stands_behind_a_hash_is_the_default_and_every_setting_is_named() -> None:
    text = training_text()
    shown = re.sub(r'^(\s*)# ((?:\w+ =|"\w+":) )', r"\1\2", text, flags=re.MULTILINE)
    assert settings_in(shown).keys() == SETTINGS
    assert parse_settings(settings_in(shown)) == parse_settings(settings_in(text))


def test_its_lines_are_no_longer_than_the_rest() -> None:
    assert max(map(len, training_text().splitlines())) <= 110
