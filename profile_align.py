"""Profile of the present state: kernels by name, in microseconds per call."""
import itertools, os, sys, time, json
sys.path.insert(0, "benchmarks")
import torch
from torch.profiler import profile, ProfilerActivity
import likewise as lw
from likewise.ops.soft_dtw import soft_dtw, soft_dtw_matrix
from likewise.ops.dtw import dtw_matrix
from likewise.ops.transport import Settings, transport_cost
torch.manual_seed(0)

def median(work, n=7):
    ts=[]
    for _ in range(2): work()
    for _ in range(n):
        torch.cuda.synchronize(); a=time.perf_counter(); work(); torch.cuda.synchronize(); ts.append(time.perf_counter()-a)
    return 1e3*sorted(ts)[n//2]

def kernels(name, work, n=5, top=12):
    try:
        for _ in range(3): work()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as p:
            for _ in range(n): work()
            torch.cuda.synchronize()
        rows=[(e.device_time_total/n, e.count/n, e.key) for e in p.key_averages() if str(e.device_type).endswith("CUDA")]
        rows.sort(reverse=True)
        print(f"## {name}: {sum(r[0] for r in rows):.0f} us of kernels")
        for t,c,k in rows[:top]: print(f"  {t:9.1f} us  x{c:5.1f}  {k[:90]}")
    except Exception as e: print("FAIL", name, type(e).__name__, str(e)[:300])
    sys.stdout.flush()

def soft(B,T,C):
    x=(torch.randn(B,T,C,device="cuda")/C**.5).requires_grad_(); y=(torch.randn(B,T,C,device="cuda")/C**.5).requires_grad_()
    def work():
        x.grad=y.grad=None
        soft_dtw(x,y).sum().backward()
    return work
CASES=((64,128,9),(32,512,64),(32,1024,64),(16,2048,64))
for c in CASES:
    kernels(f"soft {c}", soft(*c))
def pairs(f,n,T,C):
    x=torch.randn(n,T,C,device="cuda")/C**.5
    return lambda: f(x)
for f,n,T,C in ((dtw_matrix,128,2048,1),(soft_dtw_matrix,128,2048,1),(soft_dtw_matrix,256,512,16),(dtw_matrix,256,512,16)):
    kernels(f"{f.__name__} {n} {T} {C}", pairs(f,n,T,C), n=2)
    try: print("  ms", median(pairs(f,n,T,C)))
    except Exception as e: print(e)
# shapes of strips
from likewise.ops.engine import warps
from likewise.ops.soft_dtw import gpu as g
from likewise.ops.soft_dtw.gpu import backwards
from likewise.ops.launch import tape, launcher
import likewise.ops.engine as engine
from gpu import replayed
original=warps.shape
# OPW
x,y=torch.randn(2,4096,128,9,generator=torch.Generator().manual_seed(0))
cost=torch.cdist(x,y).square().cuda()
from likewise.ops.transport import gpu as tg
from likewise.ops.transport import reference
inner, newton, warps_of = tg._finish, tg._newton, tg._warps
def finish(c,*r):
    torch.cuda.synchronize(); a=time.perf_counter(); f=inner(c,*r); torch.cuda.synchronize(); print("   _finish:", len(c), "pairs", round(1e3*(time.perf_counter()-a),1),"ms"); return f
tg._finish=finish
OPW=Settings(.1,50.,1.)
try:
    n4=torch.full((16,),128); a4=reference.uniform(n4,128)
    truth=reference.solve(cost[:16].double().cpu(),n4,n4,a4,a4,Settings(.1,50.,1.,tolerance=1e-12))
    f=transport_cost(cost[:16],settings=OPW)
    print("newton kernel: plan error", ((f.plan.double().cpu()-truth[1]).abs().max()/truth[1].abs().max()).item(), "value", ((f.value.double().cpu()-truth[0]).abs().max()/truth[0].abs().max()).item(), "marginal", f.error.max().item(), flush=True)
    f=transport_cost(cost[:16].double(),settings=OPW)
    print("newton kernel float64: plan error", ((f.plan.double().cpu()-truth[1]).abs().max()/truth[1].abs().max()).item(), "marginal", f.error.max().item(), flush=True)
except Exception as e: print("FAIL newton", type(e).__name__, str(e)[-1500:], flush=True)
for w in (8,4,16):
    try:
        tg._warps=lambda *a: w
        print("opw converged, newton kernel, warps", w, median(lambda: transport_cost(cost,settings=OPW),3), flush=True)
    except Exception as e: print("FAIL newton", w, type(e).__name__, str(e)[-300:], flush=True)
tg._warps=warps_of
try:
    kernels("opw converged", lambda: transport_cost(cost,settings=OPW), n=1, top=25)
    tg._newton=lambda late,*r: late
    for s,n in ((Settings(1.0,tolerance=1e-5),"sinkhorn"),(Settings(.1,50.,1.,n_iter=20),"opw 20"),(OPW,"opw converged, PyTorch")):
        print(n, median(lambda: transport_cost(cost,settings=s),3), flush=True)
except Exception as e: print("FAIL opw", type(e).__name__, str(e)[-300:], flush=True)
tg._newton, tg._finish = newton, inner
kernels("opw 20", lambda: transport_cost(cost,settings=Settings(.1,50.,1.,n_iter=20)), n=1)
# GDTW
for B,T in ((16,256),(4,512)):
    t=torch.linspace(0,1,T)[:,None]; p=5+20*torch.rand(B,1,64)
    a=(torch.sin(p*t**1.3)+.05*torch.randn(B,T,64)).cuda().requires_grad_(); b=(torch.sin(p*t)+.05*torch.randn(B,T,64)).cuda().requires_grad_()
    d=lw.GDTW(reg=.1)
    def work():
        a.grad=b.grad=None
        d.warp(a,b).values.square().mean().backward()
    try: print("gdtw", B, T, median(work))
    except Exception as e: print("FAIL gdtw", e)
    kernels(f"gdtw {B} {T}", work, top=30)
    try:
        import cProfile, pstats
        with torch.no_grad(): print("gdtw forward only", median(lambda: d.warp(a,b)))
        def parts():
            torch.cuda.synchronize(); t0=time.perf_counter()
            v=d.warp(a,b).values; t1=time.perf_counter(); torch.cuda.synchronize(); t2=time.perf_counter()
            g=torch.autograd.grad(v.sum(),(a,b)); t3=time.perf_counter(); torch.cuda.synchronize(); t4=time.perf_counter()
            return [1e6*(q-p) for p,q in ((t0,t1),(t1,t2),(t2,t3),(t3,t4))]
        rows=[parts() for _ in range(20)]
        print("us: forward host, then sync, backward host, sync", [round(sorted(r[i] for r in rows)[10]) for i in range(4)])
        with profile(activities=[ProfilerActivity.CPU]) as p:
            for _ in range(5): work()
            torch.cuda.synchronize()
        for e in sorted(p.key_averages(), key=lambda e:-e.self_cpu_time_total)[:16]: print(f"   host {e.self_cpu_time_total/5:8.1f} us x{e.count/5:5.1f} {e.key[:60]}")
    except Exception as e: print("FAIL", e)
if "sweep" in sys.argv:
    for c in CASES:
        for rows in (1,2,4):
            for steps in (4,8):
                for back in (8,):
                    try:
                        how=warps.Shape(rows, c[1]>32*rows, steps)
                        g.shape=lambda *a,**k: how
                        backwards.STEPS=back
                        tape._tapes.clear()
                        print("soft", c, "rows", rows, "steps", steps, "back", back, round(replayed(soft(*c)),4), flush=True)
                    except Exception as e: print("FAIL", c, rows, steps, type(e).__name__, str(e)[:200])
