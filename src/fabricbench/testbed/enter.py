"""Run a command on a node: `python -I -S enter.py FOLDER NODE CWD [NAME=VALUE …] -- COMMAND …`.

Stands alone and imports little, so that it starts in milliseconds. The command dies with this process, gets
the signals sent to it, and its exit status is this process's own: whoever holds one holds the other.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
KINDS = ("net", "uts", "ipc", "pid", "mnt")
FORWARDED = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
SITE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Of a job that the caller itself may run in, which is none of this cluster's.
FOREIGN = ("SLURM", "SBATCH_", "SRUN_", "SALLOC_", "SQUEUE_", "SINFO_", "PMI", "MUNGE_")


def environment(inherited: dict[str, str], changes: dict[str, str]) -> dict[str, str]:
    """The caller's environment less another Slurm's variables, with Slurm's programs on PATH, and changes."""
    kept = {name: value for name, value in inherited.items() if not name.startswith(FOREIGN)}
    path = [part for part in kept.get("PATH", "").split(":") if part]
    kept["PATH"] = ":".join(path + [part for part in SITE_PATH.split(":") if part not in path])
    kept.setdefault("HOME", "/root")
    return kept | changes


def main(folder: str, node: str, cwd: str, rest: list[str]) -> int:
    """Enter, run, and end as the command ends. 125 and one line where the node can't be entered."""
    libc = ctypes.CDLL(None, use_errno=True)
    split = rest.index("--")
    changes = dict(text.split("=", 1) for text in rest[:split])
    command = rest[split + 1 :]
    try:
        with open(f"{folder}/room.pid") as file:
            room = file.read().strip()
        with open(f"{folder}/run/{node}.pid") as file:
            inner = file.read().strip()
        spaces = [os.open(f"/proc/{room}/root/proc/{inner}/ns/{kind}", os.O_RDONLY) for kind in KINDS]
    except OSError:
        return refuse(f"the node {node} of the cluster in {folder} isn't up: boot it, or start a cluster")
    for space, kind in zip(spaces, KINDS, strict=True):
        if libc.setns(space, 0) != 0:
            return refuse(f"can't enter the {kind} namespace of {node}: {os.strerror(ctypes.get_errno())}")
        os.close(space)
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED | {signal.SIGCHLD})
    alive, held = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(held)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.set_blocking(alive, False)
        try:
            os.read(alive, 1)
            os._exit(1)  # the end of the pipe: the parent ended before the call above
        except BlockingIOError:
            pass
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED | {signal.SIGCHLD})
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and exec would keep it so
            signal.signal(ignored, signal.SIG_DFL)
        try:
            os.chdir(cwd)
        except OSError as error:
            os._exit(refuse(f"{node} has no folder {cwd}: {error.strerror}; share it, or choose another"))
        names = environment(dict(os.environ), changes)
        try:
            os.execvpe(command[0], command, names)
        except OSError as error:
            os._exit(refuse(f"{command[0]}: {error.strerror}", 127))
    os.close(alive)
    return outlive(child)


def outlive(child: int) -> int:
    """Pass signals on until the child ends; its exit status."""
    while True:
        got = signal.sigwaitinfo(FORWARDED | {signal.SIGCHLD})
        if got.si_signo == signal.SIGCHLD:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                break
        elif got.si_code <= 0:  # from a process; one from the terminal reached the child too
            os.kill(child, got.si_signo)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:  # end by the same signal
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
        os.kill(os.getpid(), -code)
    return code


def refuse(line: str, code: int = 125) -> int:
    """One line on standard error."""
    os.write(2, f"{line}\n".encode())
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
