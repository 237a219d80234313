"""What the login node and the nodes see of this machine's files. All of it is gone with the processes."""

import os
from collections.abc import Sequence
from pathlib import Path

from fabricbench.fabrics.emulation import (
    MS_BIND,
    MS_NODEV,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    mount,
    mount_own_proc,
)
from fabricbench.testbed.spec import Spec

OWN = (Path("/tmp"), Path("/dev/shm"))
"""Where every node has files of its own."""
CGROUPS = Path("/sys/fs/cgroup/memory")
_KEPT_CGROUP = "/run/memory-cgroup"
_HUB_TMP_BYTES = 8 << 30
_SHM_BYTES = 4 << 30


def in_own(folder: Path) -> bool:
    """Whether a folder is one that nodes don't share by themselves."""
    return any(folder.is_relative_to(own) for own in OWN)


def mount_hub(folder: Path, shared: Sequence[Path], cgroup: Path | None) -> None:
    """The login node's files: its own /proc, /sys, /run, /tmp and /dev/shm, and a private layer over /etc.

    /etc/slurm must be the cluster's: SLURM_CONF isn't enough, since Snakemake's executor drops it. /run hides
    the machine's own munge; what is written to /etc stays in memory.
    """
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount_own_proc()
    _set_apart(shared, _HUB_TMP_BYTES)
    mount("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
    for name in ("munge", "lock"):
        os.mkdir(f"/run/{name}", 0o755)
    _cover(Path("/etc"))
    os.makedirs("/etc/slurm", exist_ok=True)
    mount(str(folder / "etc"), "/etc/slurm", None, MS_BIND)
    Path("/etc/hosts").write_text((folder / "hosts").read_text())
    if cgroup is not None:
        os.mkdir(_KEPT_CGROUP)
        mount(str(cgroup), _KEPT_CGROUP, None, MS_BIND)
    mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV)
    _name_pmix()


def _cover(folder: Path) -> None:
    """What is written to a folder from now on stays in memory, and in the room."""
    upper, work = (f"/run/over-{'-'.join(folder.parts[1:])}-{part}" for part in ("upper", "work"))
    os.mkdir(upper, 0o755)
    os.mkdir(work, 0o755)
    mount("overlay", str(folder), "overlay", 0, f"lowerdir={folder},upperdir={upper},workdir={work}")


def _name_pmix() -> None:
    """Give Debian's PMIx the name by which Debian's Slurm loads it, which only its -dev package has."""
    for library in Path("/usr/lib").glob("*/pmix2/lib/libpmix.so.2"):
        if not (library.parent / "libpmix.so").exists():
            _cover(library.parent)
            (library.parent / "libpmix.so").symlink_to(library.name)


def mount_node(spec: Spec, folder: Path, shared: Sequence[Path]) -> None:
    """A node's files, empty at each boot; within its namespaces, which began as the login node's."""
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount_own_proc()
    _set_apart(shared, spec.tmp_bytes)
    mount(str(folder / "hosts"), "/etc/hosts", None, MS_BIND)
    if spec.memory_limits:
        mount("tmpfs", str(CGROUPS.parent), "tmpfs", MS_NOSUID | MS_NODEV)
        os.mkdir(CGROUPS)
        mount(_KEPT_CGROUP, str(CGROUPS), None, MS_BIND | MS_REC)


def _set_apart(shared: Sequence[Path], tmp_bytes: int) -> None:
    """Empty /tmp and /dev/shm, with the shared folders of before in them.

    They are held open meanwhile: their paths lead nowhere once something is mounted above.
    """
    held = {path: os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) for path in shared}
    for own, size in zip(OWN, (tmp_bytes, _SHM_BYTES), strict=True):
        mount("tmpfs", str(own), "tmpfs", MS_NOSUID | MS_NODEV, f"mode=1777,size={size}")
    for path, descriptor in held.items():
        path.mkdir(parents=True, exist_ok=True)
        mount(f"/proc/self/fd/{descriptor}", str(path), None, MS_BIND | MS_REC)
        os.close(descriptor)
