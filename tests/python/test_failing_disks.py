"""Disks that fill up, fail or disappear, and processes killed while saving: the old file or the new one remains."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

import burtorch as bt

SAVERS = {
    "graph": lambda path: graph_of(8_000).save(path),
    "raw": lambda path: graph_of(8_000).save_raw(path, atomic=True),
    "parameters": lambda path: params_of(20_000).save(path),
    "model": lambda path: bt.nn.Linear(bt.Parameters(), 200, 100).save(path),
}


def graph_of(n):
    graph = bt.Graph()
    graph.vector([0.5] * n)
    return graph


def params_of(n):
    params = bt.Parameters(dtype="float64")
    params.tensor(n)
    return params


@pytest.fixture
def disk(tmp_path):
    """A file system of 256 KiB in memory; skipped without permission to mount."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount program here")
    if done.returncode != 0:
        pytest.skip(f"mounting a tmpfs is not permitted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("what", SAVERS)
def test_a_full_disk_is_an_oserror_and_the_old_file_stays(disk, what):
    path = disk / "x"
    graph_of(100).save(path)
    before = path.read_bytes()
    (disk / "junk").write_bytes(bytes(220_000))
    with pytest.raises(OSError, match=str(path)) as caught:
        SAVERS[what](path)
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(path)
    assert path.read_bytes() == before
    assert sorted(entry.name for entry in disk.iterdir()) == ["junk", "x"]
    (disk / "junk").unlink()
    SAVERS[what](path)
    assert path.stat().st_size > 60_000


@pytest.mark.parametrize("what", SAVERS)
def test_a_read_only_disk_is_an_oserror(disk, what):
    path = disk / "x"
    graph_of(10).save(path)
    before = path.read_bytes()
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    for target in (path, disk / "new"):
        with pytest.raises(OSError) as caught:
            SAVERS[what](target)
        assert caught.value.errno == errno.EROFS
    assert path.read_bytes() == before
    assert len(bt.load_graph(path)) == 10


@pytest.mark.parametrize("what", SAVERS)
def test_a_missing_folder_a_folder_and_a_full_device(tmp_path, what):
    with pytest.raises(FileNotFoundError) as caught:
        SAVERS[what](tmp_path / "no" / "x")
    assert caught.value.filename == str(tmp_path / "no" / "x")
    with pytest.raises(IsADirectoryError):
        SAVERS[what](tmp_path)
    if Path("/dev/full").exists():
        with pytest.raises(OSError) as caught:
            SAVERS[what]("/dev/full")
        assert caught.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


def test_a_protected_file_is_not_replaced(tmp_path):
    path = tmp_path / "x"
    graph_of(3).save(path)
    path.chmod(0o444)
    if os.geteuid() == 0:
        pytest.skip("the administrator may write protected files")
    with pytest.raises(PermissionError):
        graph_of(4).save(path)
    assert len(bt.load_graph(path)) == 3


def test_loading_a_missing_file_creates_none(tmp_path):
    path = tmp_path / "x"
    graph = graph_of(2)
    for load in (graph.load, graph.load_raw, bt.load_graph, bt.load_parameters, params_of(1).load):
        with pytest.raises(FileNotFoundError):
            load(path)
    with pytest.raises(FileNotFoundError):
        graph.load_raw(path, mmap=True)
    with pytest.raises(IsADirectoryError):
        bt.load_graph(tmp_path)
    assert list(tmp_path.iterdir()) == []


TOO_LONG = """
import os, resource, sys
import burtorch as bt

path = sys.argv[1]
graph = bt.Graph()
graph.vector([0.5] * 10)
graph.save(path)
graph.vector([0.25] * 8000)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
for save in (lambda: graph.save(path), lambda: graph.save_raw(path, atomic=True)):
    try:
        save()
    except OSError as error:
        print(error.errno, error.filename == path, len(bt.load_graph(path)))
print(os.listdir(os.path.dirname(path)))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of the size of files")
def test_a_write_that_stops_half_way_is_an_oserror_and_the_old_file_stays(tmp_path):
    done = subprocess.run([sys.executable, "-c", TOO_LONG, str(tmp_path / "x")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{errno.EFBIG} True 10"] * 2 + ["['x']"]


KILLED = """
import os, random, signal, sys, time
import burtorch as bt

path, n = sys.argv[1], int(sys.argv[2])
draw = random.Random(7)
graph = bt.Graph()
x = graph.vector([0.0] * 3000)
graph.save(path)
lost = seen = turn = 0
while turn < n or (seen <= 10 and turn < 10 * n):  # a busy machine is seldom met in the middle of a save
    turn += 1
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        x.data = [turn + 0.5] * 3000
        os.write(write, b"!")
        while True:
            graph.save(path, durable=turn % 25 == 0)  # waiting for a busy disk takes long
    os.read(read, 1)
    os.close(read), os.close(write)
    time.sleep(draw.random() * 0.006)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    try:
        content = bt.load_graph(path).raw_bytes()
        lost += content != 3000 * content[:8]
    except (OSError, bt.FormatError):
        lost += 1
    left = [name for name in os.listdir(os.path.dirname(path)) if name.endswith(".partial")]
    seen += bool(left)
    for name in left:
        os.remove(os.path.join(os.path.dirname(path), name))
print(turn, lost, seen)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_200_kills_lose_no_file(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "graph"), "200"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    killed, lost, interrupted = map(int, done.stdout.split())
    assert killed >= 200
    assert lost == 0
    # Some of the kills interrupted a save.
    assert interrupted > 10
