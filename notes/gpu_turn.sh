#!/usr/bin/env bash
# turn K: collects ready requests into /work/main/.carry for GPU turn K.
set -euo pipefail
K=$1; C=/work/main/.carry; rm -rf $C; mkdir -p $C/data $C/req
cp /work/gpu/site.tar.xz $C/
: > $C/names
for r in /work/gpu/requests/*/; do
  n=$(basename $r); [ -e $r/ready ] || continue
  w=/work/wt/$n
  mkdir -p $C/req/$n; cp -r $r/. $C/req/$n/
  echo $n >> $C/names
  ( cd $w; /work/bin/native --gpu . > /tmp/native-$n.log 2>&1 || { echo "native --gpu failed for $n"; tail -3 /tmp/native-$n.log; }
    so=$w/build/gpu/_native.abi3.so; strip -o /tmp/_native.abi3.so $so
    { git ls-files -co --exclude-standard; } | grep -v -E '\.png$|^docs/_|\.pt$' | sort -u | while read f; do [ -e "$f" ] && echo "$f"; done > /tmp/files-$n
    tar -cf /tmp/work-$n.tar -T /tmp/files-$n
    mkdir -p /tmp/so-$n/src/likewise; cp /tmp/_native.abi3.so /tmp/so-$n/src/likewise/; tar -C /tmp/so-$n -rf /tmp/work-$n.tar src/likewise/_native.abi3.so
    xz -3 -T2 -f -c /tmp/work-$n.tar > $C/$n.tar.xz; git rev-parse --short HEAD > $C/req/$n/commit )
  if [ -e $r/data.txt ]; then while read f; do [ -n "$f" ] || continue; mkdir -p $C/data/$(dirname $f); [ -e $C/data/$f ] || cp -L /work/shared/data/$f $C/data/$f; done < $r/data.txt; fi
  grep -q "efficientnet" $r/data-extra.txt 2>/dev/null && cp /work/gpu/efficientnet.tar.xz $C/ || true
done
cp /work/bin/gpu_main.sh $C/
chmod -R u+rwX $C
du -sh $C; ls -la $C $C/data; cat $C/names
