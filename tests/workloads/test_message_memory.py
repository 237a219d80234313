"""Tensors on their way to MPI: staged and not, with a GPU's streams made up in the host's memory."""

import pytest

pytestmark = pytest.mark.slow  # torch takes seconds to import


class Event:
    """Says in the log that it was waited for."""

    def __init__(self, log, done=True):
        """`done`: what a query answers."""
        self.log, self.done = log, done

    def synchronize(self):
        """The host waits."""
        self.log.append("wait")

    def query(self):
        """Whether it has happened."""
        return self.done


class Streams:
    """A GPU that does everything at once, and logs it."""

    def __init__(self):
        """Nothing done."""
        self.log, self.done = [], True

    def event(self):
        """Recorded."""
        return Event(self.log, self.done)

    def enter(self):
        """The thread's stream."""
        self.log.append("enter")

    def follow(self, event):
        """The GPU waits."""
        self.log.append("follow")

    def keep(self, tensor):
        """For the allocator."""
        self.log.append("keep")

    def page_locked(self, count):
        """Host memory."""
        import torch

        self.log.append(f"lock {count}")
        return torch.empty(count, dtype=torch.uint8)

    def future(self):
        """A plain one."""
        import torch

        return torch.futures.Future()


def test_host_tensors_are_handed_on_as_they_are():
    """What MPI writes is in the tensor; one with gaps is copied there and back."""
    import torch

    from fabricbench.workloads.message_memory import HostMemory

    memory = HostMemory()
    whole = torch.zeros(2, 3)
    memory.down(whole).fill_(1)
    assert (whole == 1).all()
    gaps = torch.zeros(3, 4).t()[1:]
    flat = memory.down(gaps)
    flat.copy_(torch.arange(9.0))
    assert (gaps == 0).all()
    memory.up(flat, gaps)
    assert (gaps.reshape(-1) == torch.arange(9.0)).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool"])
def test_staged_tensors_go_down_after_the_mark_and_up_again(dtype):
    """The stream follows the producer's event, the host waits for the copy, MPI sees the copy alone."""
    import torch

    from fabricbench.workloads.message_memory import StagedMemory

    streams = Streams()
    memory = StagedMemory(streams)
    tensor = torch.ones(5, 3).to(getattr(torch, dtype))
    opened = memory.opened(memory.mark())
    flat = opened.down(tensor)
    assert flat.data_ptr() != tensor.data_ptr()
    assert (flat == tensor.reshape(-1)).all()
    assert streams.log == ["follow", "keep", "lock 65536", "wait"]
    flat.zero_()
    assert (tensor == 1).all()
    opened.up(flat, tensor)
    assert (tensor == 0).all()
    opened.close()


def test_page_locked_copies_are_used_again_once_they_were_read():
    """Not before: the GPU may still read the copy that goes up."""
    import torch

    from fabricbench.workloads.message_memory import StagedMemory

    streams = Streams()
    memory = StagedMemory(streams)

    def used(count):
        opened = memory.opened(memory.mark())
        address = opened.down(torch.zeros(count)).data_ptr()
        opened.close()
        return address

    first = used(30_000)
    assert used(20_000) == first
    streams.done = False
    assert used(30_000) == first  # the event before it had happened
    assert used(30_000) != first  # this one hasn't
    assert sum(line.startswith("lock") for line in streams.log) == 2


def test_two_operations_under_way_have_copies_of_their_own():
    """Though neither has ended."""
    import torch

    from fabricbench.workloads.message_memory import StagedMemory

    memory = StagedMemory(Streams())
    one, other = memory.opened(memory.mark()), memory.opened(memory.mark())
    assert one.down(torch.zeros(10)).data_ptr() != other.down(torch.zeros(10)).data_ptr()


def test_a_cuda_aware_library_gets_the_tensor_when_it_is_written():
    """MPI knows no streams, so the host waits for the producer's work first."""
    import torch

    from fabricbench.workloads.message_memory import DeviceMemory

    streams = Streams()
    memory = DeviceMemory(streams)
    tensor = torch.ones(4)
    opened = memory.opened(memory.mark())
    assert opened.down(tensor).data_ptr() == tensor.data_ptr()
    assert streams.log == ["follow", "keep", "wait"]
