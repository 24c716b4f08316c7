"""Diffs: the hunks of `diff -U0`, the same ones shared, secrets masked but their change visible."""

from __future__ import annotations

import difflib
import hashlib
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from tailtrain.planning.parts import FileChange
from tailtrain.planning.rendering.diffs import folded_diffs, hunks, is_binary, size_and_sha256
from tests.plans.situations import Situation

if TYPE_CHECKING:
    from tailtrain.planning.plan import HostPlan

LINES = st.lists(st.sampled_from(["a", "b", "c", "", "[x]"]), max_size=8)


def change(before: str | None, after: str, path: str = "/etc/x.conf") -> FileChange:
    return FileChange(path, "0644", "root", before, after)


def lines_of(before: str | None, after: str) -> list[str]:
    return [line for hunk in hunks(change(before, after)) for line in hunk]


@given(before=LINES, after=LINES)
def test_hunks_are_those_of_a_unified_diff_without_context(before: list[str], after: list[str]) -> None:
    expected = list(islice(difflib.unified_diff(before or [""], after or [""], lineterm="", n=0), 2, None))
    assert lines_of("\n".join(before), "\n".join(after)) == expected


def test_a_file_that_is_not_there_is_added_whole() -> None:
    assert lines_of(None, "a\nb") == ["@@ -0,0 +1,2 @@", "+a", "+b"]


def test_a_changed_secret_shows_as_changed_and_no_more() -> None:
    assert lines_of("x\ntoken = abc\ny", "x\ntoken = def\ny") == [
        *("@@ -2 +2 @@", "-token = ***", "+token = *** (changed)")
    ]


def test_an_unchanged_secret_on_a_changed_line_is_said_to_be_the_same() -> None:
    assert lines_of('{"token": "abc", "port": 1}', '{"token": "abc", "port": 2}') == [
        "@@ -1 +1 @@",
        '-{"token": "*** (same)", "port": 1}',
        '+{"token": "*** (same)", "port": 2}',
    ]


def test_a_new_secret_is_only_masked() -> None:
    assert lines_of("x", "x\ntoken = abc") == ["@@ -1,0 +2 @@", "+token = ***"]
    assert lines_of("token = abc\nx", "x") == ["@@ -1 +0,0 @@", "-token = ***"]


def test_secrets_that_change_places_show_as_changed() -> None:
    assert lines_of("a_token = abc\nb_token = def", "a_token = def\nb_token = abc") == [
        "@@ -1,2 +1,2 @@",
        "-a_token = ***",
        "-b_token = ***",
        "+a_token = *** (changed)",
        "+b_token = *** (changed)",
    ]


def test_a_key_in_the_middle_of_which_something_changed_is_masked() -> None:
    key = "-----BEGIN PRIVATE KEY-----\n{}\nbbbb\n{}\n-----END PRIVATE KEY-----"
    shown = lines_of(key.format("aaaa", "cccc"), key.format("aaaa", "dddd"))
    assert shown == ["@@ -4 +4 @@", "-***", "+*** (changed)"]


def hosts_with(*changes: tuple[FileChange, ...]) -> list[HostPlan]:
    return [
        replace(host, files=files) for host, files in zip(Situation().plan().hosts, changes, strict=False)
    ]


def test_hosts_share_the_hunks_that_are_the_same_and_keep_their_own() -> None:
    hosts = hosts_with(
        (change("1\n2\n3", "one\n2\n3"),), (change("1\n2\n3", "one\n2\nthree"),), (change(None, "one"),)
    )
    found = folded_diffs(hosts)
    assert [(diff.before, diff.hosts, diff.hunks) for diff in found] == [
        ("on the host", ("qfox", "architect"), (("@@ -1 +1 @@", "-1", "+one"),)),
        ("on the host", ("architect",), (("@@ -3 +3 @@", "-3", "+three"),)),
        ("no such file", ("judge",), (("@@ -0,0 +1 @@", "+one"),)),
    ]


def test_the_same_hunk_with_other_secrets_is_one_hunk() -> None:
    hosts = hosts_with((change("token = a", "token = x"),), (change("token = b", "token = y"),))
    assert [diff.hosts for diff in folded_diffs(hosts)] == [("qfox", "architect")]


def test_what_is_no_text_has_no_hunks() -> None:
    assert is_binary("PAR1\0\0")
    assert is_binary("\udcff")
    assert not is_binary("é\x1b[31m\tΩ")
    assert folded_diffs(hosts_with((change("PAR1\0", "text"),), (change(None, "\udcff"),))) == ()


def test_sizes_and_hashes_are_those_of_the_bytes() -> None:
    assert size_and_sha256(None) == (None, None)
    assert size_and_sha256("é") == (2, hashlib.sha256("é".encode()).hexdigest())
    size, digest = size_and_sha256("\udcff")
    assert size == 3
    assert digest
