"""Two campaigns in Markdown, and the exit status for scripts."""

import json
import shutil

import pandas as pd
import pytest
from records import write_campaign

from fabricbench.cli import main
from fabricbench.report.markdown import exit_status


@pytest.fixture
def campaigns(tmp_path):
    """Two campaigns, the second with VGG-16 slower by a quarter; returns their folders."""
    write_campaign(tmp_path / "old")
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    for path in (tmp_path / "new").glob("vgg16/*.json"):
        plain = json.loads(path.read_text())
        for series in plain["samples"]:
            series["values"] = [value * 1.25 for value in series["values"]]
        for node in plain["provenance"]["nodes"]:
            node["kernel"] = "6.99"
        path.write_text(json.dumps(plain))
    return tmp_path / "old", tmp_path / "new"


def test_what_differs_comes_before_the_verdicts(campaigns, capsys):
    """A summary in Markdown, worst first, and exit status 1 since something is slower."""
    assert main(["compare", *map(str, campaigns)]) == 1
    said = capsys.readouterr().out
    assert said.startswith("# new against old\n\n## What else differs\n\n- machine, kernel: ")
    assert said.index("What else differs") < said.index("## Verdicts")
    rows = [line for line in said.splitlines() if line.startswith("| ")][1:]
    assert rows[0].startswith("| vgg16 ")
    assert "| slower | slower by " in rows[0]
    assert "Slower by" in said


def test_nothing_slower_is_exit_status_0(campaigns, capsys):
    """The same campaign the other way round is faster."""
    assert main(["compare", *map(str, reversed(campaigns))]) == 0
    assert "faster" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("verdicts", "usual", "strict"),
    [
        (["faster", "equivalent", "none"], 0, 0),
        (["equivalent", "undecided"], 0, 1),
        (["equivalent", "slower"], 1, 1),
        (["equivalent", "refused"], 1, 1),
        ([], 1, 1),
    ],
)
def test_the_exit_status_is_for_scripts(verdicts, usual, strict):
    """Slower, refused or nothing at all fails; undecided only where that is asked."""
    table = pd.DataFrame({"verdict": pd.Series(verdicts, dtype="string")})
    assert (exit_status(table, False), exit_status(table, True)) == (usual, strict)


def test_a_page_of_both_is_written(campaigns, tmp_path, capsys):
    """--html renders the comparison as well."""
    page = tmp_path / "both.html"
    main(["compare", *map(str, campaigns), "--html", str(page)])
    assert "old and new" in page.read_text()


def test_a_folder_is_rendered_without_snakemake(campaigns, tmp_path, capsys):
    """`report DIR`, one or several."""
    for folders in (campaigns[:1], campaigns):
        page = tmp_path / f"{len(folders)}.html"
        assert main(["report", *map(str, folders), "--page", str(page)]) == 0
        assert page.read_text().startswith("<!doctype html>")
        assert capsys.readouterr().out == f"{page}\n"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["compare", "nowhere", "{old}"], "nowhere: is no folder"),
        (["compare", "{old}", "{old}"], "is given twice"),
        (["compare", "{old}", "{new}", "--margin", "many"], "--margin: many: "),
        (["report", "nowhere"], "nowhere: is no folder"),
    ],
)
def test_a_mistake_is_one_line(campaigns, capsys, arguments, line):
    """Exit status 2, and what to do."""
    old, new = campaigns
    assert main([text.format(old=old, new=new) for text in arguments]) == 2
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1
