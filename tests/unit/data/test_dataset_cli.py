"""The dataset commands, as a person types them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from tailtrain.cli import main
from tailtrain.data.cli import dataset_group
from tailtrain.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path


def run(*arguments: object) -> str:
    """Run a command that is to succeed; what it prints."""
    result = CliRunner().invoke(dataset_group, [str(each) for each in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_building_prints_what_was_made_and_what_was_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("a" * 1_000_000)
    for name in "bcdef":
        (folder / name).write_bytes(b"\0")
    output = tmp_path / "set.parquet"
    printed = run("build", "text", folder, "--output", output, "--max-record-bytes", 500_000)
    assert printed == (
        f"{output}: 2 records, 1.0 MB of text, 0.0 MB on disk\n  5 binary: texts/b, texts/c, texts/d, ...\n"
    )


def test_every_kind_of_input_has_a_command(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print()")
    (tmp_path / "a.jsonl").write_text('{"x": "1", "y": "2"}\nnonsense\n')
    output = tmp_path / "set.parquet"
    assert "1 records" in run("build", "code", tmp_path, "-o", output)
    assert "1 records" in run("build", "jsonl", tmp_path, "-o", output, "--field", "x", "--skip-bad-lines")
    assert "1 records" in run("build", "parquet", output, "-o", tmp_path / "anew.parquet", "--field", "text")
    with pytest.raises(DataError, match="file is not a database"):
        run("build", "sqlite", tmp_path / "a.py", "-o", output, "--table", "t", "--field", "f")


def test_showing_a_file_names_its_text_column(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print()")
    output = tmp_path / "set.parquet"
    run("build", "code", tmp_path, "-o", output)
    assert run("show", output).splitlines() == [
        f"{output}: 1 records, 0.0 MB",
        "  content: string  <- text",
        "  source: string",
        "  language: string",
    ]


def test_output_must_be_given(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["dataset", "build", "text", str(tmp_path)])
    assert result.exit_code == 1
    assert "Missing option '--output'" in result.output
