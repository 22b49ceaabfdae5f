import os; os.environ["TRITON_INTERPRET"]="1"
import torch, itertools, sys; torch.set_num_threads(1)
from likewise.ops.elastic import *
from likewise.ops.elastic import gpu, _tensors
from likewise.ops.elastic.gpu import follow
from likewise.ops.rules import Rules
sys.path.insert(0,'.')
from tests.ops.elastic_problems import RULES
def problem(seed,parts,c,n,m,batch=3,rules={}):
    g=torch.Generator().manual_seed(seed)
    def side(steps):
        L=torch.randint(1,steps+1,(batch,),generator=g); L[0]=steps
        x=torch.randn(batch,steps+parts-1,c,generator=g,dtype=torch.float64).unfold(1,parts,1).transpose(2,3).flatten(2)
        return Side(x.masked_fill((torch.arange(steps)>=L[:,None])[...,None],float('nan')),L)
    return side(n),side(m)
worst=0; import time; t0=time.time()
for k,(rule,(lanes,rows),parts,c,early) in enumerate(itertools.product(RULES,((4,2),(2,1),(32,8),(4,4)),(1,3,4),(1,2),(0,1))):
    if parts==4 and c==2 or k%int(sys.argv[1])!=int(sys.argv[2]): continue
    follow.LANES=lanes; follow.HOW.update(rows=rows,early=bool(early))
    x,y=problem(k,parts,c,*((13,9),(8,17),(5,5))[k%3])
    rules=Rules.of('t',**rule); moves=Moves(Recurrence.FOLLOW,parts=parts)
    args=(*_tensors(x,y,None),*moves.plain(),*rules.plain())
    e=elastic_matrix(x,y,moves,rules=rules); f=gpu.matrix(*args,False)
    err=float((e-f).abs().max()/e.abs().max()); worst=max(worst,err)
    v=gpu.value(*args); err2=float((v-elastic(x,y,moves,rules=rules)).abs().max()/e.abs().max())
    args=(*_tensors(x,x,None),*moves.plain(),*rules.plain())
    own=elastic_matrix(x,None,moves,rules=rules); f=gpu.matrix(*args,rules.symmetric)
    err3=float((own-f).abs().max()/max(1,own.abs().max()))
    if max(err,err2,err3)>1e-10 or any(z!=z for z in(err,err2,err3)): print(rule,lanes,rows,parts,c,early,err,err2,err3)
print(k,worst,time.time()-t0)
