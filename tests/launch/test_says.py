"""What launchers print when ranks end badly, as one line of what happened."""

import pytest

from fabricbench.launch.says import LAUNCHER, RANKS, Said, Started, read

KILLED = """srun: error: n1: task 2: Killed
srun: launch/slurm: _step_signal: Terminating StepId=5.0
slurmstepd: error: *** STEP 5.0 ON n0 CANCELLED AT 2026-11-30T10:00:00 ***
srun: error: n0: tasks 0-1: Killed
"""
RAISED = """srun: error: n1: task 3: Exited with exit code 1
srun: launch/slurm: _step_signal: Terminating StepId=5.0
slurmstepd: error: *** STEP 5.0 ON n0 CANCELLED AT 2026-11-30T10:00:00 ***
srun: error: n0: tasks 0-1: Terminated
"""
LIMIT = """slurmstepd: error: *** STEP 5.0 ON n0 CANCELLED AT 2026-11-30T10:00:00 DUE TO TIME LIMIT ***
srun: Job step aborted: Waiting up to 32 seconds for job step to finish.
srun: error: n0: tasks 0-1: Terminated
"""
NODE = """srun: error: Node failure on n1
srun: Job step aborted: Waiting up to 32 seconds for job step to finish.
slurmstepd: error: *** STEP 5.0 ON n0 CANCELLED AT 2026-11-30T10:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD ***
"""
CANCELLED = """srun: Job step aborted: Waiting up to 32 seconds for job step to finish.
slurmstepd: error: *** STEP 5.0 ON n0 CANCELLED AT 2026-11-30T10:00:00 ***
"""
MEMORY = """slurmstepd: error: Detected 1 oom_kill event in StepId=5.0.
srun: error: n1: task 2: Out Of Memory
srun: launch/slurm: _step_signal: Terminating StepId=5.0
"""
HYDRA = """===================================================================================
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 1234 RUNNING AT n1
=   EXIT CODE: 9
YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)
"""
INTEL = """=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   RANK 3 PID 1234 RUNNING AT n1
=   KILLED BY SIGNAL: 11 (Segmentation fault)
"""
PRTE = "prterun noticed that process rank 2 with PID 99 on node n1 exited on\nsignal 9 (Killed).\n"


MPICH = """=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 15 RUNNING AT n1
=   EXIT CODE: 9
srun: error: n0: task 0: Exited with exit code 7
"""


def what(text: str) -> Said:
    """What a text says of a cell that was started with pmix by a backend `mpi`."""
    return read(text, Started("slurm", "mpi", "pmix"), "ended with exit status 1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (KILLED, "rank 2 on n1 was killed by SIGKILL"),
        ("srun: error: n[0-1]: tasks 0-3: Aborted (core dumped)", "rank 0 on n0 was killed by SIGABRT"),
        (HYDRA, "a rank on n1 was killed by SIGKILL"),
        (INTEL, "rank 3 on n1 was killed by SIGSEGV"),
        (PRTE, "rank 2 on n1 was killed by SIGKILL"),
    ],
)  # fmt: skip
def test_a_rank_that_a_signal_killed_is_the_cause(text, message):
    """Not those that the launcher ended because of it."""
    assert what(text) == Said(RANKS, message, is_cause=True)


def test_a_rank_that_raised_tells_itself_why():
    """Those that srun terminated after it don't count, nor does the step's end."""
    assert what(RAISED) == Said(RANKS, "rank 3 on n1 ended with exit status 1")


@pytest.mark.parametrize(
    ("text", "state"),
    [(LIMIT, "TIMEOUT: STEP 5.0 ON n0"), (NODE, "NODE_FAIL: "), (CANCELLED, "CANCELLED: STEP 5.0 ON n0")],
)
def test_what_slurm_did_begins_with_its_own_word(text, state):
    """And is no outcome of the ranks."""
    said = what(text)
    assert said.message.startswith(state)
    assert (said.who, said.is_cause) == (LAUNCHER, True)


def test_daemons_of_an_mpi_launcher_are_no_ranks():
    """What srun says of them hides what happened to a rank."""
    said = read(MPICH, Started("slurm", "mpi", "mpirun"), "ended with exit status 255")
    assert said == Said(RANKS, "a rank on n1 was killed by SIGKILL", is_cause=True)


def test_too_little_memory_is_the_ranks_own_end():
    """With Slurm's word for it."""
    said = what(MEMORY)
    assert said.message.startswith("OUT_OF_MEMORY: ")
    assert (said.who, said.is_cause) == (RANKS, True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "srun: error: Couldn't find the specified plugin name for mpi/pmix looking at all files\n"
            "srun: error: cannot create mpi context for mpi/pmix\nsrun: error: Invalid MPI type 'pmix'",
            "backends.mpi.launch: pmix: srun can't load it (`srun --mpi=list`",
        ),
        (
            "srun: error: Unable to create step for job 5: More processors requested than permitted",
            "srun can't start this cell's step: the job must hold",
        ),
        (
            "slurmstepd: error: execve(): /venv/bin/python: No such file or directory",
            "the project's Python isn't on every node",
        ),
        ("3: fabricbench: n1: /results can't be read", "n1: /results can't be read"),
        ("something else", "the ranks' launcher ended with exit status 1: something else"),
        ("", "the ranks' launcher ended with exit status 1"),
    ],
)
def test_what_could_not_start_names_its_mend(text, message):
    """One line, with the launcher's own words behind it."""
    said = what(text)
    assert said.message.startswith(message)
    assert (said.who, said.is_cause) == (LAUNCHER, False)


@pytest.mark.parametrize(
    ("text", "kind", "launch", "message"),
    [
        ("srun: error: Unable to create step for job 5", "allocation", "none", "get it with --exclusive"),
        ("srun: unrecognized option '--overlap'", "slurm", "none", "Slurm 20.11 or later is needed"),
        ("srun: error: Invalid MPI type 'none'", "slurm", "none", "srun --mpi=none: srun can't load it"),
        (
            "srun: error: Invalid MPI type 'pmi2'",
            "slurm",
            "pmi2",
            "backends.it.launch: pmi2: srun can't load it",
        ),
        ("mpirun: unrecognized argument host", "slurm", "mpirun", "backends.it.launch: mpirun doesn't match"),
    ],
)
def test_a_mend_names_no_key_that_kind_or_engine_lacks(text, kind, launch, message):
    """An allocation has no cluster.slurm, and gloo and nccl no launch."""
    said = read(text, Started(kind, "it", launch), "ended with exit status 1").message
    assert message in said
    assert ("cluster.slurm" in said) <= (kind == "slurm")
    assert ("backends." in said) <= (launch != "none")
