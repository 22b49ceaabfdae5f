"""Print the tables of DecDTW from their lines: python -m papers.decdtw.report."""

import statistics
from collections.abc import Iterator
from pathlib import Path

from papers.common import bold, read_lines, spread, table

HERE = Path(__file__).parent
FEATURES = {"cqt": "CQT", "chroma": "chroma", "mel": "mel"}
PATIENCE = 6  # of the audio lines: epochs without a better one, after which no more follow
AUDIO = {
    "base_dtw": "DTW, features as they are", "base_gdtw": "GDTW, features as they are", "softdtw": "soft-DTW",
    "along_gt": "Along-GT", "dilate": "DILATE", "decdtw": "DecDTW",
}  # fmt: skip
PLACES = {
    "base_dtw": "DTW, encoder as it is", "base_gdtw": "GDTW, encoder as it is", "otam": "OTAM",
    "along_gt": "Along-GT", "dilate": "DILATE", "decdtw": "DecDTW",
}  # fmt: skip

UNTUNED = {
    "retrieval": "nearest frame, each by itself", "monotone": "nearest frames in order, some passed over",
    "base_dtw": "DTW", "base_gdtw": "GDTW",
}  # fmt: skip


def tables() -> Iterator[str]:
    """The tables of README.md."""
    yield audio_table(read_lines(HERE / "audio.jsonl"))
    yield epochs_table(read_lines(HERE / "audio.jsonl"))
    yield crossed_table(read_lines(HERE / "audio.jsonl"), read_lines(HERE / "audio_crossed.jsonl"))
    yield places_table("", PLACES, read_lines(HERE / "places.jsonl"))
    yield places_table("encoder as it is, CPU", UNTUNED, read_lines(HERE / "places_cpu.jsonl"))
    yield constraints_table(read_lines(HERE / "constraints.jsonl"))


def sentences() -> Iterator[str]:
    """The sentences of README.md that quote results, from the lines."""
    places = read_lines(HERE / "places.jsonl")
    own, theirs = (
        {line["seed"]: 100 * line["below"]["1"] for line in places if line["method"] == method}
        for method in ("decdtw", "base_gdtw")
    )
    each = ", ".join(f"{theirs[seed]:.1f} to {own[seed]:.1f}" for seed in sorted(own))
    yield f"in each seed below one frame ({each})"
    audio = read_lines(HERE / "audio.jsonl")
    curves = [line["val_curve"] for line in audio if line["method"] in ("softdtw", "along_gt")]
    growth = sorted(max(curve[1:]) / min(curve) for curve in curves)
    yield f"their validation errors then grow to {growth[0]:.1f} to {growth[-1]:.1f} times the best"
    for low in read_lines(HERE / "audio_rates.jsonl"):
        key = [low[name] for name in ("method", "feature", "seed")]
        own = next(line for line in audio if [line[name] for name in ("method", "feature", "seed")] == key)
        yield f"has {low['val_time_err']:.2f} ms on the validation slices where 5e-4 has {own['val_time_err']:.2f}"
        if f"{low['time_err']:.1f}" == f"{own['time_err']:.1f}":
            yield f"and {low['time_err']:.1f} ms in the test, as with 5e-4"
    mel = sorted(line["time_err"] for line in audio if (line["method"], line["feature"]) == ("dilate", "mel"))
    low, middle, high = (f"{error:.1f}" for error in mel)
    yield f"one of its three seeds is still at {high} ms then, where the others have {middle} and {low}"


def audio_table(lines: list[dict]) -> str:
    """Table 1 of the paper: milliseconds, mean over the test slices and deviation over seeds, median in brackets."""
    rows = []
    for method, name in AUDIO.items():
        row = [name]
        for feature in FEATURES:
            same = [line for line in lines if (line["feature"], line["method"]) == (feature, method)]
            for score in ("time_err", "time_dev"):
                means, medians = ([line[key] for line in same] for key in (score, f"{score}_median"))
                row.append(f"{spread(means, '{:.1f}')} ({statistics.mean(medians):.1f})")
        rows.append(row)
    headings = [f"{name} {score}" for name in FEATURES.values() for score in ("TimeErr", "TimeDev")]
    return table(["", *headings], bold(rows, least=True))


def epochs_table(lines: list[dict]) -> str:
    """The best epoch of each audio run, and which runs the limit ended: their patience had not run out."""
    rows = []
    for method, name in AUDIO.items():
        same = [line for line in lines if line["method"] == method and "best_epoch" in line]
        if same:
            ended = [line for line in same if line["best_epoch"] + PATIENCE > line["epochs"]]
            own = (", ".join(str(line["best_epoch"]) for line in same if line["feature"] == each) for each in FEATURES)
            rows.append([name, *own, f"{len(ended)} of {len(same)}"])
    return table(["best epoch of each seed, of 20", *FEATURES.values(), "ended by the limit"], rows)


def crossed_table(lines: list[dict], crossed: list[dict]) -> str:
    """Tables 3 and 4 of the paper: TimeErr of every kind of features under DTW and under GDTW."""
    rows = []
    kinds = {"as they are": ("base_dtw", "base_gdtw"), **{AUDIO[name]: (name, name) for name in list(AUDIO)[2:]}}
    for kind, methods in kinds.items():
        row = [kind]
        for feature in FEATURES:
            for aligner, method in zip(("base_dtw", "base_gdtw"), methods, strict=True):
                own = "base_gdtw" if method in ("base_gdtw", "decdtw") else "base_dtw"
                same = [line for line in (lines if own == aligner else crossed)
                        if (line["feature"], line["method"]) == (feature, method)]  # fmt: skip
                found = [(line if own == aligner else line["crossed"])["time_err"] for line in same]
                row.append(spread(found, "{:.1f}"))
        rows.append(row)
    headings = [f"{name}, {aligner}" for name in FEATURES.values() for aligner in ("DTW", "GDTW")]
    return table(["TimeErr of features learned by", *headings], bold(rows, least=True))


def places_table(title: str, methods: dict[str, str], lines: list[dict]) -> str:
    """Share of test queries with a maximum error below so many frames, in percent, and the mean of that error."""
    shares, errors = [], []
    for method, name in methods.items():
        same = [line for line in lines if line["method"] == method]
        shares.append(
            [name, *(spread([100 * line["below"][str(t)] for line in same], "{:.1f}") for t in (1, 2, 3, 5, 10))]
        )
        errors.append([name, spread([line["max_error"] for line in same], "{:.2f}")])
    rows = [[*a, b[1]] for a, b in zip(bold(shares), bold(errors, least=True), strict=True)]
    return table([title, "< 1", "< 2", "< 3", "< 5", "< 10", "mean maximum error"], rows)


def constraints_table(lines: list[dict]) -> str:
    """TimeErr of each variant in thousandths of the duration, and what was learned."""
    rows = []
    for variant in dict.fromkeys(line["learned"] for line in lines):
        same = [line for line in lines if line["learned"] == variant]
        widths = zip(*(line["band"] for line in same), strict=True)
        rows.append([
            variant,
            f"{statistics.mean(line['time_err'] for line in same):.1f}",
            ", ".join(f"{line['time_err']:.1f}" for line in same),
            f"{statistics.geometric_mean([line['reg'] for line in same]):.3g}",
            " ".join(f"{statistics.mean(width):.2f}" for width in widths),
        ])  # fmt: skip
    return table(["learned", "TimeErr", "each seed", "lambda", "band"], rows)


if __name__ == "__main__":
    print(*tables(), sep="\n\n")
