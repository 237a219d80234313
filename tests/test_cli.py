"""The command line: useful words, one line per mistake, an exit status that scripts can use."""

import subprocess
import sys

import pytest
import yaml
from campaigns import TINY
from cells import a_cell

from fabricbench.cli import main


@pytest.fixture
def config(tmp_path):
    """The path of the tiny config."""
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(TINY))
    return path


def test_plan_prints_the_grid(config, tmp_path, capsys):
    """Cells per workload, and what is left to run."""
    assert main(["plan", "--config", str(config), "--results", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "campaign tiny: 4 cells" in said
    assert "to run: 4 cells" in said


def test_stale_records_are_named_and_removed_on_request(config, tmp_path, capsys):
    """`plan` names a record that the grid doesn't have; --remove-stale deletes it."""
    stale = tmp_path / "tiny" / "micro" / "gone-mpi-2-r1-0123abcd.json"
    stale.parent.mkdir(parents=True)
    stale.write_text("{}")
    arguments = ["plan", "--config", str(config), "--results", str(tmp_path)]
    assert main(arguments) == 0
    assert str(stale) in capsys.readouterr().out
    assert main([*arguments, "--remove-stale"]) == 0
    assert "removed 1 stale" in capsys.readouterr().out
    assert not stale.exists()


def test_check_says_what_forbids_emulation(monkeypatch, config, capsys):
    """The line with its mend, and status 2; a config that emulates nothing needs no namespaces."""
    monkeypatch.setattr("fabricbench.fabrics.emulation.why_unavailable", lambda: "refused; do this")
    assert main(["check"]) == main(["check", "--config", str(config)]) == 2
    assert capsys.readouterr().err == "fabricbench: refused; do this\n" * 2
    config.write_text(config.read_text().replace("kind: emulated", "kind: host"))
    assert main(["check", "--config", str(config)]) == 2  # other mistakes of such a config still are
    assert "kind host" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["plan", "select"])
def test_config_given_twice_is_merged(command, config, tmp_path, capsys):
    """`--config A --config B` is `--config A B`."""
    other = tmp_path / "other.yaml"
    other.write_text("workloads: {more: {kind: micro}}\n")
    outputs = []
    for files in ([config, other], [config, "--config", other]):
        assert main([command, "--config", *map(str, files)]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    assert "more" in outputs[0]


def test_full_disk_is_one_line(config):
    """Output that can't be written is a mistake as others, not a traceback at the end."""
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "fabricbench", "select", "--config", str(config)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (2, "fabricbench: output: No space left on device\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan", "--config", "nowhere.yaml"], "nowhere.yaml"),
        (["collect", "--grid", "nowhere.json", "--tables", "t"], "nowhere.json"),
        (["run-cell", "--cell", "{}", "--record", "x-00000000.json"], "--cell: not a cell"),
        (["run-cell", "--cell", a_cell().canonical(), "--record", "x-00000000.json"], "call Snakemake again"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(arguments, words, capsys):
    """No traceback: one line that says what and where."""
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
