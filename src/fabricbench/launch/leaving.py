"""What a launcher or a rank leaves in the work folder: its log, and why it failed.

Nothing here can change a measurement.
"""

import contextlib
import ctypes
import json
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

from fabricbench.errors import FabricbenchError
from fabricbench.launch.base import RANK_LOG

PR_SET_NAME = 15
ERROR = "error.json"
"""{who, message, traceback} of the first failure, in the work folder."""


def become_rank(rank: int, work: Path) -> None:
    """Name this process after its rank, and give it a log of its own.

    So what libraries print is known by rank, and never interleaved.
    """
    ctypes.CDLL(None).prctl(PR_SET_NAME, f"fb-rank-{rank}".encode())
    descriptor = os.open(work / RANK_LOG.format(rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)


def leave_error(work: Path, who: str, error: BaseException, *, is_cause: bool = False) -> None:
    """Write who failed and why where the runner looks, with the traceback, and print it to the log.

    The first failure stays, since what follows in other ranks are its consequences; `is_cause` overrides.
    """
    text = "".join(traceback.format_exception(error))
    print(f"{who} failed:\n{text}", file=sys.stderr, flush=True)
    message = str(error) if isinstance(error, FabricbenchError) else f"{type(error).__name__}: {error}"
    temporary = work / f"error-{who.replace(' ', '-')}"
    content = json.dumps({"who": who, "message": message, "traceback": text})
    temporary.write_text(content, encoding="utf-8")
    if is_cause:
        os.replace(temporary, work / ERROR)
        return
    with contextlib.suppress(FileExistsError):
        try:
            os.link(temporary, work / ERROR)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links; then a reader may see a part of the text
            with (work / ERROR).open("x", encoding="utf-8") as file:
                file.write(content)


@contextlib.contextmanager
def report_launch_error(work: Path) -> Iterator[None]:
    """Leave whatever stops the launcher itself where the runner looks, and exit with 1."""
    try:
        yield
    except Exception as error:
        leave_error(work, "launcher", error)
        sys.exit(1)
