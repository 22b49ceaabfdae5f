"""Write files and folders atomically: a result is complete or absent, and nothing is overwritten unless asked.

A file is written under another name beside its target, made durable and renamed: readers see the old file or the new
one. A symbolic link is followed. A pipe, a character device such as /dev/null, and an open descriptor such as
/dev/stdout are written through. Folders, block devices and sockets are refused.
"""

import errno
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

MOST_LINKS = 40  # as in Linux
LONGEST_NAME = 200  # bytes of the target's name that its temporary file keeps; file systems allow 255


@contextmanager
def writing(path: str | os.PathLike[str], *, overwrite: bool = True) -> Iterator[Path]:
    """Give a temporary path to write to; when the block ends without an error, it becomes ``path``.

    overwrite: whether an existing file may be replaced; its permissions are kept. An OSError names ``path``.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with writing(Path(folder, "a.txt")) as part:
        ...         _ = part.write_text("whole")
        ...     Path(folder, "a.txt").read_text(), len(os.listdir(folder))
        ('whole', 1)
    """
    path = Path(path)
    target, through = _target(path, overwrite)
    folder = Path(tempfile.gettempdir()) if through else target.parent
    part = folder / f".{_shortened(target.name)}.{os.getpid()}-{token_hex(4)}.part"
    try:
        yield part
        if through:
            _pour(part, target)
        else:
            _finish(part, target, overwrite)
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(part)):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        part.unlink(missing_ok=True)


def check_output(path: str | os.PathLike[str], *, overwrite: bool = True) -> None:
    """Raise the errors of ``writing`` early, before a result is computed.

    Example:
        >>> check_output("/")
        Traceback (most recent call last):
        IsADirectoryError: [Errno 21] is a folder; give the name of a file: '/'
    """
    target, through = _target(Path(path), overwrite)
    if not through and not os.access(target.parent, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, f"its folder {target.parent} cannot be written to", str(path))


@contextmanager
def writing_folder(
    path: str | os.PathLike[str], *, overwrite: bool = True, known: Collection[str] = ()
) -> Iterator[Path]:
    """Give a temporary folder to fill; when the block ends without an error, it becomes ``path``.

    overwrite: whether an existing folder may be replaced. known: the names of the files that it may have; a folder with
        other files is never replaced, since these would be lost.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with writing_folder(Path(folder, "run")) as part:
        ...         _ = (part / "a.txt").write_text("whole")
        ...     os.listdir(folder), os.listdir(Path(folder, "run"))
        (['run'], ['a.txt'])
    """
    check_output_folder(path, overwrite=overwrite, known=known)
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{_shortened(target.name)}.{os.getpid()}-{token_hex(4)}.part")
    part.mkdir()
    try:
        yield part
        check_output_folder(path, overwrite=overwrite, known=known)  # it may have been created meanwhile
        replace_folder(part, target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def replace_folder(part: Path, target: Path) -> None:
    """Rename a finished folder to ``target``, replacing an existing folder.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("new", "old"):
        ...         Path(folder, name).mkdir()
        ...         Path(folder, name, name).touch()
        ...     replace_folder(Path(folder, "new"), Path(folder, "old"))
        ...     os.listdir(folder), os.listdir(Path(folder, "old"))
        (['old'], ['new'])
    """
    old = target.with_name(f".{_shortened(target.name)}.{os.getpid()}-{token_hex(4)}.old")
    if target.is_dir():
        target.rename(old)
    try:
        part.rename(target)
    except OSError:
        if old.is_dir():
            old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def check_output_folder(path: str | os.PathLike[str], *, overwrite: bool = True, known: Collection[str] = ()) -> None:
    """Raise the errors of ``writing_folder`` early, before a result is computed.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Path(folder, "a.txt").touch()
        ...     check_output_folder(folder, overwrite=False)
        Traceback (most recent call last):
        FileExistsError: [Errno 17] is not empty; --force replaces it: ...
    """
    if not os.path.lexists(path):
        return
    if not os.path.isdir(path):
        raise NotADirectoryError(errno.ENOTDIR, "is a file; give the name of a folder", str(path))
    found = sorted(os.listdir(path))
    if found and not overwrite:
        raise FileExistsError(errno.EEXIST, "is not empty; --force replaces it", str(path))
    strangers = [name for name in found if name not in known]
    if strangers:
        text = f"has {strangers[0]}, which would be lost; move it, or give another folder"
        raise OSError(errno.ENOTEMPTY, text, str(path))


def is_standard_output(path: str | os.PathLike[str]) -> bool:
    """Whether a path leads to this process's standard output; nothing else should then be printed there."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(1)) and _target(Path(path), True)[1]
    except OSError:
        return False


def remove_leftovers(path: str | os.PathLike[str]) -> None:
    """Remove the temporary files of ``path`` whose writers were killed."""
    path = Path(os.path.realpath(path))
    pattern = re.compile(rf"\.{re.escape(_shortened(path.name))}\.(\d{{1,9}})-[0-9a-f]{{8}}\.part")
    with suppress(OSError):
        for entry in list(os.scandir(path.parent)):
            match = pattern.fullmatch(entry.name)
            if match and not _is_running(int(match[1])):
                with suppress(FileNotFoundError):
                    os.unlink(entry.path)


def _target(path: Path, overwrite: bool) -> tuple[Path, bool]:
    """The file that a path leads to, and whether to write through it instead of replacing it."""
    target, descriptor = _follow(path)
    try:
        found = os.stat(path)
    except FileNotFoundError:
        if not target.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, "its folder does not exist", str(path)) from None
        return target, False
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "is a folder; give the name of a file", str(path))
    if descriptor or stat.S_ISFIFO(found.st_mode) or stat.S_ISCHR(found.st_mode):
        return path, True
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "is neither a regular file nor a pipe", str(path))
    if not overwrite:
        raise FileExistsError(errno.EEXIST, "already exists; --force replaces it", str(path))
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "cannot be written to", str(path))
    return target, False


def _follow(path: Path) -> tuple[Path, bool]:
    """The end of a chain of symbolic links, and whether one of them is an open descriptor (/dev/stdout, /dev/fd/3)."""
    path = Path(os.path.realpath(path.parent), path.name)
    for _ in range(MOST_LINKS):
        if not path.is_symlink():
            return path, False
        if path.parts[:2] == ("/", "proc"):
            return path, True
        linked = path.parent / os.readlink(path)
        path = Path(os.path.realpath(linked.parent), linked.name)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def _finish(part: Path, target: Path, overwrite: bool) -> None:
    """Give a finished temporary file the permissions, and then the name, of its target."""
    with suppress(FileNotFoundError):
        old = target.stat()
        if hasattr(os, "chown"):
            with suppress(PermissionError):  # only root may change the owner
                os.chown(part, old.st_uid, old.st_gid)
        os.chmod(part, stat.S_IMODE(old.st_mode))
    with part.open("rb") as file:
        os.fsync(file.fileno())
    if overwrite:
        part.replace(target)
    else:
        _link_new(part, target)
    with suppress(OSError):  # not supported by some file systems
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _link_new(part: Path, target: Path) -> None:
    """Name a file without ever replacing another one, which may have been created meanwhile."""
    try:
        os.link(part, target)
    except FileExistsError:
        raise FileExistsError(errno.EEXIST, "already exists; --force replaces it", str(target)) from None
    except OSError:  # the file system has no hard links
        _target(target, overwrite=False)
        part.replace(target)


def _pour(part: Path, target: Path) -> None:
    """Copy a file into a pipe, a device or an open descriptor."""
    with part.open("rb") as source, _stream(target) as stream:
        shutil.copyfileobj(source, stream, 1 << 20)


def _stream(target: Path) -> BinaryIO:
    """Open a pipe or a device; our own descriptor is duplicated, which keeps its position."""
    descriptor = _follow(target)[0]
    if descriptor.parent == Path(f"/proc/{os.getpid()}/fd") and descriptor.name.isdecimal():
        sys.stdout.flush()
        return os.fdopen(os.dup(int(descriptor.name)), "wb")
    return open(target, "ab" if descriptor.is_symlink() else "wb")


def _shortened(name: str) -> str:
    return os.fsdecode(os.fsencode(name)[:LONGEST_NAME])


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to another user
        return True
    return True
