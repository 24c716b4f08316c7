"""How a worker's Python environment is built on a node: the same commands on a real host and in the lab."""

from __future__ import annotations

FINISHED = ".complete"
"""The file that says that the building of a folder came to its end."""


def build_commands(
    environment: str, lock: str, *, wheels: str | None = None, package_index: str | None = None
) -> tuple[tuple[str, ...], ...]:
    """Commands that build an environment, each a word list, to be run in turn as root.

    Args:
        environment: the folder to build, on the node. A venv knows its own path, so it is built in place;
            what an interrupted building left is removed first.
        lock: the lock file, on the node; pip checks every hash in it.
        wheels: a folder on the node with everything that the lock names, or None.
        package_index: an index besides the ordinary one, or None.
    """
    source: tuple[str, ...] = ()
    if wheels:
        source = ("--no-index", "--find-links", wheels)
    elif package_index:
        source = ("--extra-index-url", package_index)
    pip = (f"{environment}/bin/pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps")
    return (
        ("rm", "-rf", environment),
        ("python3", "-m", "venv", environment),
        (*pip, "--require-hashes", *source, "--requirement", lock),
        ("touch", f"{environment}/{FINISHED}"),
    )
