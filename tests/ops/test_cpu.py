import multiprocessing
import os
import signal
import threading
import time

import numpy as np
import pytest
import torch

import likewise as lw
from likewise.ops import cpu
from likewise.ops.cpu import share_out
from likewise.ops.dtw import dtw, dtw_path
from likewise.ops.rules import Rules
from likewise.ops.soft_dtw import soft_dtw, soft_dtw_matrix
from tests.timing import cpu_seconds

HEAVY = 10**9  # cells of an item that gets its own range


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    """Run with this number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def ranges(count, cells):
    """The ranges that share_out gave, in order."""
    found, lock = [], threading.Lock()

    def work(begin, end):
        with lock:
            found.append((begin, end))

    share_out(count, cells, work)
    return sorted(found)


@pytest.mark.parametrize("cells", [0, 1, 100, 50_000, HEAVY])
@pytest.mark.parametrize("count", [0, 1, 2, 63, 64, 65, 1000, 100_003])
def test_every_item_is_done_once(count, cells, threads):
    found = ranges(count, cells)
    covered = [item for begin, end in found for item in range(begin, end)]
    assert covered == list(range(count))
    assert len(found) <= max(65, count // 16 + 1)


def test_small_work_is_done_at_once():
    assert ranges(1000, 10) == [(0, 1000)]
    assert ranges(1, HEAVY) == [(0, 1)]


def test_ranges_do_not_depend_on_the_number_of_threads():
    before, found = torch.get_num_threads(), []
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            found.append(ranges(777, 3000))
    finally:
        torch.set_num_threads(before)
    assert found[0] == found[1] == found[2]
    assert len(found[0]) > 1


def test_several_threads_work_at_once():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    both = threading.Barrier(2, timeout=20)
    try:
        share_out(2, HEAVY, lambda begin, end: both.wait())  # passes only if two are there
    finally:
        torch.set_num_threads(before)


def test_one_thread_starts_no_other():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    seen, long = set(), set()
    try:
        share_out(8, HEAVY // 16, lambda begin, end: seen.add(threading.current_thread()))
        share_out(8, HEAVY, lambda begin, end: long.add(threading.current_thread()))
    finally:
        torch.set_num_threads(before)
    assert seen == {threading.current_thread()}
    assert len(long) == 1  # the main thread waits for it, so that Ctrl-C works


def test_an_error_reaches_the_caller(threads):
    def work(begin, end):
        if begin <= 5 < end:
            raise ValueError(f"item {begin}")

    with pytest.raises(ValueError, match="item 5"):
        share_out(20, HEAVY, work)
    assert ranges(20, HEAVY) == [(i, i + 1) for i in range(20)], "the next call works"


def test_after_an_error_the_rest_is_left_undone(threads):
    done = []

    def work(begin, end):
        done.append(begin)
        if begin == 0:
            raise KeyboardInterrupt
        time.sleep(0.01)

    with pytest.raises(KeyboardInterrupt):
        share_out(64, HEAVY, work)
    assert len(done) < 64
    ended = len(done)
    time.sleep(0.05)
    assert len(done) == ended, "no worker continues after the call has returned"


def test_the_number_of_threads_does_not_change_a_bit():
    x = torch.randn(20, 40, 2, generator=torch.Generator().manual_seed(0)).cumsum(1)
    before, found = torch.get_num_threads(), []
    try:
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            a = x.clone().requires_grad_()
            value = soft_dtw_matrix(a, gamma=0.5)
            found.append((value.detach(), *torch.autograd.grad(value.sin().sum(), a)))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def _share_out_in_child(queue):
    torch.set_num_threads(2)
    queue.put((cpu._executor is None, ranges(20, HEAVY)))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_works_in_a_forked_child_after_the_parent_used_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        expected = ranges(20, HEAVY)
    finally:
        torch.set_num_threads(before)
    assert cpu._executor is not None
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_share_out_in_child, args=(queue,))
    child.start()
    forgotten, found = queue.get(timeout=60)
    child.join()
    assert forgotten, "the child starts threads of its own"
    assert found == expected


def test_kernels_that_flush_tiny_numbers_leave_the_processor_as_it_was(threads):
    x = torch.randn(40, 6, 2, requires_grad=True)
    for distance in (lw.SoftDTW(), lw.Sinkhorn(), lw.CoupledGRU(2, hidden=(3,))):
        distance(x, x.flip(0)).sum().backward()
        assert np.float32(np.finfo(np.float32).tiny) / np.float32(4) > 0


def test_probabilities_too_small_for_a_normal_number_are_no_slower():
    """Of a long pair that is far apart, nearly all cells; an Intel processor took seven times as long for them."""
    x, y = torch.randn(2, 64, 128, 9)

    def seconds(gamma):
        a = x.clone().requires_grad_()
        return cpu_seconds(lambda: lw.SoftDTW(gamma)(a, y).sum().backward(), repeats=5)

    assert seconds(1.0) < 3 * seconds(100.0) + 0.002


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals reach the main thread")
@pytest.mark.parametrize("name", ["value", "path", "gradient", "soft value", "soft gradient"])
def test_one_long_pair_can_be_interrupted(name):
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(1, 200_000, 1, generator=generator) for _ in range(2))
    leaf = x.clone().requires_grad_()
    work = {
        "value": lambda: dtw(x, y),
        "path": lambda: dtw_path(x, y),
        "gradient": lambda: dtw(leaf, y, rules=Rules.of("dtw", band=20_000)).backward(),
        "soft value": lambda: soft_dtw(x, y),
        "soft gradient": lambda: soft_dtw(leaf, y),
    }[name]
    sent = []

    def interrupt():
        sent.append(time.process_time())
        os.kill(os.getpid(), signal.SIGINT)

    def interrupted():
        timer.start()
        work()

    timer = threading.Timer(0.3, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        taken = time.process_time() - sent[0]
    finally:
        timer.join()
    assert taken < torch.get_num_threads()  # a second, were the machine not busy
    # The next call is not stopped.
    assert dtw(x[:, :100], y[:, :100]).isfinite().all()
