"""What reruns when: asked of the real Snakemake, on real cells."""

import shutil

import pytest
import yaml
from campaigns import Campaign

pytestmark = [pytest.mark.slow, pytest.mark.emulated]

ALL = {"micro/slow-mpi-2-r1", "micro/fast-mpi-2-r1", "cfd/slow-mpi-2-r1", "cfd/fast-mpi-2-r1"}
FAST = {name for name in ALL if "/fast-" in name}


def page_time(campaign: Campaign) -> int:
    """When the page was written."""
    return campaign.page.stat().st_mtime_ns


def test_the_first_call_measures_every_cell(measured):
    """A fresh campaign leaves one record per cell, tables and a page."""
    assert measured.records() == ALL
    assert measured.page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (measured.results / "tables" / "cells.parquet").is_file()


def test_no_change_is_nothing_to_do(measured):
    """A second call has nothing to do."""
    assert "Nothing to be done" in measured.snakemake()


def test_a_fabric_s_rate_reruns_its_cells_and_the_page(measured, tiny):
    """Another rate of one fabric measures exactly its cells, and renews the page."""
    before = page_time(measured)
    tiny["fabrics"]["fast"]["rate"] = "300 Mbit/s"
    measured.write(tiny)
    assert measured.measure() == FAST
    assert page_time(measured) > before


def test_a_fabric_changed_back_is_found_again(measured, tiny):
    """Changed there and back, nothing is measured a second time, and the page shows the old rate again."""
    changed = yaml.safe_load(yaml.safe_dump(tiny))
    changed["fabrics"]["fast"]["rate"] = "300 Mbit/s"
    measured.write(changed)
    measured.measure()
    assert "300 Mbit/s" in measured.page.read_text(encoding="utf-8")
    measured.write(tiny)
    assert measured.measure() == set()
    assert "300 Mbit/s" not in measured.page.read_text(encoding="utf-8")


def test_a_backend_s_option_reruns_its_cells(measured, tiny):
    """A second backend's cells are measured alone, and so are they again when one of its options changes."""
    tiny["backends"]["other"] = {"engine": "mpi"}
    measured.write(tiny)
    other = {name.replace("-mpi-", "-other-") for name in ALL}
    assert measured.measure() == other
    tiny["backends"]["other"]["environment"] = {"FI_TCP_TX_SIZE": 512}
    measured.write(tiny)
    assert measured.measure() == other


def test_an_added_gpu_count_measures_only_its_cells(measured, tiny):
    """One rank beside two: only the new cells are measured."""
    tiny["workloads"]["cfd"]["gpus"] = [1, 2]
    measured.write(tiny)
    assert measured.measure() == {"cfd/slow-mpi-1-r1", "cfd/fast-mpi-1-r1"}


def test_an_added_fabric_measures_only_its_cells(measured, tiny):
    """A third fabric gives every node another interface, and still leaves the others' records alone."""
    tiny["fabrics"]["third"] = {"interface": "ib0", "rate": "200 Mbit/s"}
    measured.write(tiny)
    assert measured.measure() == {name.replace("/fast-", "/third-") for name in FAST}


def test_spelling_is_no_change(measured, tiny):
    """Other order of keys, quotes, comments and units leave nothing to do."""
    tiny["fabrics"] = {
        "fast": {"rate": "0.4 Gbit/s", "interface": "opa0"},
        "slow": {"rate": 100_000_000, "interface": "eth0"},
    }
    measured.write("# the same\n" + yaml.safe_dump(tiny, default_style='"', sort_keys=False))
    assert "Nothing to be done" in measured.snakemake()


def test_a_workload_s_code_reruns_its_cells(measured):
    """A changed line of the flow solver measures its cells alone."""
    source = measured.folder / "src/fabricbench/workloads/cfd/run.py"
    source.write_text(source.read_text().replace("ROUND_OFF = 1e-12", "ROUND_OFF = 2e-12"))
    assert measured.measure() == {name for name in ALL if name.startswith("cfd/")}


def test_a_comment_in_a_workload_is_no_change(measured):
    """A comment in the flow solver measures nothing."""
    source = measured.folder / "src/fabricbench/workloads/cfd/run.py"
    source.write_text("# a comment\n" + source.read_text())
    assert "Nothing to be done" in measured.snakemake()


def test_the_template_renews_the_page_alone(measured):
    """A changed template renders the page again and touches neither records nor tables."""
    tables = (measured.results / "tables" / "cells.parquet").stat().st_mtime_ns
    before = page_time(measured)
    template = measured.folder / "reports/templates/style.css"
    template.write_text(template.read_text() + "\n")
    assert measured.measure() == set()
    assert page_time(measured) > before
    assert (measured.results / "tables" / "cells.parquet").stat().st_mtime_ns == tables


@pytest.mark.parametrize(
    ("module", "renews_tables"), [("analysis/stats.py", True), ("report/words.py", False)]
)
def test_code_behind_the_records_measures_nothing(measured, module, renews_tables):
    """Analysis renews tables and page, report code the page alone."""
    tables = (measured.results / "tables" / "cells.parquet").stat().st_mtime_ns
    before = page_time(measured)
    source = measured.folder / "src/fabricbench" / module
    source.write_text(source.read_text() + "\n")
    assert measured.measure() == set()
    assert page_time(measured) > before
    assert ((measured.results / "tables" / "cells.parquet").stat().st_mtime_ns > tables) is renews_tables


def test_a_dry_run_changes_nothing(measured, tiny):
    """`-n` with another config leaves the grid of a campaign that may be running beside it."""
    grid = (measured.results / "grid.json").read_bytes()
    del tiny["fabrics"]["fast"]
    measured.write(tiny)
    measured.snakemake("-n")
    assert (measured.results / "grid.json").read_bytes() == grid


def test_a_key_that_stands_twice_is_a_mistake(measured):
    """What YAML would take silently, the last of two equal keys, is refused with its line."""
    measured.write(measured.config_file.read_text() + "repeats: 5\n")
    output = measured.snakemake(ok=False)
    assert "repeats" in output
    assert "config.yaml:" in output
    assert "Traceback" not in output


def test_a_cell_left_out_leaves_the_page(measured, tiny):
    """Leaving a fabric out of one workload measures nothing and renews the page without it."""
    tiny["except"] = [{"workload": "cfd", "fabric": "fast"}]
    measured.write(tiny)
    assert "cfd/fast-mpi-2-r1" in measured.page.read_text(encoding="utf-8")
    assert measured.measure() == set()
    assert "cfd/fast-mpi-2-r1" not in measured.page.read_text(encoding="utf-8")


def test_lost_metadata_measures_nothing(measured):
    """Without .snakemake, what is measured stays measured."""
    shutil.rmtree(measured.folder / ".snakemake")
    assert measured.measure() == set()


@pytest.mark.parametrize("harm", ["delete", "truncate", "replace by another's"])
def test_a_harmed_record_is_measured_again(measured, harm):
    """A record that is deleted, truncated, or another cell's is measured again, alone."""
    record = next(measured.results.glob("cfd/fast-*.json"))
    if harm == "delete":
        record.unlink()
    elif harm == "truncate":
        record.write_text(record.read_text()[:200])
    else:
        shutil.copy(next(measured.results.glob("cfd/slow-*.json")), record)
    assert measured.measure() == {"cfd/fast-mpi-2-r1"}


def test_a_mistake_in_the_config_stops_before_anything(measured, tiny):
    """A model that doesn't exist is one line that names key, value and mend, and no job starts."""
    tiny["workloads"]["net"] = {"kind": "train", "model": "resnet51"}
    measured.write(tiny)
    output = measured.snakemake(ok=False)
    assert "workloads.net.model: 'resnet51'" in output
    assert "resnet50" in output
    assert "Traceback" not in output
    assert "rule cell" not in output
