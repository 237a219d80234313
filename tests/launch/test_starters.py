"""What starts ranks: every word of it."""

import os
import subprocess
from pathlib import Path

import pytest
from cells import a_backend, a_cell

from fabricbench.errors import LaunchError
from fabricbench.launch.starters import PACKAGES, Srun, launch_of, program, starter

NODES = ["n0", "n1"]


def a_big_cell(engine="mpi", device="cpu", site=None, **options):
    """Two ranks on each of two nodes."""
    changes = {"gpus": 4, "ranks_per_node": 2, "launcher": "slurm", "device": device, "site": site or {}}
    return a_cell("micro", backend=a_backend(engine, **options), **changes)


def test_srun_is_told_everything():
    """Counts, nodes, order and binding; nothing is left to a site's defaults."""
    command = starter(a_big_cell()).command(a_big_cell(), NODES, ["prog"])
    assert command.env == {}
    assert " ".join(command.argv) == (
        "srun --nodes=2 --ntasks=4 --ntasks-per-node=2 --cpus-per-task=1 --nodelist=n0,n1 "
        "--distribution=block:block --mem=0 --cpu-bind=none --mem-bind=none --mpi=pmi2 --kill-on-bad-exit=1 "
        "--overlap --export=ALL --input=none --label prog"
    )


def test_gpus_are_seen_by_all_ranks_of_a_node():
    """Nobody but the rank itself chooses; a step asks for GPUs only where the job has them as a resource."""
    cell = a_big_cell("nccl", "cuda", {"cpus_per_rank": 12})
    argv = starter(cell, gpus=True).command(cell, NODES, []).argv
    assert {"--gres=gpu:2", "--cpus-per-task=12", "--mpi=none"} <= set(argv)
    assert not any("gres" in word for word in starter(cell).command(cell, NODES, []).argv)


@pytest.mark.parametrize(
    ("engine", "options", "launch"),
    [
        ("gloo", {}, "none"),
        ("nccl", {}, "none"),
        ("mpi", {}, "pmi2"),
        ("ring", {}, "pmi2"),
        ("ring", {"library": "openmpi4"}, "pmix"),
        ("mpi", {"library": "intel-mpi"}, "pmi2"),
        ("mpi", {"library": "openmpi5"}, "pmix"),
        ("mpi", {"library": "cray-mpich"}, "cray_shasta"),
        ("mpi", {"library": "mpich", "launch": "pmix"}, "pmix"),
        ("mpi", {"library": "mpich", "launch": "mpirun"}, "mpirun"),
    ],
)
def test_each_library_has_its_way(engine, options, launch):
    """Unless the backend says another."""
    cell = a_big_cell(engine, **options)
    assert launch_of(cell) == launch
    way = starter(cell)
    assert launch == "mpirun" or (isinstance(way, Srun) and way.mpi == launch)


def test_hydra_is_given_hosts_and_what_its_srun_needs():
    """As Snakemake's jobstep has stripped it; without it all ranks ran on the first node."""
    cell = a_big_cell(launch="mpirun")
    command = starter(cell).command(cell, NODES, ["prog"])
    assert " ".join(command.argv) == "mpiexec.hydra -bootstrap slurm -hosts n0,n1 -ppn 2 -n 4 prog"
    assert command.env["SLURM_TASKS_PER_NODE"] == "2(x2)"
    assert command.env["SLURM_MPI_TYPE"] == "none"
    intel = a_big_cell(library="intel-mpi", launch="mpirun")
    assert "I_MPI_JOB_RESPECT_PROCESS_PLACEMENT" in starter(intel).command(intel, NODES, []).env


def test_open_mpi_hands_the_cells_variables_on_by_name():
    """Its daemons don't pass all on."""
    cell = a_big_cell(library="openmpi5", launch="mpirun")
    command = starter(cell).command(cell, NODES, ["prog"])
    text = " ".join(command.argv)
    assert text.startswith("mpirun --host n0:2,n1:2 --map-by ppr:2:node --bind-to none -n 4 -x ")
    assert all(f"-x {name} " in text for name in [*cell.environment, "OMP_NUM_THREADS"])
    assert command.env["SLURM_JOB_NODELIST"] == "n0,n1"


def test_cray_mpich_has_no_mpirun():
    """One line says what to use."""
    with pytest.raises(LaunchError, match=r"backends.mpi.launch: mpirun: .*use cray_shasta"):
        starter(a_big_cell(library="cray-mpich", launch="mpirun"))


def test_ranks_run_in_the_image_that_the_config_names():
    """With the checkout and the work folder in it, and the GPUs' driver for those that have them."""
    work = Path("/results/.work/x")
    argv = program(a_big_cell("nccl", "cuda", {"container": "torch.sif"}), work)
    assert argv[:3] == ["apptainer", "exec", "--nv"]
    assert argv[3:7] == ["--bind", PACKAGES, "--bind", str(work)]
    assert argv[-5:] == ["torch.sif", "python", "-m", "fabricbench.launch.task", str(work)]
    assert "--nv" not in program(a_big_cell(site={"container": "torch.sif"}), work)


def test_engines_with_a_thread_of_their_own_get_a_core_for_it():
    """Without a number of the config's; otherwise gloo's thread would share its rank's core."""
    assert "--cpus-per-task=2" in starter(a_big_cell("gloo")).command(a_big_cell("gloo"), NODES, []).argv


@pytest.mark.parametrize("library", ["mpich", "openmpi5"])
def test_an_mpi_launcher_s_own_step_asks_for_gpus_too(library):
    """By the variable of its srun, only where the job has GPUs as a resource and the cell uses them."""
    for device, gpus in (("cuda", True), ("cuda", False), ("cpu", True)):
        cell = a_big_cell(library=library, launch="mpirun", device=device)
        told = starter(cell, gpus=gpus).command(cell, NODES, []).env.get("SLURM_STEP_GRES")
        assert told == ("gpu:2" if device == "cuda" and gpus else None)


def test_an_image_sees_where_srun_s_pmix_is():
    """The folder is known on the node alone, beside what a site binds itself; other ways need no shell."""
    site = {"container": "x.sif"}
    argv = program(a_big_cell(site=site, library="openmpi5"), Path("/work"))
    assert argv[:2] == ["sh", "-c"]
    assert argv[4:6] == ["apptainer", "exec"]
    for folder, own, bound in (
        ("/spool/5", "", "/spool/5"),
        ("/spool/5", "/a", "/spool/5,/a"),
        ("", "/a", "/a"),
    ):
        given = {"PATH": os.environ["PATH"], "PMIX_SERVER_TMPDIR": folder, "APPTAINER_BIND": own}
        done = subprocess.run(
            [*argv[:4], "printenv", "APPTAINER_BIND"], env=given, capture_output=True, text=True
        )
        assert done.stdout.strip() == bound
