"""Runs trainings side by side on one GPU until a deadline: persistent workers, data decoded once.

python notes/driver.py PLAN SECONDS WORKERS, PLAN a Python file with rows(make), others() and modes(number).
"""

import os
import runpy
import signal
import sys
import time
import traceback
from dataclasses import replace
from importlib import import_module
from multiprocessing import connection, get_context
from pathlib import Path

BEGIN = time.time()
os.environ.setdefault("OMP_NUM_THREADS", "1")
import torch  # noqa: E402

torch.set_num_threads(1)
sys.path.insert(0, str(Path(__file__).parent))
import quick  # noqa: E402

from papers.common import Run, from_command_line, moved  # noqa: E402
from papers.unseen_classes import run as unseen  # noqa: E402
from papers.unseen_classes.data import folds, read  # noqa: E402
from papers.unseen_classes.parts import Settings as Row  # noqa: E402
from papers.unseen_classes.report import best_epoch  # noqa: E402

OUT = Path(os.environ.get("OUT", "/tmp/out"))
DATA = Path(os.environ["LIKEWISE_DATA"])
DEVICE = os.environ.get("DEVICE", "cuda")
ITEMS = int(os.environ["ITEMS"]) if "ITEMS" in os.environ else None
READ = {}
FOLD = 0.65  # of the work of an epoch of all training classes
NAMES = {"papers.tap.run": ("Run", "Settings"), "papers.decdtw.run": ("Audio", "Settings"),
         "papers.decdtw.run_places": ("Rides", "Settings"), "papers.coupled_gru.run": ("Parts", "Settings")}


class RowPlan:
    """A row of unseen classes: its held-out runs, then its seeds."""

    def __init__(self, out, seeds=(0, 1, 2, 3, 4), epochs=None, **options):
        self.settings = unseen.completed(Row(**options), DEVICE)
        if epochs is not None:
            self.settings = replace(self.settings, epochs=epochs)
        self.run = Run(seeds=tuple(seeds), data_dir=DATA, out=OUT / out, device=DEVICE, items=ITEMS)
        self.name = " ".join(map(str, options.values()))
        self.tried = list(unseen.weighted(self.settings))
        self.found = {}
        self.todo = [("A", self, k, fold) for k in range(len(self.tried)) for fold in (0, 1)]
        self.tests = None

    def chosen(self, epochs):
        """No held-out runs: the number of epochs is known."""
        self.todo, self.best = [], replace(self.tried[0], epochs=epochs)
        self.tests = [("T", self, self.best, seed) for seed in self.run.seeds]

    def next(self, fits):
        """The next task that fits into the time left."""
        if self.todo:
            return self.todo.pop(0) if fits(FOLD * self.settings.epochs) else None
        if self.tests is None and not os.environ.get("CHOOSE") and len(self.found) == 2 * len(self.tried):
            pairs = [(best_epoch([self.found[k, 0], self.found[k, 1]]), k) for k in range(len(self.tried))]
            best, k = max(pairs, key=lambda pair: (pair[0].recall, pair[0].map_at_r))
            self.best = replace(self.tried[k], epochs=best.epoch)
            self.tests = [("T", self, self.best, seed) for seed in self.run.seeds]
        if self.tests:
            return self.tests.pop(0) if fits(self.best.epochs + 1) else None
        return None


def parts(data):
    if data not in READ:
        pair = read(data, DATA)
        train, test = (moved(unseen.thinned(part, ITEMS), DEVICE) for part in pair)
        READ[data] = train, test, folds(train)
        print(f"{time.time() % 10000:.1f} data", flush=True)
    return READ[data]


def do(task):
    kind = task[0]
    if kind == "A":
        _, run, settings, fold = task
        rest, kept = parts(settings.data)[2][fold]
        return unseen.experiment(run, settings, run.seeds[0], rest, kept, fold=fold)
    if kind == "T":
        _, run, settings, seed = task
        train, test, _ = parts(settings.data)
        return unseen.experiment(run, settings, seed, train, test, fold=None)
    _, module, given = task
    made = import_module(module)
    words = [word.replace("$OUT", str(OUT)).replace("$REQ", os.environ.get("REQ", "")) for word in given]
    first, second = NAMES.get(module, ("Run", "Settings"))
    made.main(*from_command_line(getattr(made, first)(), getattr(made, second)(), arguments=words))
    return None


def profile():
    """Where the GPU's time goes in an epoch of one training."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as watch

    settings = unseen.completed(Row(data="flowers102", loss="am_softmax", epochs=1), DEVICE)
    rest, kept = parts("flowers102")[2][0]
    start = time.time()
    with watch(activities=[ProfilerActivity.CUDA]) as found:
        unseen.learn(Run(device=DEVICE), settings, 0, rest, kept, 0)
        torch.cuda.synchronize()
    rows = sorted(found.key_averages(), key=lambda row: -row.self_device_time_total)
    whole = sum(row.self_device_time_total for row in rows)
    print(f"profile: {time.time() - start:.2f} s, kernels {whole / 1e6:.3f} s, {sum(row.count for row in rows)} of them")
    for row in rows[:25]:
        print(f"{row.self_device_time_total / 1e3:9.1f} ms {row.count:6d} {row.key[:140]}", flush=True)


def work(number, pipe, modes):
    log = open(OUT / f"log{number}.txt", "w", buffering=1)
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    os.environ["WAIT"] = "1"
    torch.backends.cudnn.benchmark = "bench" in modes
    quick.MODES |= set(modes)
    scores = unseen.scores

    def scores_noted(*given, **named):
        found = scores(*given, **named)
        print(f"{time.time() % 10000:.1f} scored", flush=True)
        return found

    unseen.scores = scores_noted
    print(f"{time.time() % 10000:.1f} worker up after {time.time() - BEGIN:.1f} s of its own, {modes}", flush=True)
    if DEVICE == "cuda":
        torch.ones(4, device="cuda").sum().item()
        print(f"{time.time() % 10000:.1f} CUDA", flush=True)
    if "profile" in modes:
        try:
            profile()
        except Exception:
            traceback.print_exc()
    while True:
        task = pipe.recv()
        if task is None:
            return
        try:
            line = do(task)
            pipe.send(("ok", line))
        except BaseException as error:
            traceback.print_exc()
            broken = "graph broke" in str(error)
            pipe.send(("broken" if broken else "failed", traceback.format_exc()[-400:]))
            if broken:
                os._exit(1)


def main(plan, seconds, workers):
    made = runpy.run_path(plan)
    modes = made.get("modes", lambda number: ())
    say = open(OUT / "driver.txt", "a", buffering=1)
    context = get_context("spawn")
    pipes, busy = [], {}
    kinds = made.get("pools", lambda n: ["A"] * n)(workers)

    def begin(number, kind, modes):
        mine, theirs = context.Pipe()
        process = context.Process(target=work, args=(number, theirs, tuple(modes)), daemon=True)
        process.start()
        pipes.append((mine, process, kind, number))
        return mine

    for number in range(workers):
        begin(number, kinds[number], modes(number))
    rows, others = made["rows"](RowPlan), made["others"]()
    if rows:
        read("flowers102", DATA)
    print(f"ready {time.time() - BEGIN:.1f}", file=say)
    speed = [made.get("SPEED", 4.0)]  # seconds an epoch

    def fits(epochs):
        return time.time() - BEGIN + speed[0] * epochs < seconds

    def from_rows():
        for row in rows:
            task = row.next(fits)
            if task is not None:
                return task
        return None

    def from_others():
        return ("B", *others.pop(0)) if others else None

    def give(mine, kind):
        order = (from_rows, from_others) if kind == "A" else (from_others, from_rows)
        task = order[0]() or order[1]()
        if task is None:
            return False
        if task[0] == "A":
            _, row, k, fold = task
            sent, name = ("A", row.run, row.tried[k], fold), f"{row.name} x{row.tried[k].factor} fold {fold}"
        elif task[0] == "T":
            _, row, settings, seed = task
            sent, name = ("T", row.run, settings, seed), f"{row.name} x{settings.factor} e{settings.epochs} seed {seed}"
        else:
            sent, name = task, " ".join(task[2])
        mine.send(sent)
        busy[mine] = (task, name, time.time())
        return True

    idle = [(mine, kind) for mine, _, kind, _ in pipes]
    while time.time() - BEGIN < seconds:
        idle = [(mine, kind) for mine, kind in idle if not give(mine, kind)]
        if not busy:
            break
        for mine in connection.wait(list(busy), timeout=1):
            what, name, start = busy.pop(mine)
            number, kind = next((n, kind) for m, _, kind, n in pipes if m is mine)
            try:
                state, line = mine.recv()
            except EOFError:
                print(f"{time.time() - BEGIN:6.1f} died {name}", file=say)
                continue
            took, each = time.time() - start, (line or {}).get("seconds_an_epoch", 0) if state == "ok" else 0
            print(f"{time.time() - BEGIN:6.1f} {took:6.1f} s {state} worker {number} {each:.2f} an epoch, {name}", file=say)
            if state == "failed":
                print(line, file=say)
            elif state == "broken":
                (what[1].todo if what[0] == "A" else what[1].tests).insert(0, what)
                mine = begin(number + 100, kind, [mode for mode in modes(number) if mode != "graph"])
                print(line, file=say)
            elif what[0] == "A":
                what[1].found[what[2], what[3]] = line
            idle.append((mine, kind))
    for what, name, start in busy.values():
        print(f"cut {time.time() - start:6.1f} s {name}", file=say)
    for _, process, *_ in pipes:
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
    print(f"end {time.time() - BEGIN:.1f}", file=say)


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
