"""One call of Snakemake per campaign: a second one would tidy up under the first one's hands."""

import errno
import fcntl
import os
import socket
import time
from pathlib import Path

from fabricbench.errors import FabricbenchError

NAME = ".lock"
"""In results/<campaign>; it stays there, held or not."""
TRIES, PAUSE_S = 3, 0.2
"""Whoever only looks holds it for a moment."""

_held: dict[Path, int] = {}
"""By folder, the descriptors that hold this process's locks: the system frees them when it ends, however."""


class InUse(FabricbenchError):
    """Another call holds the campaign."""


def hold(folder: Path) -> None:
    """Take a campaign's lock for the life of this process; `folder` is results/<campaign>.

    Raises InUse, with the holder's host and number, where another process has it. Where the file system has
    no locks (or the folder can't be written, which is said elsewhere) the call goes on without.
    """
    key = folder.resolve()
    if key in _held:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError:
        return
    for attempt in range(TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                os.close(descriptor)
                return
            if attempt == TRIES - 1:
                holder = os.pread(descriptor, 300, 0).decode(errors="replace").strip()
                os.close(descriptor)
                raise InUse(
                    f"{folder / NAME}: another call of Snakemake runs this campaign ({holder or 'unknown'}); "
                    "wait for it or end it, or give this config another name by `campaign`"
                ) from None
            time.sleep(PAUSE_S)
    _held[key] = descriptor
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"host {socket.gethostname()}, process {os.getpid()}\n".encode(), 0)


def may_be_in_use(folder: Path) -> bool:
    """Whether another process holds a campaign; True as well where that can't be known."""
    if folder.resolve() in _held:
        return False
    try:
        descriptor = os.open(folder / NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(descriptor)
