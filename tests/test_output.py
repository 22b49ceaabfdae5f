"""Writing files and folders."""

import errno
import os
import resource
import stat
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

import likewise as lw
from likewise._output import check_output, is_standard_output, remove_leftovers, writing
from likewise.models.storage import write_json, write_tensors


def write(path, text="new", **options):
    with writing(path, **options) as part:
        part.write_text(text)


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file.txt"
    write(path, "old")
    with pytest.raises(KeyboardInterrupt), writing(path) as part:  # noqa: PT012
        part.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_overwritten_unless_allowed(tmp_path):
    path = tmp_path / "file.txt"
    write(path, "old", overwrite=False)
    for attempt in (check_output, write):
        with pytest.raises(FileExistsError, match="already exists; --force replaces it") as caught:
            attempt(path, overwrite=False)
        assert caught.value.filename == str(path)
    with pytest.raises(FileExistsError), writing(tmp_path / "late", overwrite=False) as part:  # noqa: PT012
        part.write_text("ours")
        (tmp_path / "late").write_text("theirs")  # created while we were writing
    assert (tmp_path / "late").read_text() == "theirs"
    assert path.read_text() == "old"
    write(path, "new")
    assert path.read_text() == "new"
    assert len(list(tmp_path.iterdir())) == 2


def test_without_hard_links_nothing_is_overwritten_either(tmp_path, monkeypatch):
    def cannot(*paths):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", cannot)
    write(tmp_path / "a", overwrite=False)
    assert (tmp_path / "a").read_text() == "new"
    with pytest.raises(FileExistsError), writing(tmp_path / "b", overwrite=False) as part:  # noqa: PT012
        part.write_text("ours")
        (tmp_path / "b").write_text("theirs")
    assert (tmp_path / "b").read_text() == "theirs"


def test_permissions_are_kept(tmp_path):
    path = tmp_path / "file.txt"
    mask = os.umask(0o027)
    try:
        write(path)
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o604)
    owner = 1234 if os.getuid() == 0 else os.getuid()
    os.chown(path, owner, -1)
    write(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o604
    assert path.stat().st_uid == owner


@pytest.mark.skipif(os.getuid() == 0, reason="root may write to any file")
def test_a_file_that_may_not_be_written_is_refused(tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("old")
    path.chmod(0o444)
    with pytest.raises(PermissionError, match="cannot be written to"):
        write(path)
    path.chmod(0o644)
    tmp_path.chmod(0o555)
    with pytest.raises(PermissionError, match="its folder"):
        check_output(path)
    tmp_path.chmod(0o755)


def test_links_are_followed(tmp_path):
    (tmp_path / "there").mkdir()
    real, link, chain = tmp_path / "there" / "real.txt", tmp_path / "link", tmp_path / "chain"
    link.symlink_to("there/real.txt")
    chain.symlink_to(link)
    write(chain, "through a link to what is absent")
    assert chain.is_symlink()
    assert link.is_symlink()
    assert real.read_text() == "through a link to what is absent"
    write(link)
    assert real.read_text() == "new"
    assert not real.is_symlink()
    assert [entry.name for entry in real.parent.iterdir()] == ["real.txt"]
    with pytest.raises(FileExistsError):
        write(link, overwrite=False)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(OSError, match="symbolic links"):
        write(loop)
    (tmp_path / "nowhere").symlink_to(tmp_path / "none" / "file")
    with pytest.raises(FileNotFoundError, match="its folder does not exist"):
        write(tmp_path / "nowhere")


def test_a_pipe_is_written_through(tmp_path):
    path, received = tmp_path / "pipe", []
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: received.append(path.read_bytes()))
    reader.start()
    write(path, "x" * 200_000, overwrite=False)  # more than a pipe holds at once
    reader.join(60)
    assert received == [b"x" * 200_000]
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_devices_stay_what_they_are(tmp_path):
    null = tmp_path / "null"
    try:
        os.mknod(null, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        os.mknod(tmp_path / "full", stat.S_IFCHR | 0o666, os.makedev(1, 7))
        null.write_text("")
    except PermissionError:
        pytest.skip("only root makes devices, and not everywhere")
    write(null, overwrite=False)
    assert stat.S_ISCHR(null.stat().st_mode)
    with pytest.raises(OSError, match="No space left") as caught:
        write(tmp_path / "full")
    assert caught.value.filename == str(tmp_path / "full")
    assert stat.S_ISCHR((tmp_path / "full").stat().st_mode)


def test_folders_and_sockets_are_refused(tmp_path):
    import socket

    with pytest.raises(IsADirectoryError, match="is a folder"):
        write(tmp_path)
    with pytest.raises(FileNotFoundError, match="its folder does not exist"):
        write(tmp_path / "none" / "a")
    with socket.socket(socket.AF_UNIX) as listener:
        folder = os.open(tmp_path, os.O_RDONLY)
        listener.bind(f"/proc/self/fd/{folder}/s")  # the whole path may be too long for a socket
        os.close(folder)
        with pytest.raises(OSError, match="neither a regular file nor a pipe"):
            write(tmp_path / "s")
    assert stat.S_ISSOCK((tmp_path / "s").stat().st_mode)


def test_a_long_name(tmp_path):
    path = tmp_path / ("ä" * 127)  # 254 bytes
    write(path)
    assert path.read_text() == "new"


def test_leftovers_of_the_dead_are_removed(tmp_path):
    path = tmp_path / "checkpoint"
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    leftover = tmp_path / f".checkpoint.{dead.pid}-00112233.part"
    others = [tmp_path / f".checkpoint.{os.getpid()}-00112233.part", tmp_path / f".other.{dead.pid}-00112233.part"]
    for file in (leftover, *others):
        file.write_text("half")
    remove_leftovers(path)
    assert sorted(tmp_path.iterdir()) == sorted(others)
    remove_leftovers(tmp_path / "none" / "checkpoint")


BATCH = lw.Dataset(torch.zeros(2, 4000, 3))
WRITERS = {
    "npz": lambda path: lw.data.write_npz(BATCH, path),
    "ts": lambda path: lw.data.write_ts(BATCH, path),
    "tensors": lambda path: write_tensors(path, {"a": torch.zeros(9999)}),
    "json": lambda path: write_json(path, [0] * 9999),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_writer_follows_links_and_names_the_file_when_the_disk_is_full(tmp_path, name):
    real, link = tmp_path / "real", tmp_path / f"link.{name}"
    link.symlink_to(real)
    WRITERS[name](link)
    assert link.is_symlink()
    before = real.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))  # as a full disk, after 8 kB
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            WRITERS[name](link)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.filename == str(link)
    assert real.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["real", link.name])


def command(*arguments, shell=(), **options):
    code = "from likewise.cli import main; main()"
    return subprocess.run([*shell, sys.executable, "-c", code, *map(str, arguments)], timeout=120, **options)


def test_standard_output(tmp_path):
    data, result = tmp_path / "a.npz", tmp_path / "D.npz"
    np.savez(data, X=np.arange(12.0).reshape(2, 3, 2))
    with result.open("wb") as file:
        run = command("distance", data, "-o", "/dev/stdout", "--json", stdout=file, stderr=subprocess.PIPE)
    assert run.returncode == 0, run.stderr
    assert b'"output": "/dev/stdout"' in run.stderr  # printed text goes elsewhere
    with np.load(result) as saved:
        assert saved["distances"].shape == (2, 2)
    with open("/dev/full", "wb") as full:
        run = command("info", "--json", stdout=full, stderr=subprocess.PIPE)
    assert (run.returncode, run.stderr) == (1, b"error: [Errno 28] No space left on device\n")
    assert not is_standard_output(data)


def test_a_closed_standard_output_is_an_error():
    run = command("info", stderr=subprocess.PIPE, shell=("sh", "-c", 'exec "$0" "$@" >&-'))
    assert (run.returncode, run.stderr) == (1, b"error: standard output is closed\n")
