"""How Snakemake was called, which it doesn't say itself while it parses a Snakefile."""

import contextlib
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_OTHER_ENDS = (
    *("dryrun", "touch", "unlock", "lint", "list_target_rules", "list_rules", "print_compilation"),
    *("containerize", "reporter", "report", "generate_unit_tests", "dag", "rulegraph", "filegraph", "d3dag"),
    *("cleanup_metadata", "conda_cleanup_envs", "conda_create_envs_only", "list_conda_envs"),
    *("cleanup_shadow", "container_cleanup_images", "list_changes", "list_input_changes"),
    *("list_params_changes", "list_untracked", "summary", "detailed_summary", "archive"),
    *("delete_all_output", "delete_temp_output", "deploy_sources"),
)
"""Options with which Snakemake runs no job."""

_PLAIN = re.compile(r"""(["']?)([\w.@:+-]+)\1""")
"""A name, in quotes or not; not an expression such as 2*input.size_mb."""


@dataclass(frozen=True)
class Call:
    """What a call of Snakemake is for."""

    may_write: bool = False
    """Whether files may be tidied up and renewed: not in a dry run, which may go beside a real one."""
    runs: bool = False
    """Whether jobs will be started."""
    executor: str = "local"
    defaults: Mapping[str, int | str] = field(default_factory=dict)
    """Resources that a profile or the command line gives to every cell; empty text for an expression."""
    status_command: str = ""
    """By which the Slurm executor asks how its jobs are; empty where nobody chose."""


def this_call(arguments: Sequence[str]) -> Call:
    """What Snakemake is called for by these arguments (without the program's name), profiles included."""
    from snakemake.cli import parse_args  # loaded already, where this is asked

    try:
        with contextlib.redirect_stderr(io.StringIO()):
            _, options = parse_args(list(arguments))
    except (Exception, SystemExit):  # called by another program, whose arguments these are
        return Call(may_write=not is_dry_run(arguments))
    runs = not any(getattr(options, name, None) for name in _OTHER_ENDS)
    try:
        given = _given(options)
    except Exception:  # how Snakemake keeps resources is nobody's promise
        given = {}
    status = getattr(options, "slurm_status_command", "")
    return Call(
        may_write=not options.dryrun,
        runs=runs,
        executor=options.executor or "local",
        defaults=given,
        status_command=status if isinstance(status, str) else "",
    )


def _given(options: Any) -> dict[str, int | str]:
    """What default-resources, and set-resources for rule cell, say."""
    from snakemake.resources import Resources

    given: dict[str, int | str] = {}
    for resources in (options.default_resources, options.set_resources.get("cell")):
        for name, resource in (resources or {}).items():
            value = resource.raw
            if value in Resources.DEFAULTS["full"].values():
                continue  # Snakemake's own, which nobody chose
            if isinstance(value, int):
                given[name] = value
            elif isinstance(value, str) and (plain := _PLAIN.fullmatch(value)):
                given[name] = plain[2]
            elif value is not None:
                given[name] = ""
    return given


def is_dry_run(arguments: Sequence[str]) -> bool:
    """Whether arguments are those of a dry run."""
    return any(re.fullmatch(r"--dry-?run|-[A-Za-z]*n[A-Za-z]*", argument) for argument in arguments)
