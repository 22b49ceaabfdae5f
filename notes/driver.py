"""Runs trainings side by side on one GPU until a deadline: persistent workers, data decoded once.

python scratch/driver.py PLAN SECONDS WORKERS, PLAN a Python file with rows() and others().
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
from papers.common import Run, find_line, from_command_line, moved  # noqa: E402
from papers.unseen_classes import run as unseen  # noqa: E402
from papers.unseen_classes.data import folds, read  # noqa: E402
from papers.unseen_classes.parts import Settings as Row  # noqa: E402
from papers.unseen_classes.report import best_epoch  # noqa: E402

OUT = Path(os.environ.get("OUT", "/tmp/out"))
DATA = Path(os.environ["LIKEWISE_DATA"])
DEVICE = os.environ.get("DEVICE", "cuda")
ITEMS = int(os.environ["ITEMS"]) if "ITEMS" in os.environ else None
READ = {}


class RowPlan:
    """A row of unseen classes: its held-out runs, then its seeds."""

    def __init__(self, out, seeds=(0, 1, 2, 3, 4), epochs=None, **options):
        self.settings = unseen.completed(Row(**options), DEVICE)
        if epochs is not None:
            self.settings = replace(self.settings, epochs=epochs)
        self.run = Run(seeds=tuple(seeds), data_dir=DATA, out=OUT / out, device=DEVICE, items=ITEMS)
        self.name = f"{options}"
        self.tried = list(unseen.weighted(self.settings))
        self.found = {}
        self.todo = [("A", self, k, fold) for k in range(len(self.tried)) for fold in (0, 1)]
        self.tests = None

    def next(self):
        if self.todo:
            return self.todo.pop(0)
        if self.tests is None and len(self.found) == 2 * len(self.tried):
            pairs = [(best_epoch([self.found[k, 0], self.found[k, 1]]), k) for k in range(len(self.tried))]
            best, k = max(pairs, key=lambda pair: (pair[0].recall, pair[0].map_at_r))
            self.best = replace(self.tried[k], epochs=best.epoch)
            self.tests = [("T", self, self.best, seed) for seed in self.run.seeds]
        if self.tests:
            return self.tests.pop(0)
        return None

    @property
    def over(self):
        return not self.todo and self.tests == []


def parts(data):
    if data not in READ:
        pair = read(data, DATA)
        train, test = (moved(unseen.thinned(part, ITEMS), DEVICE) for part in pair)
        READ[data] = train, test, folds(train)
    return READ[data]


def do(task):
    kind = task[0]
    if kind == "A":
        _, run, settings, fold = task
        train, test, pairs = parts(settings.data)
        rest, kept = pairs[fold]
        return unseen.experiment(run, settings, run.seeds[0], rest, kept, fold=fold)
    if kind == "T":
        _, run, settings, seed = task
        train, test, _ = parts(settings.data)
        return unseen.experiment(run, settings, seed, train, test, fold=None)
    _, module, given = task
    made = import_module(module)
    words = [w.replace("$OUT", str(OUT)) for w in given]
    names = {"papers.tap.run": ("Run", "Settings"), "papers.decdtw.run": ("Audio", "Settings"),
             "papers.decdtw.run_places": ("Rides", "Settings"), "papers.coupled_gru.run": ("Parts", "Settings")}
    first, second = names.get(module, ("Run", "Settings"))
    made.main(*from_command_line(getattr(made, first)(), getattr(made, second)(), arguments=words))
    return None


def work(number, pipe):
    log = open(OUT / f"log{number}.txt", "w", buffering=1)
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    if os.environ.get("BENCHMARK"):
        torch.backends.cudnn.benchmark = True
    print(f"worker up after {time.time() - BEGIN:.1f} s of its own", flush=True)
    while True:
        task = pipe.recv()
        if task is None:
            return
        try:
            pipe.send(("ok", do(task)))
        except BaseException:
            traceback.print_exc()
            pipe.send(("failed", traceback.format_exc()[-1500:]))


def main(plan, seconds, workers):
    made = runpy.run_path(plan)
    rows, others = made["rows"](RowPlan), made["others"]()
    say = open(OUT / "driver.txt", "a", buffering=1)
    print(f"ready {time.time() - BEGIN:.1f}", file=say)
    context = get_context("spawn")
    pipes, names, busy = [], [], {}
    kinds = made.get("pools", lambda n: ["A"] * n)(workers)
    for number in range(workers):
        mine, theirs = context.Pipe()
        process = context.Process(target=work, args=(number, theirs), daemon=True)
        process.start()
        pipes.append((mine, process, kinds[number]))

    def draw(kind):
        def from_rows():
            for row in rows:
                task = row.next()
                if task is not None:
                    return task
        def from_others():
            if others:
                return ("B", *others.pop(0))
        order = (from_rows, from_others) if kind == "A" else (from_others, from_rows)
        return order[0]() or order[1]()

    def give(mine, kind):
        task = draw(kind)
        if task is None:
            return False
        what = task
        if task[0] == "A":
            _, row, k, fold = task
            sent, name = ("A", row.run, row.tried[k], fold), f"{row.name} x{row.tried[k].factor} fold {fold}"
        elif task[0] == "T":
            _, row, settings, seed = task
            sent, name = ("T", row.run, settings, seed), f"{row.name} x{settings.factor} e{settings.epochs} seed {seed}"
        else:
            sent, name = task, " ".join(task[2])
        mine.send(sent)
        busy[mine] = (what, name, time.time())
        return True

    idle = [(mine, kind) for mine, _, kind in pipes]
    while time.time() - BEGIN < seconds:
        idle = [(mine, kind) for mine, kind in idle if not give(mine, kind)]
        if not busy:
            break
        for mine in connection.wait(list(busy), timeout=1):
            what, name, start = busy.pop(mine)
            try:
                state, line = mine.recv()
            except EOFError:
                print("died", name, file=say)
                continue
            print(f"{time.time() - BEGIN:6.1f} {time.time() - start:6.1f} s {state} {name}", file=say)
            if state == "failed":
                print(line, file=say)
            elif what[0] == "A":
                what[1].found[what[2], what[3]] = line
            idle.append((mine, next(kind for m, _, kind in pipes if m is mine)))
    for what, name, start in busy.values():
        print(f"cut {time.time() - start:6.1f} s {name}", file=say)
    for _, process, _ in pipes:
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
    print(f"end {time.time() - BEGIN:.1f}", file=say)
    for mine, process, _ in pipes:
        process.join(2)


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
