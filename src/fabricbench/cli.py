"""`fabricbench`: see the grid, run a cell, collect, render. Every mistake is one line and exit status 2."""

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fabricbench
from fabricbench.errors import FabricbenchError

DEFAULT_CONFIG = [Path("config/config.yaml")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        status = int(options.run(options))
        sys.stdout.flush()
        return status
    except FabricbenchError as error:
        print(f"fabricbench: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader had seen enough, as `plan | head` does
        sys.stderr.close()
        return 0
    except OSError as error:  # a full disk, say, where the output goes
        _drop_output()
        print(f"fabricbench: {error.filename or 'output'}: {error.strerror or error}", file=sys.stderr)
        return 2


def _drop_output() -> None:
    """Let the interpreter find nothing left to write when it ends, which would fail again."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fabricbench", description=__doc__)
    parser.add_argument("--version", action="version", version=fabricbench.__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    plan = commands.add_parser("plan", help="print the grid: cells, nodes, time, and how each cell stands")
    _takes_config(plan)
    plan.add_argument("--remove-stale", action="store_true", help="delete records that the grid doesn't name")
    plan.set_defaults(run=_plan)

    accept = commands.add_parser("accept", help="take a cell's permanent failure as its result")
    _takes_config(accept)
    accept.add_argument("cell", help="the cell's id, or a unique beginning of it")
    accept.set_defaults(run=_accept)

    check = commands.add_parser("check", help="say whether this machine can emulate fabrics, and if not, why")
    check.add_argument(
        "--config",
        type=Path,
        nargs="+",
        action="extend",
        metavar="FILE",
        help="only if this config wants it",
    )
    check.set_defaults(run=_check)

    doctor = commands.add_parser(
        "doctor", help="say what on the nodes would spoil a measurement, and its mend"
    )
    doctor.add_argument(
        "--config", type=Path, nargs="+", action="extend", metavar="FILE", help="without: this machine alone"
    )
    doctor.add_argument("--json", action="store_true", help="print the findings and all facts as JSON")
    doctor.set_defaults(run=_doctor)

    node = commands.add_parser("doctor-node")  # what doctor starts on every node of an allocation
    node.add_argument("--software", action="store_true", help="look at the libraries as well")
    node.add_argument("--reach", action="store_true", help="try the ends of rails on standard input, JSON")
    node.add_argument("--pieces", action="store_true", help="short lines instead of one, for srun")
    node.set_defaults(run=_doctor_node)

    cell = commands.add_parser("run-cell", help="measure one cell (what each Snakemake job calls)")
    cell.add_argument("--cell", required=True, help="the cell as canonical JSON")
    cell.add_argument("--record", type=Path, required=True, help="where its record belongs")
    cell.add_argument("--timeout", type=float, default=300.0, help="seconds after which it is stopped")
    cell.add_argument("--accept-failures", type=int, default=0, help="1: a failure is a result")
    cell.add_argument("--neighbours", default="", help="idle interfaces that emulated nodes have as well")
    cell.add_argument("--bootstrap", default="", help="the interface over which ranks meet, under Slurm")
    cell.add_argument("--nodelist", default="", help="nodes that the cell may use, under Slurm")
    cell.add_argument("--exclude", default="", help="nodes that it may not use")
    cell.set_defaults(run=_run_cell)

    mortem = commands.add_parser(
        "post-mortem", help="ask Slurm why cells have no record, and write that down (what Snakemake calls)"
    )
    mortem.add_argument("--grid", type=Path, required=True, help="results/<campaign>/grid.json")
    mortem.set_defaults(run=_post_mortem)

    collect = commands.add_parser("collect", help="gather all records of a grid into tables")
    collect.add_argument("--grid", type=Path, required=True, help="results/<campaign>/grid.json")
    collect.add_argument("--tables", type=Path, required=True, help="the folder to write")
    collect.set_defaults(run=_collect)

    render = commands.add_parser("render", help="render the page from tables (what Snakemake calls)")
    render.add_argument("--grid", type=Path, required=True, help="results/<campaign>/grid.json")
    render.add_argument("--tables", type=Path, help="the folder that collect wrote; from records if absent")
    render.add_argument("--templates", type=Path, required=True, help="the folder of templates")
    render.add_argument("--command", default="", help="what to type to run the campaign, for the page")
    render.add_argument("--page", type=Path, required=True, help="the page to write")
    render.add_argument(
        "--partial", action="store_true", help="the campaign isn't complete: say so at the top"
    )
    render.set_defaults(run=_render)

    report = commands.add_parser("report", help="render the page of any folders of records")
    report.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="results/<campaign>")
    report.add_argument(
        "--page", type=Path, help="where to write it; reports/<campaign>/index.html if absent"
    )
    report.set_defaults(run=_report)

    compare = commands.add_parser(
        "compare", help="two campaigns: before and after a driver, a switch, a library"
    )
    compare.add_argument(
        "before", type=Path, metavar="BEFORE", help="the baseline's folder, results/<campaign>"
    )
    compare.add_argument("after", type=Path, metavar="AFTER", help="the other's")
    compare.add_argument(
        "--margin", metavar="SHARE", help="equivalent within this (5 %%), if not the campaign's"
    )
    compare.add_argument(
        "--allow-version-differences", action="store_true", help="other library versions are the question"
    )
    compare.add_argument("--strict", action="store_true", help="exit status 1 for what is undecided as well")
    compare.add_argument("--html", type=Path, metavar="PAGE", help="write a page of both, too")
    compare.set_defaults(run=_compare)

    fit = commands.add_parser(
        "fit", help="choose effective rates and fixed cost by published rates, measuring"
    )
    fit.add_argument("--config", type=Path, nargs="+", action="extend", metavar="FILE", required=True)
    fit.set_defaults(run=_fit)

    select = commands.add_parser("select", help="print the variables that each fabric and backend get")
    select.add_argument("--config", type=Path, nargs="+", action="extend", metavar="FILE")
    select.add_argument("--fabric", action="append", default=[], metavar="NAME", help="only this one")
    select.add_argument("--backend", action="append", default=[], metavar="NAME", help="only this one")
    select.add_argument("--json", action="store_true", help="for scripts")
    select.set_defaults(run=_select)
    profile = commands.add_parser("profile", help="record how long one GPU takes for each layer of a model")
    profile.add_argument("--model", required=True, help="a classifier of torchvision")
    profile.add_argument("--batch", type=int, default=64, metavar="IMAGES")
    profile.add_argument("--image-size", type=int, metavar="PIXELS", help="default: the model's own")
    profile.add_argument("--precision", choices=["fp32", "tf32", "bf16"], default="fp32")
    profile.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    profile.add_argument("--steps", type=int, default=50, metavar="N", help="measured with and without hooks")
    profile.add_argument("--out", type=Path, required=True, metavar="FILE", help="the profile, for a config")
    profile.set_defaults(run=_profile)
    return parser


def _takes_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, nargs="+", action="extend", metavar="FILE")
    parser.add_argument("--results", type=Path, default=Path("results"), help="the folder of all campaigns")


def _plan(options: argparse.Namespace) -> int:
    from fabricbench.config import load_config, parse_config
    from fabricbench.grid import expand
    from fabricbench.plan import plan, remove_stale, render_plan

    planned = plan(expand(parse_config(load_config(options.config or DEFAULT_CONFIG))), options.results)
    print(render_plan(planned), end="")
    if options.remove_stale:
        print(f"removed {len(remove_stale(planned))} stale files")
    elif planned.stale:
        print("`fabricbench plan --remove-stale` removes them; a config changed back would find them again")
    return 0


def _accept(options: argparse.Namespace) -> int:
    from fabricbench.config import load_config, parse_config
    from fabricbench.grid import expand
    from fabricbench.plan import accept

    grid = expand(parse_config(load_config(options.config or DEFAULT_CONFIG)))
    print(accept(grid, options.results, options.cell))
    return 0


def _check(options: argparse.Namespace) -> int:
    from fabricbench.config import load_config, parse_config
    from fabricbench.fabrics.emulation import why_unavailable

    if options.config and parse_config(load_config(options.config)).cluster.kind != "emulated":
        print("this config emulates nothing")
        return 0
    if reason := why_unavailable():
        raise FabricbenchError(reason)
    print("this machine can emulate fabrics")
    return 0


def _doctor(options: argparse.Namespace) -> int:
    from fabricbench.doctor_view import as_json, as_table, doctor, exit_status

    findings, nodes = doctor(options.config)
    print(as_json(findings, nodes) if options.json else as_table(findings, nodes), end="")
    return exit_status(findings)


def _doctor_node(options: argparse.Namespace) -> int:
    from fabricbench.fabrics.visit import this_node, to_lines

    try:
        ends = json.load(sys.stdin) if options.reach else None
    except ValueError as error:
        raise FabricbenchError(f"--reach: no JSON on standard input ({error})") from None
    answer = this_node(ends, options.software)
    print(to_lines(answer) if options.pieces else json.dumps(answer) + "\n", end="", flush=True)
    return 0


def _run_cell(options: argparse.Namespace) -> int:
    from fabricbench.cell import Cell, cell_id
    from fabricbench.code_key import code_key
    from fabricbench.runner import run_cell

    try:
        cell = Cell.from_json(options.cell)
    except (ValueError, TypeError) as error:
        raise FabricbenchError(f"--cell: not a cell as canonical JSON ({error})") from None
    key = code_key(cell.kind, cell.launcher)
    if options.record.stem != (measured := cell_id(cell, key).rsplit("/", 1)[-1]):
        raise FabricbenchError(
            f"{options.record} names another measurement than {measured}: the code changed since the grid "
            "was made; call Snakemake again"
        )
    return run_cell(
        cell,
        key,
        options.record,
        timeout_s=options.timeout,
        accept_failures=bool(options.accept_failures),
        neighbours=options.neighbours.split(),
        bootstrap=options.bootstrap,
        nodelist=options.nodelist,
        exclude=options.exclude,
    )


def _post_mortem(options: argparse.Namespace) -> int:
    from fabricbench.grid import read_grid
    from fabricbench.postmortem import settle_failures

    for line in settle_failures(read_grid(options.grid), options.grid.parent.parent, Path.cwd()):
        print(line)
    return 0


def _collect(options: argparse.Namespace) -> int:
    from fabricbench.analysis.table import collect, write_tables

    write_tables(collect(_read_json(options.grid), options.grid.parent), options.tables)
    return 0


def _render(options: argparse.Namespace) -> int:
    from fabricbench.analysis.table import collect, read_tables
    from fabricbench.report.render import render

    grid = _read_json(options.grid)
    tables = read_tables(options.tables) if options.tables else collect(grid, options.grid.parent)
    about = {"command": options.command} if options.command else {}
    render(tables, grid, about, options.templates, options.page, options.partial)
    return 0


def _report(options: argparse.Namespace) -> int:
    from fabricbench.analysis.gather import gather
    from fabricbench.report.render import TEMPLATES, render

    tables, grid = gather(options.folders)
    name = grid["campaign"]["name"]
    page = options.page or Path("reports") / name.replace(" ", "-").replace("/", "-") / "index.html"
    command = " ".join(["fabricbench report", *map(str, options.folders)])
    render(tables, grid, {"command": command}, TEMPLATES, page, partial=False)
    print(page)
    return 0


def _compare(options: argparse.Namespace) -> int:
    from fabricbench.analysis.gather import compared
    from fabricbench.report.markdown import exit_status, summary
    from fabricbench.report.render import TEMPLATES, render
    from fabricbench.units import parse_share

    try:
        margin = None if options.margin is None else parse_share(options.margin)
    except ValueError as error:
        raise FabricbenchError(f"--margin: {options.margin}: {error}") from None
    tables, grid = compared(options.before, options.after, margin, options.allow_version_differences)
    if options.html:
        command = f"fabricbench compare {options.before} {options.after}"
        render(tables, grid, {"command": command}, TEMPLATES, options.html, partial=False)
    print(summary(tables), end="")
    return exit_status(tables.conclusions.comparisons, options.strict)


def _select(options: argparse.Namespace) -> int:
    from fabricbench.config import load_config, parse_config
    from fabricbench.select_view import render, selections

    campaign = parse_config(load_config(options.config or DEFAULT_CONFIG))
    entries = selections(campaign, options.fabric, options.backend)
    print(json.dumps(entries, indent=2, ensure_ascii=False) if options.json else render(entries).rstrip())
    return 0


def _profile(options: argparse.Namespace) -> int:
    from fabricbench.config_train import image_size
    from fabricbench.record import write_atomically
    from fabricbench.torchvision_models import classifiers

    if (known := classifiers()) and options.model not in known:
        raise FabricbenchError(f"--model {options.model}: not a classifier of torchvision")
    for name in ("batch", "steps", "image_size"):
        if (value := getattr(options, name)) is not None and value < 1:
            raise FabricbenchError(f"--{name.replace('_', '-')} {value}: must be at least 1")
    size = options.image_size or image_size(options.model).get("image_size", 224)
    from fabricbench.workloads.train.recorder import Recorded, record

    what = Recorded(options.model, options.batch, size, options.precision, options.device)
    content = record(what, options.steps)
    write_atomically(options.out, json.dumps(content, indent=1) + "\n")
    plain_ms, hooked_ms = 1e3 * content["step_s"], 1e3 * content["hooked_step_s"]
    print(f"{options.out}: {content['images_per_s']:.1f} images/s, {len(content['layers'])} layers")
    print(f"a step takes {plain_ms:.3g} ms, and {hooked_ms:.3g} ms with the hooks that timed its layers")
    return 0


def _fit(options: argparse.Namespace) -> int:
    from fabricbench.config import load_config, parse_config
    from fabricbench.fit import fit, measured, yaml_lines

    def say(line: str) -> None:
        print(line, flush=True)

    print(yaml_lines(fit(parse_config(load_config(options.config)), say, measured)))
    return 0


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FabricbenchError(f"{path}: can't be read: {error.strerror}") from None
    except ValueError:
        raise FabricbenchError(f"{path}: is not JSON; remove it and call Snakemake again") from None
