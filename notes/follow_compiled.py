import torch, triton, sys, time
from triton.compiler import ASTSource
from triton.backends.compiler import GPUTarget
from likewise.ops.elastic.gpu import follow
k=follow.follow_kernel
def go(maxnreg=None,**c):
    base=dict(C=1,LISTED=False,SYMMETRIC=False,WINDOW=0,OPEN_BEGIN=False,OPEN_END=False,LINKED=False,EARLY=False,SINGLE=False,ROWS=8,LANES=32); base.update(c)
    sig={}
    for n in k.arg_names:
        if n in base: sig[n]='constexpr'
        elif n in('x','y','values','edges'): sig[n]='*fp64'
        elif n in('x_items','y_items','x_lengths','y_lengths'): sig[n]='*i64'
        elif n=='size_bits': sig[n]='i64'
        else: sig[n]='i32'
    attrs={(i,):[["tt.divisibility",16]] for i in range(8)}
    t=time.time()
    c_=triton.compile(ASTSource(k,sig,constexprs={(k.arg_names.index(n),):v for n,v in base.items()},attrs=attrs),target=GPUTarget('cuda',90,32),options={'num_warps':1,'num_stages':1,'maxnreg':maxnreg})
    import subprocess,tempfile,re
    f=tempfile.NamedTemporaryFile(suffix='.cubin'); f.write(c_.asm['cubin']); f.flush()
    import glob,os
    root=os.path.dirname(triton.__file__)
    tool=glob.glob(root+'/backends/nvidia/bin/*')
    cuo=[p for p in tool if p.endswith('cuobjdump')][0]; nvd=[p for p in tool if p.endswith('nvdisasm')][0]
    r=subprocess.run([cuo,'-res-usage',f.name],capture_output=True,text=True)
    print(c,re.findall(r'REG:\d+ STACK:\d+',r.stdout+r.stderr),len(c_.asm['cubin']))
    sass=subprocess.run([nvd,'-c',f.name],capture_output=True,text=True).stdout
    open('/tmp/el/'+'_'.join(f'{a}{int(b)}' for a,b in c.items())+'.sass','w').write(sass)
    cu=None
    return c_,cu
for kw in (dict(),dict(EARLY=True),dict(ROWS=4,LINKED=True),dict(SINGLE=True),dict(SINGLE=True,EARLY=True),dict(WINDOW=1,OPEN_BEGIN=True,OPEN_END=True,LINKED=True,SYMMETRIC=False),dict(C=3,ROWS=2,LINKED=True)):
    c,cu=go(**kw)
print(cu)
open('/tmp/el/f.ptx','w').write(c.asm['ptx'])
