"""Variants of follow_kernel: correctness against the CPU, then times."""
import sys, time, itertools, torch, likewise as lw
from likewise.ops.elastic.gpu import follow
from likewise.distances import shape_dtw
part = sys.argv[1]
torch.manual_seed(0)
def timed(f, r=3):
    f(); torch.cuda.synchronize(); best=[]
    for _ in range(r):
        t=time.perf_counter(); f(); torch.cuda.synchronize(); best.append(time.perf_counter()-t)
    return sorted(best)[r//2]
def say(*a): print(*a, flush=True)
variants=[dict(rows=r,early=e,single=s) for r,e,s in ((8,False,False),(8,True,False),(4,False,False),(4,True,False),(8,False,True),(8,True,True),(4,True,True))]
if part=='check':
    from tests.ops.elastic_problems import RULES
    for v in variants:
        follow.HOW.update(v)
        worst=0
        try:
            for rule in RULES:
                for n,m,c,reach in ((300,260,1,15),(40,64,2,3),(70,5,1,0),(600,130,3,4)):
                    d=lw.ShapeDTW(reach, **rule)
                    x,y=torch.randn(9,n,c).double().cumsum(1),torch.randn(7,m,c).double().cumsum(1)
                    bx=lw.Batch(x,torch.randint(max(1,n-30),n+1,(9,))); by=lw.Batch(y,torch.randint(max(1,m-20),m+1,(7,)))
                    e=d.matrix(bx,by); f=d.matrix(bx.to('cuda'),by.to('cuda')).cpu()
                    worst=max(worst,float((e-f).abs().max()/e.abs().max()))
                    e=d.matrix(bx); f=d.matrix(bx.to('cuda')).cpu()
                    worst=max(worst,float((e-f).abs().max()/e.abs().max()))
            say('check',v,worst)
        except Exception as error:
            say('check',v,'FAILED',rule,(n,m,c,reach),repr(error)[:600])
else:
    x, y = (torch.randn(1000, 256, 1).cumsum(1) for _ in range(2))
    X,Y=x.cuda(),y.cuda(); cells=1000*1000*256*256
    want=lw.ShapeDTW().matrix(x[:4].double(),y.double())
    for v in variants:
        for programs in (None,160,128):
            follow.HOW.update(v,maxnreg=programs)
            follow_l=sys.modules['likewise.ops.launch.launcher']; follow_l._compiled.clear(); follow_l._ready.clear()
            try:
                d=lw.ShapeDTW()
                f=d.matrix(X,Y)
                err=float(((f[:4].cpu().double()-want).abs().max()/want.abs().max()))
                a=d.side(X.double(),None).frames; b=d.side(Y.double(),None).frames
                L=torch.full((1000,),256,device='cuda')
                k=timed(lambda: follow.run_follow(a,b,d.moves(),d.rules,(L,L),None))
                w=timed(lambda: d.matrix(X,Y)); shape_dtw.ITEMS=1024; w2=timed(lambda: d.matrix(X,Y)); shape_dtw.ITEMS=256
                say(v,programs,'err %.1e kernel %.1f ms %.3f T/s; matrix %.1f, blocks of 1024 %.1f ms %.3f T/s'%(err,k*1e3,cells/k/1e12,w*1e3,w2*1e3,cells/w2/1e12))
            except Exception as error: say(v,programs,'FAILED',repr(error)[:600])
    from likewise.ops.launch import launcher; launcher._compiled.clear(); launcher._ready.clear()
    follow.HOW.update(rows=8,early=False,single=False,maxnreg=160)
    for n,c in ((128,3),(1000,1),(64,1),(256,6)):
        k=200; x,y=torch.randn(k,n,c,device='cuda').cumsum(1),torch.randn(k,n,c,device='cuda').cumsum(1)
        t=timed(lambda: lw.ShapeDTW().matrix(x,y)); say(n,c,'%.1f ms %.3f T/s'%(t*1e3,k*k*n*n/t/1e12))
        follow_few=sys.modules['likewise.ops.elastic.gpu']; old=follow_few.FEW; follow_few.FEW=0
        t=timed(lambda: lw.ShapeDTW().matrix(x,y)); say('   before','%.1f ms %.3f T/s'%(t*1e3,k*k*n*n/t/1e12)); follow_few.FEW=old
