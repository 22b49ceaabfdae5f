import csv

import pytest

from likewise.training.history import History, Score


def test_history_by_hand():
    assert repr(History()) == "History(0 epochs, 0.0 s)"
    assert History([1.0], [2.0]).best is None
    assert History([1.0], [2.0]).best_epoch is None
    assert repr(History([1.0], [2.0])) == "History(1 epoch, loss 1, 2.0 s)"


def test_a_score_has_its_numbers_by_name():
    score = Score(1, 3, {"recall@1": 0.5, "map": 0.25})
    assert score["recall@1"] == 0.5
    assert score.map == 0.25
    assert str(score) == "recall@1 0.5000, map 0.2500"
    with pytest.raises(AttributeError, match="the validation measured recall@1, map, not accuracy"):
        score.accuracy  # noqa: B018


def test_rows_have_the_last_score_of_their_epoch(tmp_path):
    scores = [Score(0, 0, {"error": 9.0}), Score(0.5, 2, {"error": 5.0}), Score(1, 4, {"error": 4.0})]
    history = History([2.0, 1.0], [0.5, 0.5], [*scores, Score(1.5, 6, {"error": 3.0})], best_step=6)
    assert [row["error"] for row in history.rows()] == [4.0, 3.0]
    assert history.best_epoch == 1.5
    history.write_csv(tmp_path / "log.csv")
    with (tmp_path / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[1] == {"epoch": "2", "loss": "1.0", "seconds": "0.5", "error": "3.0"}
    assert history.to_plain()["scores"][1] == {"epoch": 0.5, "step": 2, "numbers": {"error": 5.0}}
