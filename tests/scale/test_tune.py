import pytest
import torch

import likewise as lw
from likewise import DTW, scale
from likewise.selection import named_candidate, select
from tests.scale.conftest import walks

LABELS = [("walk", "run")[i % 2] for i in range(40)]


@pytest.mark.parametrize("engine", [None, "ray"])
def test_settings_side_by_side_equal_those_in_turn(cluster, engine):
    grid = {"band": [0, 1, 2, 3, 5, None]}
    found = scale.tune(DTW(), (walks(40), LABELS), grid, engine=engine)
    expected = lw.tune(DTW(), (walks(40), LABELS), grid)
    assert found.setting == expected.setting
    assert found.settings == expected.settings
    assert torch.equal(found.accuracies, expected.accuracies)


def test_candidates_side_by_side(cluster, tmp_path):
    shift = torch.tensor([0.0, 3.0]).repeat(20)[:, None, None]
    data = lw.Dataset(walks(40, 6) + shift, ["a", "b"] * 20)
    candidates = [named_candidate("dtw"), named_candidate("euclidean"), named_candidate("cosine")]
    found = scale.select(data, candidates, folder=tmp_path / "ray", engine="ray", minutes=0.1)
    assert {result.name for result in found.tried} == {candidate.name for candidate in candidates}
    assert all(result.rounds > 0 for result in found.tried if result.learns)
    assert found.complete
    assert (tmp_path / "ray" / "search.json").is_file()
    again = select(data, candidates, folder=tmp_path / "ray", minutes=0.1, resume=True)
    assert again.best.name == found.best.name


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="the grid has no settings"):
        scale.tune(DTW(), (walks(4), list("aabb")), {"band": []})
    with pytest.raises(ValueError, match="engine must be"):
        scale.tune(DTW(), (walks(4), list("aabb")), {"band": [1]}, engine="tune")
