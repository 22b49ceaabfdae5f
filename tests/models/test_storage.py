"""JSON and safetensors files; hostile ones are in test_metric.py."""

import json

import pytest
import torch

from likewise.models import storage
from likewise.models.storage import (
    parse_json,
    read_json,
    read_note,
    read_shapes,
    read_tensors,
    write_json,
    write_tensors,
)

TENSORS = {"weight": torch.arange(6.0).reshape(2, 3), "count": torch.tensor([3])}


def test_json_there_and_back(tmp_path):
    path = tmp_path / "config.json"
    value = {"a": [1, 2.5, None, "text"], "b": {"c": True}}
    write_json(path, value)
    assert read_json(path) == value
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(path, float("nan"))
    assert read_json(path) == value


def test_bad_json_is_refused(tmp_path, monkeypatch):
    for content, message in [
        ("{", "not valid JSON"),
        ("NaN", "NaN is not a JSON number"),
        ("[" * 10**5, "nested too deeply"),
    ]:
        with pytest.raises(ValueError, match=f"here: .*{message}"):
            parse_json("here", content)
    path = tmp_path / "long.json"
    path.write_text(json.dumps("x" * 100))
    monkeypatch.setattr(storage, "MOST_JSON", 50)
    with pytest.raises(ValueError, match="more than 50 bytes"):
        read_json(path)


def test_tensors_there_and_back(tmp_path):
    path = tmp_path / "model.safetensors"
    write_tensors(path, TENSORS | {"tied": TENSORS["weight"]}, note="a note")
    assert read_note(path) == "a note"
    shapes = read_shapes(path)
    assert all(tensor.is_meta for tensor in shapes.values())
    found = read_tensors(path, shapes, limit=1000)
    assert torch.equal(found["tied"], TENSORS["weight"])
    assert found["count"].dtype == torch.int64
    write_tensors(path, {"weight": TENSORS["weight"].half()})
    assert read_note(path) == ""
    assert read_tensors(path, {"weight": TENSORS["weight"]}, limit=1000)["weight"].dtype == torch.float16


@pytest.mark.parametrize(
    ("expected", "limit", "message"),
    [
        ({"weight": TENSORS["weight"]}, 1000, "has 1 tensors that the model does not have, such as 'count'"),
        (TENSORS | {"bias": torch.zeros(1)}, 1000, "lacks 1 of the model's tensors, such as 'bias'"),
        (TENSORS | {"weight": torch.zeros(3, 2)}, 1000, r"weight has shape \(2, 3\), but the model's has \(3, 2\)"),
        (TENSORS | {"count": torch.zeros(1)}, 1000, "count is I64, but the model's is torch.float32"),
        (TENSORS, 10, "32 bytes of tensors, more than limit=10"),
    ],
)
def test_other_tensors_are_refused(tmp_path, expected, limit, message):
    path = tmp_path / "model.safetensors"
    write_tensors(path, TENSORS)
    with pytest.raises(ValueError, match=message):
        read_tensors(path, expected, limit=limit)


def test_missing_and_damaged_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_note(tmp_path / "none")
    with pytest.raises(ValueError, match="not a regular file"):
        read_json(tmp_path)
    (tmp_path / "damaged").write_bytes(b"0" * 20)
    with pytest.raises(ValueError, match="damaged, or not a safetensors file"):
        read_shapes(tmp_path / "damaged")
