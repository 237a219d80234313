"""The timed region's look at its host."""

from fabricbench.workloads.region import Cpu, cpu_times


def test_the_busy_share_of_all_cores_between_two_readings(tmp_path):
    """User, system, interrupts and stolen time are busy; idle and waiting for disks are not."""
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 2 3 4\n")
    before = cpu_times(tmp_path)
    stat.write_text("cpu  160 5 60 810 60 2 3 20 7 0\ncpu0 1 2 3 4\n")
    span = cpu_times(tmp_path) - before
    assert span == Cpu(busy=100, whole=120)
    assert (span + Cpu(0, 80)).share == 0.5


def test_a_system_without_the_numbers_leaves_them_out(tmp_path):
    """No share is claimed where /proc/stat can't be read, nor for a span shorter than a tick."""
    assert (cpu_times(tmp_path) - cpu_times(tmp_path)).share is None
