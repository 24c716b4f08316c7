"""pyinfra's own way to send a folder: `files.put` for each file of it."""

from __future__ import annotations

from pathlib import Path

from pyinfra import host
from pyinfra.operations import files

for path in sorted(Path(host.data.source).iterdir()):
    files.put(name=f"Put {path.name}", src=str(path), dest=f"{host.data.target}/{path.name}")
