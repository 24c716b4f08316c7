"""The inventory as text: what is written is what was meant, and what was there stays as it was."""

from __future__ import annotations

import ast

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tailtrain.errors import DeclarationError
from tailtrain.planning.inventory_text import entry_text, inventory_text, with_entry
from tailtrain.planning.newcomers import Entry
from tests.plans.situations import PROJECT

SMALL = Entry("small", cores=2, ram_gb=4, storage_gb=100)
LINE = '("@tailscale/small", {"cores": 2, "ram_gb": 4, "storage_gb": 100})'


def hosts(text: str) -> dict[str, list[object]]:
    """The groups of an inventory that is written in literals."""
    values: dict[str, object] = {}
    exec(compile(text, "inventory.py", "exec"), values)  # noqa: S102  # the text of a test
    return {name: list(value) for name, value in values.items() if isinstance(value, list)}


def added(text: str) -> str:
    """The text with the small machine more, which must be all that is new."""
    changed = with_entry(text, SMALL, file="inventory.py")
    before, after = hosts(text), hosts(changed)
    assert after.pop("compute") == [*before.pop("compute", []), ast.literal_eval(LINE)]
    assert after == before
    # Nothing that was there is gone.
    rest = iter(changed)
    assert all(sign in rest for sign in text)
    return changed


def test_an_entry_says_what_there_is() -> None:
    assert entry_text(SMALL) == LINE
    big = Entry("big", cores=16, ram_gb=32, storage_gb=800, gpu=True, ssh_user="deploy", sudo=True)
    assert entry_text(big) == (
        '("@tailscale/big", {"cores": 16, "ram_gb": 32, "gpu": True, "storage_gb": 800, '
        '"ssh_user": "deploy", "_sudo": True})'
    )


def test_a_line_is_added_to_the_inventory_of_this_project() -> None:
    text = (PROJECT / "inventory.py").read_text()
    assert added(text) == text.removesuffix("]\n") + f"    {LINE},\n]\n"


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("compute = []\n", f"compute = [\n    {LINE},\n]\n"),
        ("compute = [  ]  # none\n", f"compute = [\n    {LINE},\n  ]  # none\n"),
        ("compute = [('a', {})]\n", f"compute = [('a', {{}}), {LINE}]\n"),
        ("compute = [('a', {}), ]\n", f"compute = [('a', {{}}), {LINE} ]\n"),
        ("compute: list = ['a', 'b']", f"compute: list = ['a', 'b', {LINE}]"),
        ("compute = [\n]\n", f"compute = [\n    {LINE},\n]\n"),
        (
            "compute = [\n    # nobody, [yet]\n]\n",
            f"compute = [\n    # nobody, [yet]\n    {LINE},\n]\n",
        ),
        (
            "compute = [\n  ('a', {}),  # 1,\n  ('b', {})  # ends ]\n]\n",
            f"compute = [\n  ('a', {{}}),  # 1,\n  ('b', {{}}),  # ends ]\n  {LINE},\n]\n",
        ),
        (
            "compute = [\n\t('a', {}),\n\t# ('b', {}),\n]\n",
            f"compute = [\n\t('a', {{}}),\n\t# ('b', {{}}),\n\t{LINE},\n]\n",
        ),
        (
            "compute = [('a', {}),\n           ('b', {})]\n",
            f"compute = [('a', {{}}),\n           ('b', {{}}),\n           {LINE}]\n",
        ),
        (
            "compute = [\n    ('ä', {\n        'cores': 1,\n    }),\n    ]\n",
            f"compute = [\n    ('ä', {{\n        'cores': 1,\n    }}),\n    {LINE},\n    ]\n",
        ),
        (
            "compute = [\r\n    ('a', {}),\r\n]\r\n",
            f"compute = [\r\n    ('a', {{}}),\r\n    {LINE},\r\n]\r\n",
        ),
        ("x = 'ü'; compute = [('ß')]; y = 1\n", f"x = 'ü'; compute = [('ß'), {LINE}]; y = 1\n"),
        ("primary = ['a']", f"primary = ['a']\n\ncompute = [\n    {LINE},\n]\n"),
        ("primary = ['a']\n", f"primary = ['a']\n\ncompute = [\n    {LINE},\n]\n"),
        ("_more = []\ncompute = [*_more, 'a']\n", f"_more = []\ncompute = [*_more, 'a', {LINE}]\n"),
    ],
)
def test_forms_that_people_write(text: str, changed: str) -> None:
    assert added(text) == changed


def test_two_are_added_one_after_the_other() -> None:
    once = with_entry("compute = []\n", SMALL, file="inventory.py")
    twice = with_entry(once, Entry("b", cores=1, ram_gb=1, storage_gb=1), file="inventory.py")
    assert [entry[0] for entry in hosts(twice)["compute"]] == ["@tailscale/small", "@tailscale/b"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("compute = [host for host in ()]\n", 1),
        ("compute = ['a'] + ['b']\n", 1),
        ("compute = make()\n", 1),
        ("compute = ('a',)\n", 1),
        ("compute = ['a']\ncompute += ['b']\n", 1),
        ("if True:\n    compute = ['a']\n", 2),
        ("compute = others = ['a']\n", 1),
        ("from elsewhere import compute\n", 1),
        ("from elsewhere import *\n", 1),
        ("def compute(): ...\n", 1),
        ("for compute in []: pass\n", 1),
    ],
)
def test_a_list_that_is_made_otherwise_is_left_alone(text: str, line: int) -> None:
    with pytest.raises(DeclarationError, match="compute is not written as one list, so it is not") as caught:
        with_entry(text, SMALL, file="inventory.py")
    assert str(caught.value).startswith(f"inventory.py, line {line}: ")
    assert "Put the line there yourself" in str(caught.value)


def test_a_file_that_is_no_python() -> None:
    with pytest.raises(DeclarationError, match=r"inventory\.py, line 1: cannot be read"):
        with_entry("compute = [(\n", SMALL, file="inventory.py")


NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
ENTRIES = st.builds(
    Entry,
    name=NAMES,
    cores=st.integers(1, 512),
    ram_gb=st.integers(1, 4096),
    storage_gb=st.integers(1, 100_000),
    gpu=st.booleans(),
    ssh_user=st.none() | st.from_regex(r"[a-z_][a-z0-9_-]{0,10}", fullmatch=True),
    sudo=st.booleans(),
)
GAPS = st.sampled_from(["", " ", "\n", "\n    ", "  # a, comment]\n", "\n\n", "\r\n", "\t"])


@settings(deadline=None)  # a busy machine is no failure
@given(
    items=st.lists(st.sampled_from(["'a'", '("ä", {"cores": 1})', "('c',\n {})", "[1, (2)]", '"]"'])),
    gaps=st.lists(GAPS, min_size=12, max_size=12),
    comma=st.sampled_from(["", ","]),
    before=st.sampled_from(["", "x = 1\n", '"""Doc, [string]."""\n', "primary = ['p']\n\n"]),
    after=st.sampled_from(["", "\n", "\ny = [2]\n", "  # the end"]),
    entry=ENTRIES,
)
def test_whatever_the_layout_exactly_the_entry_is_new(
    items: list[str], gaps: list[str], comma: str, before: str, after: str, entry: Entry
) -> None:
    assume(len(items) < 6)
    body = ",".join(f"{gaps[2 * place]}{item}{gaps[2 * place + 1]}" for place, item in enumerate(items))
    text = f"{before}compute = [{body}{comma if items else ''}{gaps[11]}]{after}"
    changed = with_entry(text, entry, file="inventory.py")
    was, now = hosts(text), hosts(changed)
    assert now.pop("compute") == [
        *was.pop("compute"),
        (f"@tailscale/{entry.name}", dict(entry.data)),
    ]
    assert now == was
    rest = iter(changed)
    assert all(sign in rest for sign in text)


@settings(deadline=None)
@given(primary=ENTRIES, compute=st.lists(ENTRIES, max_size=5), names=st.lists(NAMES, max_size=3))
def test_a_new_inventory_reads_as_it_was_meant(
    primary: Entry, compute: list[Entry], names: list[str]
) -> None:
    text = inventory_text(primary, compute, dict.fromkeys(names, 'it\x1b is\noff"""'))
    found = hosts(text)
    assert found["primary"] == [(f"@tailscale/{primary.name}", dict(primary.data))]
    assert found["compute"] == [(f"@tailscale/{entry.name}", dict(entry.data)) for entry in compute]
    for name in names:
        assert f"#   {name}" in text
    grown = hosts(with_entry(text, SMALL, file="inventory.py"))
    assert grown == {**found, "compute": [*found["compute"], ast.literal_eval(LINE)]}
