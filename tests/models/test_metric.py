import io
import json
import os
import struct
from contextlib import redirect_stderr

import numpy as np
import pytest
import torch
from torch import nn

import likewise as lw
from likewise.models import config, storage
from likewise.models.frame_mlp import FrameMLP
from likewise.models.gru_encoder import GRUEncoder
from likewise.models.jitter import Jitter
from likewise.models.metric import Metric
from likewise.models.small_cnn import SmallCNN
from likewise.models.tcn import TCN
from likewise.testing import check_distance
from tests.timing import cpu_seconds


class Doubling(nn.Module):
    def __init__(self, channels, factor=2.0):
        super().__init__()
        self.channels, self.factor = channels, factor
        self.scale = nn.Parameter(torch.ones(channels))

    def forward(self, batch):
        return lw.Batch(batch.values * self.scale * self.factor, batch.lengths)


def metric(seed=0, distance=None):
    torch.manual_seed(seed)
    return Metric(FrameMLP(3, hidden=8, out=4), distance or lw.DTW())


def batch(lengths=(5, 2, 7, 1), seed=0):
    generator = torch.Generator().manual_seed(seed)
    return lw.Batch.from_list([torch.randn(n, 3, generator=generator) for n in lengths])


@pytest.mark.parametrize("distance", [lw.DTW(), lw.SoftDTW(0.5), lw.DTW(subsequence=True)], ids=repr)
def test_contract(distance):
    torch.manual_seed(0)
    check_distance(Metric(FrameMLP(3, hidden=8), distance).double())


def test_contract_without_an_encoder():
    check_distance(Metric(None, lw.DTW(band=2)))


def test_it_is_the_distance_of_encoded_items():
    m, x, y = metric(), batch(), batch((3, 4, 1, 6), seed=1)
    assert m.symmetric
    torch.testing.assert_close(m(x, y), lw.DTW()(m.encoder(x), m.encoder(y)))
    torch.testing.assert_close(m.matrix(x, y), lw.DTW().matrix(m.encoder(x), m.encoder(y)))
    torch.testing.assert_close(m.matrix(x), lw.DTW().matrix(m.encoder(x)))
    torch.testing.assert_close(m.align(x, y).plan, lw.DTW().align(m.encoder(x), m.encoder(y)).plan)
    torch.testing.assert_close(m.paired(x.values, y.values, x.lengths, y.lengths), m(x, y))
    assert not Metric(None, lw.DTW(subsequence=True)).symmetric


def test_a_loop_by_hand():
    m = metric()
    m.matrix(batch()).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in m.parameters())


def test_vectors_and_images():
    torch.manual_seed(0)
    m = Metric(SmallCNN(1, 4), lw.Euclidean())
    images = torch.randn(5, 1, 8, 8)
    assert m.matrix(images).shape == (5, 5)
    torch.testing.assert_close(m(images, images.flip(0)), m.matrix(images).flip(1).diagonal())
    assert m.embed(images, chunk=2).shape == (5, 4)
    vectors = Metric(nn.Linear(3, 2), lw.Cosine())
    assert vectors.matrix(np.ones((4, 3))).shape == (4, 4)  # float64 in, the encoder's float32 out
    torch.testing.assert_close(Metric(GRUEncoder(3, 4), lw.Euclidean()).matrix(batch()).diagonal(), torch.zeros(4))


def test_embed_works_in_chunks_in_eval_mode_without_gradients():
    torch.manual_seed(0)
    m = Metric(TCN(3, 4, dropout=0.5), lw.DTW())
    m.encoder.outward.eval()
    with redirect_stderr(io.StringIO()):
        whole, parts = m.embed(batch()), m.embed(batch(), chunk=3, progress=True)
    assert torch.equal(whole.lengths, parts.lengths)
    torch.testing.assert_close(list(whole), list(parts))  # PyTorch's order of summation depends on the batch size
    assert not whole.values.requires_grad
    assert m.encoder.training
    assert not m.encoder.outward.training
    assert m.encode(batch()) != whole  # dropout
    assert len(m.embed(batch()[:0])) == 0
    assert m.embed([[[1.0, 2.0, 3.0]], [[1.0, 2.0, 3.0]] * 2]).lengths.tolist() == [1, 2]


def test_large_sets_are_encoded_piece_by_piece_without_gradients(monkeypatch):
    m, sizes = metric(), []
    m.encoder.register_forward_hook(lambda module, given, out: sizes.append(len(out)))
    expected = m.matrix(batch())
    monkeypatch.setattr("likewise.models.metric.CHUNK", 3)
    with torch.no_grad():
        torch.testing.assert_close(m.matrix(batch()), expected)
    m.matrix(batch())
    assert sizes == [4, 3, 1, 4]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: Metric(lambda x: x, lw.DTW()), TypeError, "Metric: expected encoder to be an nn.Module or None"),
        (lambda: Metric(None, nn.Linear(1, 1)), TypeError, "Metric: expected distance to be a Distance, got Linear"),
        (
            lambda: metric().matrix(torch.zeros(3, 4)),
            ValueError,
            r"FrameMLP: expected x of shape \(B, T, C\), got \(3, 4\)",
        ),
        (lambda: metric().matrix(3), TypeError, "expected x to be a Batch"),
        (lambda: metric().matrix(torch.zeros(3, 4, 2)), ValueError, "FrameMLP: expected x with 3 channels, got 2"),
        (
            lambda: metric().embed(batch(), chunk=0),
            ValueError,
            "Metric.embed: chunk must be a whole number of 1 or more",
        ),
        (lambda: metric()(batch(), batch()[:2]), ValueError, "x has 4 sequences and y has 2"),
        (
            lambda: Metric(nn.Flatten(0), lw.Euclidean()).encode(torch.zeros(2, 3, 1, 1)),
            ValueError,
            "Metric: expected the encoder to return a Batch or a tensor of 2 items, got Tensor",
        ),
    ],
)
def test_bad_use_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


DISTANCES = [
    lw.DTW(),
    lw.DTW(band=3, ground="euclidean", normalize="steps"),
    lw.DTW(band=0.25, open_begin=True),
    lw.DTW(itakura=2.0, ground="cosine", open_end=True),
    lw.DTW(subsequence=True),
    lw.SoftDTW(0.1, band=2, open_end=True),
    lw.SoftDTWDivergence(2.0, itakura=1.5),
    lw.Euclidean(),
    lw.Euclidean(squared=True),
    lw.Cosine(),
    lw.TAP(4, (3, 5), symmetric=True),
    lw.TransformerTAP(4, 5, weight=2.0),
]


@pytest.mark.parametrize("distance", DISTANCES, ids=repr)
def test_distances_come_back(distance, tmp_path):
    m = metric(distance=distance)
    m.save(tmp_path / "new" / "run")
    loaded = Metric.load(tmp_path / "new" / "run")
    assert repr(loaded) == repr(m)
    assert not loaded.training
    assert torch.equal(loaded.matrix(batch()), m.matrix(batch()))


def test_a_continuous_distance_comes_back(tmp_path):
    m, x = Metric(None, lw.GDTW(0.3, band=0.4, slope=(0.1, 5.0), huber=2.0)), torch.randn(3, 6, 2)
    m.save(tmp_path)
    assert torch.equal(Metric.load(tmp_path).matrix(x), m.matrix(x))


@pytest.mark.parametrize(
    "encoder",
    [
        FrameMLP(3, 8, normalize=False),
        Jitter(FrameMLP(3, 8, dropout=0.5), noise=0.1),
        GRUEncoder(3, 4, layers=2, bidirectional=True, dropout=0.5),
        TCN(3, 4, causal=True, kernel=2, steps=False),
        None,
    ],
    ids=lambda e: type(e).__name__,
)
def test_encoders_come_back(encoder, tmp_path):
    m = Metric(encoder, lw.Euclidean()).eval()
    m.save(tmp_path)
    assert repr(Metric.load(tmp_path)) == repr(m)
    assert torch.equal(Metric.load(tmp_path).matrix(batch()), m.matrix(batch()))


def test_images_and_other_types_come_back(tmp_path):
    m = Metric(SmallCNN(1, 4, widths=(4, 8)), lw.Cosine()).double()
    m.save(tmp_path)
    loaded = Metric.load(tmp_path)
    assert next(loaded.parameters()).dtype == torch.float64
    images = torch.randn(3, 1, 8, 8, dtype=torch.float64)
    assert torch.equal(loaded.matrix(images), m.matrix(images))


def test_loading_costs_no_randomness(tmp_path):
    metric().save(tmp_path)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    Metric.load(tmp_path)
    assert torch.equal(torch.rand(3), expected)


def test_a_class_of_the_users(tmp_path):
    m = Metric(Doubling(3, factor=float("inf")), lw.DTW())
    m.save(tmp_path)
    with pytest.raises(ValueError, match=r"config.json.*unknown class 'Doubling'; known classes are .*DTW.*classes=\["):
        Metric.load(tmp_path)
    loaded = Metric.load(tmp_path, classes=[Doubling])
    assert loaded.encoder.factor == float("inf")
    assert "Infinity" not in (tmp_path / "config.json").read_text()
    same_name = type("DTW", (nn.Module,), {})
    with pytest.raises(ValueError, match="two classes are called DTW; rename yours"):
        Metric.load(tmp_path, classes=[same_name])
    with pytest.raises(TypeError, match=r"expected classes to be subclasses of nn.Module"):
        Metric.load(tmp_path, classes=["Doubling"])


def test_tied_weights_stay_tied(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(3, 3)
            self.b = nn.Linear(3, 3)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x))

    m = Metric(Tied(), lw.Euclidean()).double()
    m.save(tmp_path)
    loaded = Metric.load(tmp_path, classes=[Tied])
    assert loaded.encoder.a.weight is loaded.encoder.b.weight
    x = torch.randn(2, 3, dtype=torch.float64)
    assert torch.equal(loaded.matrix(x), m.matrix(x))


def test_what_a_file_cannot_hold_is_refused_by_name(tmp_path):
    def manhattan(x, y):
        return (x[:, :, None] - y[:, None]).abs().sum(-1)

    with pytest.raises(TypeError, match=r"DTW.ground: a file cannot hold the function 'manhattan'"):
        metric(distance=lw.DTW(ground=manhattan)).save(tmp_path / "x")
    assert not (tmp_path / "x").exists(), "nothing is written before the checks"

    class Forgetful(nn.Module):
        def __init__(self, size):
            super().__init__()

    with pytest.raises(TypeError, match=r"Forgetful: cannot find its argument 'size'; keep it in an attribute"):
        Metric(Forgetful(3), lw.DTW()).save(tmp_path)
    m = Metric(Doubling(3), lw.DTW())
    m.encoder.channels = {3}
    with pytest.raises(TypeError, match=r"Doubling.channels: a file cannot hold a set"):
        m.save(tmp_path)


def test_saving_again_replaces_and_leaves_nothing_behind(tmp_path):
    metric(0).save(tmp_path)
    metric(1).save(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    assert torch.equal(Metric.load(tmp_path).matrix(batch()), metric(1).matrix(batch()))


@pytest.fixture
def folder(tmp_path):
    metric().save(tmp_path)
    return tmp_path


def rewrite(folder, change):
    path = folder / "config.json"
    content = json.loads(path.read_text())
    change(content["metric"])
    path.write_text(json.dumps(content))


def encoder_setting(key, value):
    return lambda m: m["settings"]["encoder"]["settings"].__setitem__(key, value)


def distance_setting(name, settings):
    return lambda m: m["settings"].__setitem__("distance", {"class": name, "settings": settings})


def nested(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.__setitem__("class", "os.system"), "unknown class 'os.system'"),
        (lambda m: m.__setitem__("class", ["DTW"]), r"unknown class \['DTW'\]"),
        (lambda m: m.__setitem__("class", "FrameMLP"), "cannot make FrameMLP from its settings"),
        (lambda m: m.__setitem__("class", "Distance"), "unknown class 'Distance'"),
        (lambda m: m.__setitem__("settings", [1]), "expected the settings of Metric to be a mapping"),
        (lambda m: m.pop("settings"), "expected a mapping of class and settings"),
        (lambda m: m.__setitem__("path", "../../etc/passwd"), "expected a mapping of class and settings"),
        (
            lambda m: m["settings"].__setitem__("distance", 3),
            "cannot make Metric from its settings.*distance to be a Distance",
        ),
        (lambda m: m["settings"].__setitem__("distance", m["settings"]["encoder"]), "distance to be a Distance"),
        (lambda m: m["settings"].__setitem__("more", 1), "cannot make Metric from its settings"),
        (encoder_setting("channels", "3"), "expected channels to be a number, got str"),
        (encoder_setting("channels", -3), "channels must be a whole number"),
        (encoder_setting("channels", 1 << 60), "channels of FrameMLP is 1152921504606846976, more than 1048576"),
        (encoder_setting("dropout", 1 << 60), "is a whole number of more than 53 bits"),
        (encoder_setting("hidden", 1 << 20), r"has shape \(8, 3\), but the model's has \(1048576, 3\)"),
        (encoder_setting("hidden", 1 << 21), "hidden of FrameMLP is 2097152, more than 1048576"),
        (encoder_setting("depth", 60), r"asks for 60 layers, but model.safetensors holds \d+ tensors"),
        (encoder_setting("depth", 1024), "asks for 1024 layers"),
        (distance_setting("CoupledGRU", {"channels": 1, "hidden": [1] * 1024}), "asks for 1026 layers"),
        (distance_setting("GDTW", {"knots": 1 << 40}), "knots of GDTW is 1099511627776, more than 1048576"),
        (distance_setting("GDTW", {"refinements": 65}), "refinements of GDTW is 65, more than 64"),
        (
            distance_setting("GDTW", {"reg": {"tensor": [0, 1 << 60, 1 << 60], "learned": True}}),
            "the shape of a tensor",
        ),
        (distance_setting("GDTW", {"reg": {"tensor": [1 << 60], "learned": False}}), "expected the shape of a tensor"),
        (distance_setting("TAP", {"kernels": {"number": "inf"}}), "cannot make TAP from its settings"),
        (encoder_setting("normalize", "yes"), "expected normalize of FrameMLP to be true or false, got 'yes'"),
        (encoder_setting("__class__", "x"), "cannot make FrameMLP from its settings"),
        (encoder_setting("out", nested(30)), "more than 16 levels deep"),
        (encoder_setting("out", [1] * 5000), "has 5000 items; at most"),
        (encoder_setting("out", {"number": "1e999"}), "expected inf, -inf or nan"),
    ],
)
def test_hostile_settings_are_refused(folder, change, message):
    rewrite(folder, change)
    with pytest.raises(ValueError, match=message) as caught:
        Metric.load(folder)
    assert "config.json" in str(caught.value) or "model.safetensors" in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        encoder_setting("depth", 1024),
        distance_setting("CoupledGRU", {"channels": 1, "hidden": [1] * 256}),
        distance_setting("TAP", {"kernels": [1] * 256}),
        lambda m: m["settings"].__setitem__("encoder", {"class": "SmallCNN", "settings": {"widths": [1] * 256}}),
    ],
)
def test_many_layers_are_refused_at_once(folder, change):
    rewrite(folder, change)

    def refused():
        with pytest.raises(ValueError, match="asks for"):
            Metric.load(folder)

    assert cpu_seconds(refused) < 0.05


def test_unloadable_metrics_are_not_saved(tmp_path):
    with pytest.raises(ValueError, match="a file cannot hold it: refinements of GDTW is 99, more than 64"):
        Metric(None, lw.GDTW(refinements=99)).save(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
        (b" " * (storage.MOST_JSON + 1), "more than 1048576 bytes"),
        (b"\xff\xfe{}", "not valid JSON"),
        (b'{"likewise": 1, "metric": NaN}', "NaN is not a JSON number"),
        (b'{"likewise": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b'{"likewise": 2, "metric": {}}', "not a metric saved by likewise"),
        (b"[]", "not a metric saved by likewise"),
        (b'{"likewise": 1, "metric": {"class": "DTW", "settings": {}}}', "expected a Metric, got a DTW"),
    ],
)
def test_hostile_json_is_refused(folder, content, message):
    (folder / "config.json").write_bytes(content)
    with pytest.raises(ValueError, match=rf"config.json: .*{message}"):
        Metric.load(folder)


def header_of(folder):
    content = (folder / "model.safetensors").read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def write_header(folder, header, data):
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


@pytest.mark.parametrize("cut", [0, 4, 8, 20, 300, -1])
def test_cut_weights_are_refused(folder, cut):
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:cut])
    with pytest.raises(ValueError, match=r"model.safetensors: damaged, or not a safetensors file"):
        Metric.load(folder)


def test_hostile_headers_are_refused(folder):
    header, data = header_of(folder)
    for size in (1 << 62, 1 << 30):
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", size) + data)
        with pytest.raises(ValueError, match="damaged"):
            Metric.load(folder)
    first = next(name for name in header if name != "__metadata__")
    for change in ({"shape": [1 << 40, 1 << 40]}, {"data_offsets": [0, 1 << 50]}, {"dtype": "PICKLE"}):
        write_header(folder, header | {first: header[first] | change}, data)
        with pytest.raises(ValueError, match="damaged"):
            Metric.load(folder)


def test_other_tensors_are_refused(folder):
    weights = storage.read_tensors(folder / "model.safetensors", metric().state_dict(), limit=1 << 30)
    path = folder / "model.safetensors"
    first = "encoder.layers.0.weight"
    storage.write_tensors(path, {k: v for k, v in weights.items() if k != first})
    with pytest.raises(ValueError, match=f"lacks 1 of the model's tensors, such as '{first}'"):
        Metric.load(folder)
    storage.write_tensors(path, weights | {"extra": torch.zeros(1)})
    with pytest.raises(ValueError, match="has 1 tensors that the model does not have, such as 'extra'"):
        Metric.load(folder)
    storage.write_tensors(path, weights | {first: weights[first].T})
    with pytest.raises(ValueError, match=r"has shape \(3, 8\), but the model's has \(8, 3\)"):
        Metric.load(folder)
    storage.write_tensors(path, weights | {first: weights[first].long()})
    with pytest.raises(ValueError, match=r"is I64, but the model's is torch.float32"):
        Metric.load(folder)
    storage.write_tensors(path, weights)
    with pytest.raises(ValueError, match="bytes of tensors, more than limit=100"):
        Metric.load(folder, limit=100)


def test_large_buffers_are_refused_before_they_are_made(tmp_path):
    class Wide(nn.Module):
        def __init__(self, size):
            super().__init__()
            self.size = size
            self.register_buffer("table", torch.zeros(size), persistent=False)

    Metric(Wide(3), lw.DTW()).save(tmp_path)
    rewrite(tmp_path, encoder_setting("size", 1 << 40))
    with pytest.raises(ValueError, match="bytes of buffers, more than limit="):
        Metric.load(tmp_path, classes=[Wide])


def test_missing_and_odd_files(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"config.json: no such file"):
        Metric.load(tmp_path)
    metric().save(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"model.safetensors: no such file"):
        Metric.load(tmp_path)
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="not a regular file"):
        Metric.load(tmp_path)


def test_every_class_that_can_be_saved_is_known():
    names = config.known("test")
    assert {
        "DTW",
        "SoftDTW",
        "SoftDTWDivergence",
        "Euclidean",
        "Cosine",
        "FrameMLP",
        "GRUEncoder",
        "TCN",
        "SmallCNN",
    } <= set(names)
    assert all(kind.__module__.startswith("likewise.") for kind in names.values())
