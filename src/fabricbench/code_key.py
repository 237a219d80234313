"""The code key: a digest of the code that a cell's program runs.

Only what can change a measurement counts: the syntax, without comments, docstrings and `pass`, of the
workload's folder, of what all ranks share, and of what starts them. Not the record, provenance, analysis
or report. The dump of a syntax tree is made here rather than by `ast.dump`, without empty fields, so that
one source has one key under Python 3.11 to 3.14 (later versions add fields that are empty for older code).
"""

import ast
import hashlib
from functools import cache
from pathlib import Path

from fabricbench.errors import FabricbenchError

PACKAGE = Path(__file__).resolve().parent

SHARED_BY_RANKS = ("workloads/*.py", "cores.py")
START_OF_RANKS = ("launch/base.py", "launch/asking.py")
_FORKED = ("launch/ranks.py", "launch/pmi.py")
_IN_A_JOB = (
    *("launch/step.py", "launch/task.py", "launch/rollcall.py", "launch/addresses.py"),
    *("launch/starters.py", "launch/nodes.py"),
)
LAUNCHERS = {
    "emulated": (*_FORKED, "launch/emulated.py", "launch/building.py", "fabrics/emulation.py"),
    "host": (*_FORKED, "launch/host.py"),
    "slurm": _IN_A_JOB,
    "allocation": _IN_A_JOB,
}

_REDUNDANT = ("ctx", "kind")
"""Fields of syntax trees: ctx follows from where a name stands, kind is the `u` of u'…'."""


@cache
def code_key(kind: str, launcher: str) -> str:
    """The key (hex SHA-256) of a workload's kind started by a launcher, for the installed package."""
    return digest_tree(PACKAGE, kind, launcher)


def digest_tree(root: Path, kind: str, launcher: str) -> str:
    """The key of a tree of sources below `root`; file names relative to it count.

    Raises FabricbenchError when the workload's folder or the launcher doesn't exist.
    """
    digest = hashlib.sha256()
    for name in measured_files(root, kind, launcher):
        try:
            syntax = _syntax_digest((root / name).read_text(encoding="utf-8"))
        except SyntaxError as error:
            raise FabricbenchError(f"{root / name}:{error.lineno}: {error.msg}; mend the code") from None
        digest.update(f"{name} {syntax}\n".encode())
    return digest.hexdigest()


def measured_files(root: Path, kind: str, launcher: str) -> list[str]:
    """The files that count, relative to `root`, sorted; those that don't exist are left out."""
    folder = root / "workloads" / kind
    if not folder.is_dir():
        raise FabricbenchError(f"workload kind {kind}: its folder {folder} doesn't exist")
    if launcher not in LAUNCHERS:
        raise FabricbenchError(f"launcher {launcher}: not one of {', '.join(LAUNCHERS)}")
    starting = (root / name for name in START_OF_RANKS + LAUNCHERS[launcher])
    shared = (path for pattern in SHARED_BY_RANKS for path in root.glob(pattern))
    paths = {*folder.rglob("*.py"), *shared, *starting}
    return sorted(path.relative_to(root).as_posix() for path in paths if path.is_file())


@cache
def _syntax_digest(source: str) -> str:
    pieces: list[str] = []
    _dump(ast.parse(source), pieces)
    return hashlib.sha256("".join(pieces).encode()).hexdigest()


def _dump(node: object, pieces: list[str]) -> None:
    """Append a syntax tree as text: names of nodes, and fields but for empty and redundant ones."""
    if isinstance(node, ast.AST):
        pieces.append(f"{type(node).__name__}(")
        for name in node._fields:
            value = getattr(node, name, None)
            if name in _REDUNDANT or value is None or value == []:
                continue
            pieces.append(f"{name}=")
            _dump(value, pieces)
        pieces.append(")")
    elif isinstance(node, list):
        pieces.append("[")
        for item in node:
            if not _without_effect(item):
                _dump(item, pieces)
                pieces.append(",")
        pieces.append("]")
    else:
        pieces.append(ascii(node))


def _without_effect(node: object) -> bool:
    """Whether a statement does nothing: docstrings, other texts that stand alone, and `pass`."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return isinstance(node.value.value, str)
    return isinstance(node, ast.Pass)
