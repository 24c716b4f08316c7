"""A question to a node and its answer: small on the way, whatever a login shell prints around it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tailtrain.data import send

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

PROGRAM = '''
"""Says what it was asked, and more."""
import json, sys

def main():
    request = json.loads(sys.stdin.buffer.readline())
    print("a line that is no answer")
    print(json.dumps({"asked": request, "long": "0123456789abcdef" * 4000, "word": "Gr\\u00fc\\u00dfe"}))
    return 3
'''


@pytest.fixture
def module(tmp_path: Path) -> ModuleType:
    path = tmp_path / "echoing.py"
    path.write_text(PROGRAM)
    spec = importlib.util.spec_from_file_location("echoing", path)
    assert spec
    assert spec.loader
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def ask(module: ModuleType, request: Any, around: str = "{}") -> subprocess.CompletedProcess[bytes]:
    argv = ["sh", "-c", around.format(send.ask_command(sys.executable))]
    return subprocess.run(argv, input=send.question([module], request), capture_output=True, check=False)


def test_the_answer_is_the_last_line_and_the_exit_code_the_modules_own(module: ModuleType) -> None:
    done = ask(module, {"sizes": [1, 2, 3], "word": "naïve"})
    assert done.returncode == 3
    assert done.stderr == b""
    found = send.answer(done.stdout.decode())
    assert found["asked"] == {"sizes": [1, 2, 3], "word": "naïve"}
    assert found["word"] == "Grüße"


def test_what_a_login_shell_prints_does_no_harm(module: ModuleType) -> None:
    done = ask(module, 1, around="echo Welcome; {}; echo; echo")
    assert send.answer(done.stdout.decode())["asked"] == 1


def test_question_and_answer_are_small(module: ModuleType) -> None:
    sizes = {f"{number:064x}": number for number in range(600)}
    assert len(send.question([module], sizes)) < 600 * 64 / 2
    assert len(ask(module, {}).stdout) < 2000


@pytest.mark.parametrize("said", ["", "\n", "Welcome!\n", "AAAA\n", '{"a": 1}\n', "bash: python3: not found"])
def test_other_output_is_no_answer(said: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        send.answer(said)
