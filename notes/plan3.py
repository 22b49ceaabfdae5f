"""T3: GDFL, its control and the loss alone, five seeds. The control's epochs are chosen here; those of the others were before."""

LOSSES = ("am_softmax", "proxy_nca", "triplet")
# By the held-out classes of lines.jsonl: epochs of the loss alone and of GDFL.
CHOSEN = {("am_softmax", "none"): 10, ("am_softmax", "gdfl"): 11, ("triplet", "none"): 1, ("triplet", "gdfl"): 3,
          ("proxy_nca", "none"): 12, ("proxy_nca", "gdfl"): 11}
SPEED = 2.0


def rows(make):
    made = []
    for loss in LOSSES:
        for add in ("pooled", "gdfl", "none"):
            row = make("five.jsonl", data="flowers102", loss=loss, add=add)
            if (loss, add) in CHOSEN:
                row.chosen(CHOSEN[loss, add])
            made.append(row)
    return made


def others():
    return []


def modes(number):
    return ("graph", "pads", "fused")
