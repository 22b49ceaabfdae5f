"""Where TAP's training step and an attended TCN's step spend their time; constants of TAP's kernels."""
import json, os, sys, time, statistics, cProfile, pstats, io
import torch
sys.path.insert(0, "benchmarks")
OUT = os.environ.get("OUT", "/tmp")
what = sys.argv[1:]

def wall(work, repeats=9):
    work(); work(); torch.cuda.synchronize()
    found, hosts = [], []
    for _ in range(repeats):
        t = time.perf_counter(); work(); h = time.perf_counter() - t
        torch.cuda.synchronize(); found.append(time.perf_counter() - t); hosts.append(h)
    return 1e3 * statistics.median(found), 1e3 * statistics.median(hosts)

def table(work, name, rows=22, n=3):
    from torch.profiler import profile, ProfilerActivity
    work(); torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as p:
        for _ in range(n): work()
        torch.cuda.synchronize()
    kernels = [e for e in p.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    total = {}
    for e in kernels:
        a = total.setdefault(e.name[:70], [0, 0.0]); a[0] += 1; a[1] += e.time_range.elapsed_us()
    busy = sum(t for _, t in total.values()) / n / 1e3
    count = sum(c for c, _ in total.values()) / n
    print(f"## {name}: GPU busy {busy:.3f} ms, {count:.0f} launches/copies", flush=True)
    for k, (c, t) in sorted(total.items(), key=lambda kv: -kv[1][1])[:rows]:
        print(f"   {t/n/1e3:8.3f} ms {c/n:5.1f}x  {k}")
    with open(f"{OUT}/{name}.txt", "w") as f:
        f.write(p.key_averages().table(sort_by="self_cpu_time_total", row_limit=50, max_name_column_width=60))
    return busy

def host(work, name, n=20, rows=40):
    work(); torch.cuda.synchronize()
    p = cProfile.Profile(); p.enable()
    for _ in range(n): work()
    p.disable()
    s = io.StringIO(); st = pstats.Stats(p, stream=s); st.sort_stats("tottime").print_stats(rows); st.sort_stats("cumulative").print_stats(70)
    open(f"{OUT}/{name}-host.txt", "w").write(s.getvalue())

def tap_step(B, T, C):
    from likewise import FrameMLP, Metric
    from likewise.distances.tap import TAP
    from likewise.losses import HardMining
    torch.manual_seed(0)
    x, labels = torch.randn(B, T, C, device="cuda"), torch.arange(B, device="cuda") % 4
    metric, measure = Metric(FrameMLP(C), TAP()).to("cuda"), HardMining()
    def step():
        metric.zero_grad(set_to_none=True)
        D = metric.matrix(x); measure(D, labels).backward()
    def encode(): metric.encode(x) if hasattr(metric, "encode") else metric.embed(x)
    def forward():
        return metric.matrix(x)
    D0 = metric.matrix(x).detach()
    def mining():
        D = D0.clone().requires_grad_(); measure(D, labels).backward()
    return step, forward, encode, mining

if "step" in what:
    for B, T, C in ((64, 51, 24), (64, 144, 9), (64, 206, 3)):
        step, forward, encode, mining = tap_step(B, T, C)
        torch.cuda.empty_cache(); torch.cuda.reset_peak_memory_stats()
        for name, w in (("step", step), ("forward", forward), ("encode", encode), ("mining", mining)):
            t, h = wall(w); print(f"T {T} C {C} {name}: wall {t:.2f} ms, host {h:.2f} ms", flush=True)
        print("peak GiB", torch.cuda.max_memory_allocated() / 2**30)
        table(step, f"tap-{T}", n=3)
        if T == 51: host(step, f"tap-{T}", 10)

if "attend" in what:
    import unseen_classes as u
    torch.set_float32_matmul_precision("high")
    plain = {"attended": False, "similarity": False, "adversary": False}
    cases = {"plain": plain} | {n: plain | {n: True} for n in plain} | {"all": dict.fromkeys(plain, True)}
    runs = {n: u.training_step("sequences", "cuda", **c) for n, c in cases.items()}
    for r in runs.values(): r(); r()
    from measure import interleave
    found = interleave(runs, 7, turn=0.15)
    for n, f in found.items(): print(f"{n}: {1e3*f:.3f} ms {f/found['plain']-1:+.1%}", flush=True)
    for n, r in runs.items():
        table(r, f"unseen-{n}", rows=12, n=5)
        host(r, f"unseen-{n}", 30, rows=30)
if "tune" in what:
    from likewise.ops.tap.gpu import convolutions, gradients, slopes
    from likewise.ops.tap.gpu.gradients import Work
    from likewise.distances.tap import TAP
    import itertools
    torch.manual_seed(0)
    B, T, C = 64, 51, 24
    tap = TAP().cuda(); x = torch.nn.functional.normalize(torch.randn(B, T, C, device="cuda"), dim=2)
    n = torch.full((B,), T); i, j = (t.flatten() for t in torch.meshgrid(torch.arange(B), torch.arange(B), indexing="ij"))
    w = [c.weight.detach() for c in tap.convolutions]; b = [c.bias.detach() for c in tap.convolutions]
    work = Work(x, x, n, n, w, b, i, j)
    line = next(iter(work._lines())); work._forward(line, keep=True); work._prepare()
    network = work.network
    def ms(f, reps=5):
        f(); torch.cuda.synchronize()
        times = []
        for _ in range(reps):
            a, z = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            a.record(); f(); z.record(); torch.cuda.synchronize(); times.append(a.elapsed_time(z))
        return statistics.median(times)
    given = work.plane, line.stride, line.cells
    def middle():
        convolutions.middle(work.hidden[0], work.distances, network, 1, work.hidden[1], work.products, *given, keep=True)
    scale = torch.ones((), device="cuda")
    def weights():
        work._to_weights(line, 1, work.hidden[0], work.spare, scale)
    def first(): convolutions.first(work.inputs, work.distances, network, work.hidden[0], work.products, *given, keep=True)
    print("cells", line.cells, "middle GFLOP", 2e-9 * line.cells * 25 * 32 * 32)
    print("middle", ms(middle), "weights", ms(weights), "first", ms(first), flush=True)
    def sweep(module, names, values, f, label):
        before = [getattr(module, k) for k in names]; rows = []
        for chosen in values:
            vars(module).update(zip(names, chosen))
            try: rows.append((ms(f), chosen))
            except Exception as e: rows.append((1e9, chosen)); print(chosen, str(e)[:80])
        vars(module).update(zip(names, before))
        print(label, names, [(round(t, 3), c) for t, c in sorted(rows, key=lambda r: r[0])[:6]], "worst", max(r[0] for r in rows), flush=True)
    t0 = time.time()
    sweep(convolutions, ("MIDDLE_ROWS", "MIDDLE_WARPS", "MIDDLE_STAGES", "MIDDLE_CACHE"), list(itertools.product((64, 128, 256), (4, 8), (2, 3, 4), (".ca", ".cg"))), middle, "middle")
    sweep(convolutions, ("FIRST_BLOCK", "FIRST_WARPS"), list(itertools.product((64, 128, 256), (4, 8))), first, "first")
    sweep(gradients, ("WEIGHT_ROWS", "WEIGHT_WARPS", "WEIGHT_STAGES"), list(itertools.product((32, 64, 128), (4, 8), (2, 3, 4))), weights, "weights")
    sweep(gradients, ("WEIGHT_CHUNK", "WEIGHT_PROGRAMS"), list(itertools.product((128, 256), (132, 264, 528))), weights, "weights chunk")
    print("tune took", time.time() - t0)
