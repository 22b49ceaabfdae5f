import json
import signal
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import likewise as lw
from likewise.selection import Candidate, Result, course, named_candidate, search, select, trainer
from likewise.selection.course import Course
from likewise.selection.division import divide

FEW = lw.distances.training_defaults.TrainingDefaults(lr=1e-2, batch_size=16, steps=24)


def walks(count=60, seed=0):
    """Two classes that differ in the direction in which they turn; DTW is no use."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    noise = torch.randn(count, 10, 2, generator=generator)
    noise[..., 1] = 5 * noise[..., 1]
    noise[:, 5, 0] += 8.0 * labels
    return lw.Dataset(noise, ["left", "right"] * (count // 2), groups=np.arange(count) // 6)


def quick(name, rate=1e-2, **options):
    class Few(lw.FrameMLP):
        training_defaults = replace(FEW, lr=rate)

    return Candidate(name, f"{name}.", lambda data: lw.Metric(Few(2, hidden=8, out=4), lw.Euclidean()), **options)


def flat(name="flat"):
    return Candidate(name, "no learning", lambda data: lw.Metric(None, lw.Euclidean()), learns=False)


@pytest.fixture(autouse=True)
def own_classes(monkeypatch):
    """What is loaded in these tests may be of a class that is defined here."""
    found = lw.Metric.load

    def load(folder):
        config = json.loads((folder / "config.json").read_text())
        if "Few" in json.dumps(config):
            config = json.loads(json.dumps(config).replace('"Few"', '"FrameMLP"'))
            (folder / "config.json").write_text(json.dumps(config))
        return found(folder)

    monkeypatch.setattr(trainer.Metric, "load", load)


def test_the_better_half_goes_on_and_the_best_is_kept(tmp_path):
    lines = []
    data = walks()
    candidates = [flat(), *(quick(f"learned-{i}", rate) for i, rate in enumerate((1e-2, 1e-6, 3e-3, 1e-7)))]
    report = lambda results, text: lines.append((text, results))  # noqa: E731
    found = select(data, candidates, folder=tmp_path, refit=False, report=report)
    by_name = {result.name: result for result in found.results}
    assert found.complete
    assert found.best.name in ("learned-0", "learned-2")
    assert found.best.map > by_name["flat"].map
    assert sorted(result.rounds for result in found.results) == [0, 1, 1, 2, 3]
    courses = {result.rounds: result.steps for result in found.results if result.learns}
    assert courses == {1: 6, 2: 12, 3: 24}
    assert lines[0][0] == "flat learns nothing and is scored once"
    assert len(lines) == 1 + 4 + 2 + 1
    assert all(list(results) == sorted(results, key=lambda result: -result.map) for _, results in lines)
    # The score is that of the metric which is returned, on items that it was not trained on.
    parts = divide(data, None, None, 0)
    assert set(parts.held.ids).isdisjoint(parts.train.ids)
    assert found.queries == len(parts.held) == 24
    scores = lw.evaluate(found.metric, parts.held, parts.train)
    assert (scores.map, scores.accuracy) == pytest.approx((found.best.map, found.best.accuracy))
    assert found.best.interval == scores.interval()
    assert found.best.right == tuple((scores.actual == scores.predicted).tolist())
    assert (found.refit, found.scored) == (0, found.metric)


def weights(metric):
    return torch.cat([tensor.flatten() for tensor in metric.state_dict().values()])


def test_the_best_learns_from_all_items_at_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(lw.FrameMLP, "training_defaults", FEW)  # which a loaded metric has
    candidates, lines = [flat(), quick("one")], []
    found = select(walks(), candidates, folder=tmp_path, report=lambda results, text: lines.append(text))
    assert lines[-1] == "one is trained with all items"
    assert found.best.best_steps in range(3, 25)
    assert found.refit == max(3, 3 * round(found.best.best_steps / 3 / 3))  # a third of the steps; an epoch has 3
    assert f"Then it was trained for {found.refit} more steps with all items" in str(found)
    assert not torch.equal(weights(found.metric), weights(found.scored))
    parts = divide(walks(), None, None, 0)
    assert lw.evaluate(found.scored, parts.held, parts.train).map == pytest.approx(found.best.map)
    # Resumed, it is the same, and is not trained again.
    monkeypatch.setattr(trainer, "fit", None)
    again = select(walks(), candidates, folder=tmp_path, resume=True)
    assert torch.equal(weights(again.metric), weights(found.metric))
    assert again.refit == found.refit


def test_without_time_or_after_ctrl_c_the_validated_weights_are_kept(tmp_path, monkeypatch):
    candidates = [flat(), quick("one")]
    select(walks(), candidates, folder=tmp_path, refit=False)

    def late(self, *given, **options):
        raise trainer.OutOfTime

    monkeypatch.setattr(trainer.Trainer, "_train", late)
    found = select(walks(), candidates, folder=tmp_path, resume=True)
    assert (found.best.name, found.refit, found.complete) == ("one", 0, True)

    def interrupted(self, *given, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer.Trainer, "_train", interrupted)
    state = json.loads((tmp_path / "search.json").read_text())
    (tmp_path / "search.json").write_text(json.dumps(state | {"refitted": {}}))
    found = select(walks(), candidates, folder=tmp_path, resume=True)
    assert (found.best.name, found.refit, found.complete) == ("one", 0, False)


def test_the_score_to_choose_by(tmp_path):
    results = {
        "a": Result("a", "", True, map=0.9, accuracy=0.7, precision=(0.9,)),
        "b": Result("b", "", True, map=0.8, accuracy=0.8, precision=(0.8,)),
        "c": Result("c", "", True, left_out="too slow"),
        "d": Result("d", "", True, map=0.9, accuracy=0.8, precision=(0.9,)),
    }
    for by, order in (("map", "dabc"), ("accuracy", "dbac")):
        searched = search._Search(trainer.Trainer(None, {}, tmp_path, 0, "cpu", by), print)
        searched.results = results
        assert "".join(result.name for result in searched.ranked()) == order
    with pytest.raises(ValueError, match="by must be one of map, accuracy, got 'f1'"):
        select(walks(), [flat()], folder=tmp_path, by="f1")


def test_a_search_resumes_where_it_was_interrupted(tmp_path, monkeypatch):
    candidates = [flat(), quick("one"), quick("two", 3e-3)]
    whole = select(walks(), candidates, folder=tmp_path / "whole")
    calls, fit = [], trainer.fit

    def interrupted(*given, **options):
        calls.append(options["epochs"])
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return fit(*given, **options)

    monkeypatch.setattr(trainer, "fit", interrupted)
    first = select(walks(), candidates, folder=tmp_path / "run")
    assert not first.complete
    assert str(first).endswith("The search was stopped before its end.")
    assert lw.evaluate(first.metric, walks()).map > 0
    again = select(walks(), candidates, folder=tmp_path / "run", resume=True)
    assert again.complete
    assert [(r.name, r.map, r.epochs) for r in again.results] == [(r.name, r.map, r.epochs) for r in whole.results]
    with pytest.raises(ValueError, match="other data, candidates, seed"):
        select(walks(seed=1), candidates, folder=tmp_path / "run", resume=True)
    with pytest.raises(ValueError, match="holds an earlier search"):
        select(walks(), candidates, folder=tmp_path / "run")
    with pytest.raises(ValueError, match="no search to resume"):
        select(walks(), candidates, folder=tmp_path / "none", resume=True)
    (tmp_path / "run" / "search.json").write_text("{}")
    with pytest.raises(ValueError, match="other data"):
        select(walks(), candidates, folder=tmp_path / "run", resume=True)


def test_without_a_result_ctrl_c_is_ctrl_c(tmp_path, monkeypatch):
    def interrupted(*given, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer, "evaluate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        select(walks(), [flat()], folder=tmp_path)


def test_what_is_too_slow_or_does_not_suit_is_left_out_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(Course, "predict", lambda self, data, pairs, device: (1e6, 0.0))
    found = select(walks(), [flat(), quick("slow"), named_candidate("cosine", "attended")], folder=tmp_path)
    reasons = {result.name: result.left_out for result in found.results}
    assert reasons["flat"] is None
    assert reasons["slow"].startswith("an epoch takes about 1000000 s, and ")
    assert "for images" in reasons["cosine, attended"]
    with pytest.raises(ValueError, match=r"no candidate could be tried .*slow: an epoch takes"):
        select(walks(), [quick("slow")], folder=tmp_path / "other")


def test_the_time_bounds_the_training(tmp_path):
    found = select(walks(), [flat(), quick("one")], folder=tmp_path, minutes=1e-6)
    assert {result.name: result.epochs for result in found.results} == {"flat": 0, "one": 0}
    assert found.best.name == "flat"


def test_slow_steps_do_not_break_the_budget(tmp_path, monkeypatch):
    """A step that takes long: the search ends within one of them, though no epoch was foreseen to take so long."""
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)  # on which only such steps take time
    for module in (search, trainer, course):
        monkeypatch.setattr(module, "time", clock)

    def slow(D, labels):
        clock.now += 0.25
        return D.mean()

    candidates = [flat(), quick("slow", loss=lambda: slow), quick("slower", loss=lambda: slow)]
    found = select(walks(200), candidates, folder=tmp_path, minutes=2 / 60)  # an epoch has 7 steps
    assert 0.5 <= clock.now <= 2.25
    assert {result.name: result.epochs for result in found.results}["slow"] == 0
    assert "did not end within" in next(result.left_out for result in found.results if result.name == "slow")
    assert found.best.name == "flat"


def test_wrong_arguments(tmp_path):
    with pytest.raises(TypeError, match="expected a Dataset with class labels"):
        select((torch.zeros(4, 3, 1), [0, 0, 1, 1]), folder=tmp_path)
    with pytest.raises(TypeError, match="expected a Dataset with class labels"):
        select(lw.Dataset(torch.zeros(4, 3, 1)), folder=tmp_path)
    with pytest.raises(ValueError, match="no two of the same name"):
        select(walks(), [flat(), flat()], folder=tmp_path)
    with pytest.raises(ValueError, match="minutes must be positive"):
        select(walks(), [flat()], folder=tmp_path, minutes=0)
