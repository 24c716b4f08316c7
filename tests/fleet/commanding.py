"""Runs commands, one JSON request a line, each in a forked child of a process that is warm.

A request names the folder, the arguments, the program (tailtrain or pyinfra) and further environment; the
reply has the exit code, the output and the errors. Starting Python and importing pyinfra anew for each
command would cost most of a second.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any

import pyinfra_cli  # noqa: F401 - first of all: it has gevent replace the blocking calls
from pyinfra_cli.main import main as pyinfra_main

from tailtrain.cli import main
from tailtrain.fleet import connect, export, session, status  # noqa: F401 - what commands import when they run


def run(folder: str, arguments: list[str], program: str) -> int:
    """The exit code of a command that runs in this process."""
    os.chdir(folder)
    sys.argv = [program, *arguments]
    try:
        if program == "pyinfra":
            warnings.simplefilter("default")  # pyinfra's own are no concern of ours
            pyinfra_main()
        else:
            main(arguments, prog_name=program)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001 - as Python itself does at the top
        traceback.print_exc()
        return 1
    return 0


def reply(
    folder: str,
    arguments: list[str],
    program: str = "tailtrain",
    environment: dict[str, str] | None = None,
) -> dict[str, Any]:
    """What a command gave, run in a child."""
    with tempfile.TemporaryDirectory() as place:
        files = [Path(place) / name for name in ("stdout", "stderr")]
        child = os.fork()
        if child == 0:
            os.environ |= environment or {}
            for number, path in enumerate(files, 1):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), number)
            code = run(folder, arguments, program)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        _, ended = os.waitpid(child, 0)
        stdout, stderr = (path.read_text() for path in files)
    return {"exit_code": os.waitstatus_to_exitcode(ended), "stdout": stdout, "stderr": stderr}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(reply(**json.loads(line))), flush=True)
