"""What tests in the lab share: the running lab, and a second one that may be broken."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from lab import state
from lab.cache import locked
from lab.lab import Lab
from lab.settings import Settings
from tests.lab.pair import Pair
from tests.lab.project import Project
from tests.lab.trio import Trio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHECKOUT = Path(__file__).resolve().parents[2]
Completed = subprocess.CompletedProcess[str]


def eventually(condition: Callable[[], bool], *, seconds: float = 20) -> bool:
    """Whether something becomes so in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


@pytest.fixture(scope="session")
def lab() -> Lab:
    """The lab of the checkout's inventory, brought up or repaired; it stays up after the tests.

    Tests that break a host mend it, or use `spare_lab`.
    """
    running = Lab()
    if not state.inside(running.settings):
        running.up(CHECKOUT / "inventory.py")
    return running


@pytest.fixture(scope="session")
def on_control(lab: Lab) -> Callable[..., Completed]:
    """Runs a command on the control side; takes the words of the command and options of subprocess.run."""

    def run(*argv: str, **options: Any) -> Completed:
        return lab.on_control(argv, **{"cwd": CHECKOUT, **options})

    return run


@pytest.fixture(scope="session")
def on_node(lab: Lab) -> Callable[..., Completed]:
    """Runs Python on qfox with this checkout and its packages: a control machine that is a node as well.

    Takes the words after `python3`, such as ("-m", "pyinfra", ...), and options of subprocess.run.
    """
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the packages of this Python do not fit the Python 3.11 of the lab's hosts")
    node, place = lab.host("qfox"), "/srv/tailtrain"
    node.run("rm", "-rf", place)
    node.run("mkdir", "-p", place)
    node.put(Path(pytest.__file__).resolve().parents[1], f"{place}/packages")
    for part in ("tailtrain", "lab", "deploys", "templates", "group_data", "locks"):
        node.put(CHECKOUT / part, f"{place}/checkout/{part}")
    for file in ("inventory.py", "config.py", "pyproject.toml"):
        text = (CHECKOUT / file).read_text()
        node.run("tee", f"{place}/checkout/{file}", input=text, stdin=None)

    def run(*argv: str, **options: Any) -> Completed:
        path = f"{place}/packages:{place}/checkout"
        script = f"cd {place}/checkout; PYTHONPATH={path} exec python3 {shlex.join(argv)}"
        return node.run("sh", "-euc", script, **options)

    return run


class SpareLab(Lab):
    """A second, small lab, made and broken through the command line, beside the one that others use."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(Settings(name=name))
        self._inventory = folder / "inventory.py"
        self.declare(alpha=3, beta=1)

    def declare(self, **cores: float) -> None:
        """Write the inventory: hosts, the first of them primary, with their cores; 1 GB of memory each."""
        entries = [
            (f"@tailscale/{name}", {"cores": count, "ram_gb": 1, "storage_gb": 10})
            for name, count in cores.items()
        ]
        self._inventory.write_text(f"primary = {entries[:1]!r}\ncompute = {entries[1:]!r}\n")

    def command(self, *words: str) -> list[str]:
        """A command line of this lab."""
        return [sys.executable, "-m", "lab", "--name", self.settings.name, *words]

    def make(self, *options: str) -> Completed:
        """`lab up` with the inventory as it was last declared."""
        return self.cli("up", "--inventory", str(self._inventory), *options)

    def cli(self, *words: str, check: bool = True) -> Completed:
        """Run a command of this lab and give what it printed."""
        done = subprocess.run(self.command(*words), cwd=CHECKOUT, check=False, capture_output=True, text=True)
        if check:
            assert done.returncode == 0, done.stderr
        return done


@pytest.fixture(scope="session")
def _spare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SpareLab]:
    if state.inside(Settings.from_environment()):
        pytest.skip("makes a lab of its own, so it needs the machine itself, not `lab exec`")
    with locked(Path("/run/lock/tailtrain-spare-tests.lock")):  # one test run at a time
        spare = SpareLab("spare", tmp_path_factory.mktemp("spare"))
        spare.cli("down")
        yield spare
        spare.cli("down")


@pytest.fixture
def spare_lab(_spare: SpareLab) -> SpareLab:
    """A lab with the hosts alpha (3 cores) and beta (1 core), up and whole, for tests to break."""
    _spare.declare(alpha=3, beta=1)
    _spare.make()
    return _spare


@pytest.fixture(scope="session")
def project(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose inventory is the checkout's, with a training that takes a minute."""
    return Project(lab, tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="session")
def trained(project: Project) -> str:
    """What a first whole run says."""
    return project.deploy("-y")


_Small = TypeVar("_Small", bound=Pair)


def small_lab(make: Callable[[Path], _Small], folder: Path) -> Iterator[_Small]:
    """A small lab with nothing on its hosts yet, and a project for it; taken down in the end."""
    if state.inside(Settings.from_environment()):
        pytest.skip("makes a lab of its own, so it needs the machine itself, not `lab exec`")
    found = make(folder)
    with locked(Path(f"/run/lock/tailtrain-{found.lab.settings.name}-tests.lock")):  # one test run at a time
        found.lab.down()
        found.lab.up(found.folder / "inventory.py")
        yield found
        found.lab.down()


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    """Three hosts that may be broken, and a storage backend's project."""
    yield from small_lab(Trio, tmp_path_factory.mktemp("trio"))


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two hosts, and a project for them."""
    yield from small_lab(Pair, tmp_path_factory.mktemp("pair"))
