import sys; sys.path.insert(0,"benchmarks")
import torch
from gpu import replayed
from gdtw_gpu import signals, arguments
from likewise.ops.gdtw import Inputs
from likewise.ops.gdtw.gpu import search as S
from likewise.ops.launch import tape
V=[(128,8,1,16),(128,32,1,8),(64,8,9,4),(32,32,9,4),(64,16,9,4),(128,8,9,8)]
base=S.Search.tiles
for B,T in ((16,256),(4,512)):
    x,y=(e.cuda() for e in signals("walks",B,T,64))
    search=S.Search.of(Inputs(*arguments(x,y,0)))
    expected=search.search().clone()
    S.Search.tiles=base
    print("GDTW", B, T, "base", round(replayed(lambda: search.begin(search.scratch())),4), flush=True)
    for v in V:
        for small in ((False,True) if v[2]>1 else (True,)):
            def tiles(self, most, v=v):
                if most<=128 and not small: return base(self, most)
                lanes,step,shared,warps=v
                return lanes, step, min(-(-most//lanes), 132//(2*B)) if shared>1 else 1, warps
            S.Search.tiles=tiles
            try:
                found=search.search()
                t=0 if "--check" in sys.argv else round(replayed(lambda: search.begin(search.scratch())),4)
                print("GDTW", B, T, v, "all" if small else "large", "tiles", tiles(search,search.most_nodes(True)), "error", (found-expected).abs().max().item(), "ms", t, flush=True)
            except Exception as e: print("FAIL", B,T,v,type(e).__name__,str(e)[-300:],flush=True)
