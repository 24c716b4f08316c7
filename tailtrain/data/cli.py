"""The commands `tailtrain dataset build ...` and `tailtrain dataset show`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailtrain.data.build import Kind, Summary, build_dataset
from tailtrain.data.inspect import inspect_parquet
from tailtrain.data.sources import Options

if TYPE_CHECKING:
    from collections.abc import Callable

_MB = 1e6
_EVERY_SECONDS = 0.2


@click.group("dataset")
def dataset_group() -> None:
    """Make data sets, and look at them."""


@dataset_group.group("build")
def build_group() -> None:
    """Make one parquet file to train on from what you have."""


def _common(command: Callable[..., None]) -> Callable[..., None]:
    """Add what all kinds of input have in common."""
    for decorate in (
        click.option(
            "--max-record-bytes",
            type=click.IntRange(min=64),
            default=Options.max_record_bytes,
            show_default=True,
            help="Longer texts become several records.",
        ),
        click.option(
            "--output",
            "-o",
            required=True,
            type=click.Path(dir_okay=False, path_type=Path),
            help="The parquet file to write.",
        ),
        click.argument("inputs", nargs=-1, required=True, type=click.Path(path_type=Path)),
    ):
        command = decorate(command)
    return command


@build_group.command("text")
@_common
def build_text(inputs: tuple[Path, ...], output: Path, max_record_bytes: int) -> None:
    """Text files, also gzipped, and folders of them; long ones are cut at paragraphs."""
    _build("text", inputs, output, Options(max_record_bytes))


@build_group.command("code")
@_common
def build_code(inputs: tuple[Path, ...], output: Path, max_record_bytes: int) -> None:
    """Source files and trees; long ones are cut at top-level statements."""
    _build("code", inputs, output, Options(max_record_bytes))


@build_group.command("jsonl")
@_common
@click.option("--field", help="The field that holds the text.  [default: found by its name]")
@click.option("--skip-bad-lines", is_flag=True, help="Count lines that are wrong instead of stopping.")
def build_jsonl(
    inputs: tuple[Path, ...],
    output: Path,
    max_record_bytes: int,
    field: str | None,
    skip_bad_lines: bool,  # noqa: FBT001 - click passes options by name
) -> None:
    """Files of JSON objects, one a line (.jsonl, .ndjson, also gzipped), and folders of them."""
    _build("jsonl", inputs, output, Options(max_record_bytes, field=field, skip_bad_lines=skip_bad_lines))


@build_group.command("sqlite")
@_common
@click.option("--field", help="The column that holds the text.  [default: found by its name]")
@click.option("--table", help="The table or view.  [default: the only one with such a column]")
def build_sqlite(
    inputs: tuple[Path, ...], output: Path, max_record_bytes: int, field: str | None, table: str | None
) -> None:
    """SQLite databases, opened read-only."""
    _build("sqlite", inputs, output, Options(max_record_bytes, field=field, table=table))


@build_group.command("parquet")
@_common
@click.option("--field", help="The column that holds the text.  [default: found by its name]")
def build_parquet(inputs: tuple[Path, ...], output: Path, max_record_bytes: int, field: str | None) -> None:
    """Parquet files and folders of them: to join parts, or to write a file anew that cannot be used."""
    _build("parquet", inputs, output, Options(max_record_bytes, field=field))


@dataset_group.command("demo")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def demo(folder: Path) -> None:
    """Make the demo's two data sets in FOLDER: prose from this machine's documentation, and Python code."""
    from tailtrain.data.demo import build_demo_datasets  # noqa: PLC0415 - slow, and of no use elsewhere

    print("Reading documentation and the standard library of this machine ...")
    line = _ProgressLine("data sets")
    try:
        paths = build_demo_datasets(folder, progress=line)
    finally:
        line.end()
    for path in paths:
        found = inspect_parquet(path)
        print(f"{found.path}: {found.records:,} records, {found.bytes / _MB:.1f} MB")


@dataset_group.command("show")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--text-column", help="The column to train on.  [default: found by its name]")
def show(file: Path, text_column: str | None) -> None:
    """Say what a parquet file holds, or what is wrong with it."""
    found = inspect_parquet(file, text_column=text_column)
    print(f"{found.path}: {found.records:,} records, {found.bytes / _MB:.1f} MB")
    for name, kind in found.columns:
        print(f"  {name}: {kind}{'  <- text' if name == found.text_column else ''}")


def _build(kind: Kind, inputs: tuple[Path, ...], output: Path, options: Options) -> None:
    line = _ProgressLine(output.name)
    try:
        summary = build_dataset(kind, inputs, output, options=options, progress=line)
    finally:
        line.end()
    print(_describe(summary))


def _describe(summary: Summary) -> str:
    size = f"{summary.text_bytes / _MB:.1f} MB of text, {summary.file_bytes / _MB:.1f} MB on disk"
    lines = [f"{summary.output}: {summary.records:,} records, {size}"]
    for reason, count in summary.skipped.counts.most_common():
        examples = summary.skipped.examples[reason]
        more = ", ..." if count > len(examples) else ""
        lines.append(f"  {count:,} {reason}: {', '.join(examples)}{more}")
    return "\n".join(lines)


class _ProgressLine:
    """One line on standard error that is written over; nothing where that is no terminal."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._next = 0.0
        self._shown = False
        self._terminal = sys.stderr.isatty()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self._terminal and (now >= self._next or done == total):
            self._next = now + _EVERY_SECONDS
            self._shown = True
            click.echo(f"\r{self._name}: {100 * done // max(1, total)} %", nl=False, err=True)

    def end(self) -> None:
        if self._shown:
            click.echo(err=True)
