"""The lab's parts that need no root: what it reads, how it divides the machine, what it keeps."""

from __future__ import annotations

import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab import cgroups, filters, rates, slow, state, system
from lab.cache import digest, locked, made, prune
from lab.environment import choose_lock
from lab.inventory import Hardware, HostSpec, read_inventory
from lab.lab import Lab
from lab.settings import CONTROL, Settings
from lab.shares import memory_limits, processor_quotas
from lab.state import HostState, LabState, Process
from tailtrain.errors import LabError

CHECKOUT = Path(__file__).resolve().parents[3]


def write(folder: Path, text: str) -> Path:
    path = folder / "inventory.py"
    path.write_text(text)
    return path


def test_the_checkouts_inventory_is_read_in_its_order() -> None:
    hosts = read_inventory(CHECKOUT / "inventory.py")
    assert [host.name for host in hosts][:2] == ["qfox", "architect"]
    assert hosts[0].hardware == Hardware(cores=16, ram_gb=32, gpu=True, storage_gb=800)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("primary = []", "no host is declared"),
        ("import nothing_of_this_name", "fails with ModuleNotFoundError"),
        ("primary = ['@tailscale/a']", "declared with its hardware"),
        ("primary = [('@tailscale/A_b', {'cores': 1, 'ram_gb': 1})]", "not a host name"),
        ("primary = [('@tailscale/a', {'cores': 0, 'ram_gb': 1})]", "a: cores: wrong value (found 0"),
        ("primary = [('@tailscale/a', {'cores': True, 'ram_gb': 1})]", "found True"),
        ("primary = [('@tailscale/a', {'cores': 1})]", "a: ram_gb: wrong value (found None"),
        ("primary = compute = [('@tailscale/a', {'cores': 1, 'ram_gb': 1})]", "a: "),
    ],
)
def test_a_wrong_inventory_is_named(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(LabError) as caught:
        read_inventory(write(tmp_path, text))
    assert said in str(caught.value)


def test_a_missing_inventory_says_how_to_name_one(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="--inventory FILE"):
        read_inventory(tmp_path / "inventory.py")


specs = st.lists(
    st.tuples(st.integers(1, 128), st.integers(1, 512)).map(lambda t: Hardware(cores=t[0], ram_gb=t[1])),
    min_size=1,
    max_size=40,
).map(lambda items: [HostSpec(f"host{place}", hardware) for place, hardware in enumerate(items)])


@given(specs, st.integers(1, 256))
def test_quotas_are_in_proportion_and_never_more_than_the_machine_or_the_declaration(
    hosts: list[HostSpec], cores: int
) -> None:
    quotas = processor_quotas(hosts, cores)
    assert sum(quotas.values()) <= cores * 0.95 + 1e-9
    per_core = {quotas[host.name] / host.hardware.cores for host in hosts}
    assert max(per_core) - min(per_core) < 1e-9
    assert max(per_core) <= 1


@given(specs, st.integers(1 << 30, 1 << 40))
def test_memory_limits_are_at_least_a_gibibyte_and_at_most_what_is_declared(
    hosts: list[HostSpec], memory: int
) -> None:
    limits = memory_limits(hosts, memory)
    for host in hosts:
        assert 1 << 30 <= limits[host.name] <= max(1 << 30, int(host.hardware.ram_gb * (1 << 30)))


def test_a_cached_directory_is_made_once_by_however_many_ask(tmp_path: Path) -> None:
    made_by = []
    started = threading.Barrier(4)

    def make(folder: Path) -> None:
        made_by.append(threading.get_ident())
        (folder / "part").write_text("whole")

    def ask() -> str:
        started.wait()
        return (made(tmp_path / "kind", "key", make) / "part").read_text()

    with ThreadPoolExecutor(4) as pool:
        assert [future.result() for future in [pool.submit(ask) for _ in range(4)]] == ["whole"] * 4
    assert len(made_by) == 1
    assert [path.name for path in (tmp_path / "kind").iterdir()] == ["key"]


def test_a_directory_that_was_left_half_made_is_made_anew(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "part").write_text("half")
        raise LabError("the power went")

    with pytest.raises(LabError):
        made(tmp_path, "key", fail)
    assert not (tmp_path / "key").exists()
    found = made(tmp_path, "key", lambda folder: (folder / "other").touch())
    assert [path.name for path in found.iterdir()] == ["other"]


def test_old_entries_leave_the_cache_unless_they_are_in_use(tmp_path: Path) -> None:
    for name in ("old", "used", "new"):
        layer = made(tmp_path / "kind", name, lambda folder: (folder / "layer").mkdir())
        if name != "new":
            os.utime(layer, (0, 0))
    removed = prune(tmp_path, ["kind", "none"], [tmp_path / "kind" / "used" / "layer"], older_than=60)
    assert [path.name for path in removed] == ["old"]
    assert sorted(path.name for path in (tmp_path / "kind").iterdir()) == ["new", "used"]


def test_a_lock_is_held_by_one_and_says_that_it_waits(tmp_path: Path) -> None:
    path, waiting, entered = tmp_path / "lock", threading.Event(), []

    def second() -> None:
        with locked(path, waiting.set):
            entered.append("second")

    with locked(path):
        other = threading.Thread(target=second)
        other.start()
        assert waiting.wait(5)
        entered.append("first")
    other.join()
    assert entered == ["first", "second"]
    assert not path.exists()


def test_the_key_tells_apart_parts_that_read_the_same_together() -> None:
    assert digest("ab", "c") != digest("a", "bc")


def test_the_cpu_lock_is_chosen_where_its_torch_is_found_else_the_cuda_lock(tmp_path: Path) -> None:
    checkout = tmp_path / "projects" / "checkout"
    (checkout / "locks").mkdir(parents=True)
    (checkout / "locks" / "worker-cpu.lock").write_text("torch==2.13.0+cpu \\\n    --hash=sha256:00\n")
    (checkout / "locks" / "worker-cuda.lock").write_text("torch==2.13.0 \\\n    --hash=sha256:00\n")
    assert choose_lock(checkout, None).path.name == "worker-cuda.lock"

    wheels = tmp_path / "projects" / "wheels"
    wheels.mkdir()
    (wheels / "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl").touch()
    chosen = choose_lock(checkout, None)
    assert (chosen.path.name, chosen.wheels) == ("worker-cpu.lock", wheels)
    assert len(chosen.environment_id) == 16

    (tmp_path / "empty").mkdir()
    with pytest.raises(LabError, match=r"expected torch-2\.13\.0\+cpu"):
        choose_lock(checkout, tmp_path / "empty")


def test_what_cannot_be_wrong_with_a_link_is_refused() -> None:
    settings = Settings(name="never")
    with pytest.raises(LabError, match="only a host can be cut off or relayed"):
        filters.cut_off(settings, CONTROL)
    with pytest.raises(LabError, match=r"from 0\.1 to 10000 Mbit/s \(found 0\.01 Mbit/s"):
        rates.limit(settings, CONTROL, 0, 0.01)
    with pytest.raises(LabError, match="at most 10 s"):
        slow.slow_down(settings, 0, 11)


def test_without_root_the_command_to_type_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(LabError, match=r"only root may do\. Type: sudo -E "):
        Lab(Settings(name="never")).down()


def test_missing_tools_are_named_with_the_command_that_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "TOOLS", {"a-program-that-no-machine-has": "some-package"})
    assert "some-package" in system.missing_packages()
    with pytest.raises(LabError, match=r"lacks .*some-package.* Type: python -m lab install"):
        system.require_tools()


def test_a_package_that_tests_alone_need_is_installed_with_its_own_unit_masked_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[list[str]] = []
    monkeypatch.setattr(system, "run", lambda argv, **_: done.append(list(argv)))
    monkeypatch.setattr(shutil, "which", lambda tool, **_: None if tool == "serf" else f"/usr/bin/{tool}")
    assert "serf" not in system.missing_packages()
    assert "serf" in system.install()
    mask, update, install = done
    assert mask[-4:] == ["systemctl", "--root=/", "mask", "serf.service"]
    assert "update" in update
    assert {"install", "serf"} <= set(install)


@pytest.mark.parametrize("name", ["", "../x", "A", "-x", "a" * 64])
def test_a_name_that_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(LabError, match="small letters"):
        Settings(name=name)


def test_the_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    settings = Settings(name="one", state_root=tmp_path)
    assert state.load(settings) is None
    host = HostState(
        spec=HostSpec("a", Hardware(cores=2, ram_gb=4)), index=1, layers=("/x", "/y"), bare=False,
        cpu_quota_cores=0.5, memory_bytes=1 << 30, init=Process(1, 2), address="100.64.0.2",
    )  # fmt: skip
    written = LabState(inventory="/i").with_host(host)
    state.save(settings, written)
    assert state.load(settings) == written
    (tmp_path / "one" / "state.json").write_text('{"format": 1')
    with pytest.raises(LabError, match="damaged"):
        state.load(settings)


def test_a_process_is_not_taken_for_a_later_one_with_its_number() -> None:
    own = Process.of(os.getpid())
    assert own.alive
    assert not Process(own.pid, own.started + 1).alive
    assert not Process(2**22 + 1, own.started).alive


@pytest.fixture
def pure_v2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the files of a machine whose cgroups are all version 2."""
    root = tmp_path / "cgroup"
    for directory in (root, root / "tailtrain-x"):
        directory.mkdir()
        (directory / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
        (directory / "cgroup.subtree_control").touch()
    found = cgroups.Hierarchies(v2=root, v1={})
    monkeypatch.setattr(cgroups, "hierarchies", lambda: found)
    return root


def test_on_pure_version_2_a_host_has_one_directory_with_delegated_controllers(pure_v2: Path) -> None:
    doors = cgroups.create("tailtrain-x", "a")
    assert doors == [pure_v2 / "tailtrain-x" / "a" / "cgroup.procs"]
    for directory in (pure_v2, pure_v2 / "tailtrain-x"):
        assert (directory / "cgroup.subtree_control").read_text() in ("+cpu", "+memory")
    assert cgroups.entrance("tailtrain-x", "a") == [pure_v2 / "tailtrain-x" / "a" / "enter" / "cgroup.procs"]
    cgroups.set_cpu_quota("tailtrain-x", "a", 0.25)
    assert cgroups.cpu_quota("tailtrain-x", "a") == pytest.approx(0.25)
    cgroups.set_cpu_quota("tailtrain-x", "a", None)
    assert cgroups.cpu_quota("tailtrain-x", "a") is None
    cgroups.set_memory_limit("tailtrain-x", "a", 1 << 30)
    assert (pure_v2 / "tailtrain-x" / "a" / "memory.max").read_text() == str(1 << 30)


def test_a_machine_without_the_controller_is_told_so(pure_v2: Path) -> None:
    (pure_v2 / "cgroup.controllers").write_text("memory pids\n")
    with pytest.raises(LabError, match="cannot limit cpu"):
        cgroups.set_cpu_quota("tailtrain-x", "a", 1)
