LOSSES = ("am_softmax", "proxy_nca", "triplet")
CORE = ("pooled", "gdfl", "none", "gdfl+soft_adv", "pooled+soft_adv", "soft_adv", "adapt_adv", "gdfl+adapt_adv", "jrd",
        "gdfl+soft_adv+jrd", "energy", "mrd", "jmmd")

def rows(make):
    return [make("five.jsonl", data="flowers102", loss=loss, add=add) for add in CORE for loss in LOSSES]

def others():
    base = "--data msr_action3d --epochs 100 --checks 30 60 --lr 1e-4 --no-cosine --dropout 0 --jitter 0 0 0 --validate --seeds 0 --out $OUT/actions.jsonl"
    units = [("tap_ordered", f, "") for f in range(5)] + [("otam", f, "") for f in range(5)]
    units += [("tap_symmetric", f, "") for f in range(5)] + [("tap", f, "--precision bf16-mixed") for f in range(5)]
    return [("papers.tap.run", f"{base} --distance {d} --fold {f} {more}".split()) for d, f, more in units]

def pools(n):
    return ["B" if k % 7 in (1, 4) else "A" for k in range(n)]
