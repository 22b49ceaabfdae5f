#!/usr/bin/env bash
# On the GPU machine: unpack, run all check.sh side by side (deadline $1 s), then time.sh one after the other (deadline $2 s in all).
C=$PWD/.carry; R=/tmp/lw; mkdir -p $R $R/site; t0=$SECONDS
tar -C $R/site -xJf $C/site.tar.xz; [ -e $C/efficientnet.tar.xz ] && tar -C $R/site -xJf $C/efficientnet.tar.xz
export LIKEWISE_DATA=$C/data TRITON_INTERPRET=0 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 MPLBACKEND=Agg
mkdir -p $R/bin; printf '#!/bin/sh\nexec %s "$@"\n' "$(command -v python3)" > $R/bin/python; chmod +x $R/bin/python; export PATH=$R/bin:$PATH
nvidia-cuda-mps-control -d 2>/dev/null
base=$OUT; mkdir -p $R/out
one() { # name kind deadline
  mkdir -p $R/out/$1; cd $R/$1
  OUT=$R/out/$1 REQ=$C/req/$1 PYTHONPATH=$R/$1/src:$R/$1:$R/$1/benchmarks:$R/site COMMIT=$(cat $C/req/$1/commit) timeout -k 5 $3 bash $C/req/$1/$2.sh > $R/out/$1/$2.log 2>&1
  echo "$1 $2 rc $? at $((SECONDS-t0)) s" | tee -a $R/out/summary
}
for n in $(cat $C/names); do mkdir -p $R/$n; tar -C $R/$n -xJf $C/$n.tar.xz & done; wait
echo "unpacked at $((SECONDS-t0)) s"
for n in $(cat $C/names); do [ -e $C/req/$n/check.sh ] && one $n check $1 & done; wait $(jobs -p)
echo quit | nvidia-cuda-mps-control 2>/dev/null; sleep 1
end=$((SECONDS+$2))
for n in $(cat $C/names); do left=$((end-SECONDS)); [ -e $C/req/$n/time.sh ] && [ $left -gt 3 ] && ( one $n time $left ); done
cp $R/out/summary $base/ 2>/dev/null
tar -C $R/out -cJf $base/all.tar.xz . ; ls -la $base; nvidia-smi --query-gpu=clocks.sm,temperature.gpu --format=csv,noheader; cat $R/out/summary
