import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from likewise.data.batch import Batch
from likewise.data.dataset import Dataset
from likewise.data.tables import read_table, read_wide
from tests.data.damage import refusals_that_name

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

COLUMNS = {
    "who": ["b", "a", "b", "a", "b"],  # series may be mixed
    "t": [0, 0, 1, 1, 2],
    "kind": ["walk", "run", "walk", "run", "walk"],
    "subject": [1, 2, 1, 2, 1],
    "x": [1.0, 4.0, 2.0, 5.0, 3.0],
    "y": [10, 40, 20, 50, 30],
}
NAMED = {"id": "who", "time": "t", "label": "kind", "group": "subject"}


def frames(columns):
    """The same table of each library, and as a file."""
    return {
        "pandas": pd.DataFrame(columns),
        "polars": pl.DataFrame(columns, strict=False),
        "pyarrow": pa.table(columns),
    }


def check_gait(data):
    assert [item.tolist() for item in data.items] == [[[1, 10], [2, 20], [3, 30]], [[4, 40], [5, 50]]]
    assert data.ids == ("b", "a")  # in the order in which they begin
    assert data.labels.tolist() == ["walk", "run"]
    assert data.items.dtype == torch.float32


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_a_long_frame(library):
    data = Dataset.from_frame(frames(COLUMNS)[library], **NAMED)
    check_gait(data)
    assert data.groups.tolist() == [1, 2]
    only = Dataset.from_frame(frames(COLUMNS)[library], id="who", channels=["y"], dtype=torch.float64)
    assert only.items[0].tolist() == [[10], [20], [30]]
    assert only.labels is None


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
def test_files(tmp_path, ending):
    path, frame = tmp_path / f"gait.{ending}", pl.DataFrame(COLUMNS)
    if ending == "parquet":
        frame.write_parquet(path)
    else:
        frame.write_csv(path, separator="\t" if ending == "tsv" else ",")
    data = read_table(path, **NAMED)
    check_gait(data)
    assert data.groups.tolist() == ([1, 2] if ending == "parquet" else ["1", "2"])
    check_gait(read_table(path, id="who", time="t", label="kind", channels=["x", "y"]))


def test_text_is_not_made_to_numbers(tmp_path):
    path = tmp_path / "gait.csv"
    path.write_text('id,label,x\n01,007,1\n1,7,2\n"a,\nb",7,3\n')
    data = read_table(path, id="id", label="label")
    assert data.ids == ("01", "1", "a,\nb")
    assert data.labels.tolist() == ["007", "7", "7"]
    path.write_text("id,label,x\na,0.5,1\nb,2,2\n")
    assert read_table(path, id="id", label="label").labels.tolist() == [0.5, 2.0]


def test_kinds_of_times_and_numbers():
    days = pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-04"])
    frame = {"id": [7, 7, 7], "t": days, "x": pd.array([1, None, 4], dtype="Int64"), "up": [True, False, True]}
    data = Dataset.from_frame(pd.DataFrame(frame), id="id", time="t", fill="linear")
    assert data.ids == ("7",)
    assert data.items[0].tolist() == [[1, 1], [2, 0], [3, 0.5], [4, 1]]
    zone = pd.DataFrame({"id": ["a"] * 2, "t": days[:2].tz_localize("Europe/Paris"), "x": [1.0, 2.0]})
    assert Dataset.from_frame(zone, id="id", time="t").items[0].tolist() == [[1], [2]]
    kinds = pl.DataFrame({"id": ["a", "b"], "k": pl.Series(["u", "v"], dtype=pl.Categorical), "x": [1, 2]})
    assert Dataset.from_frame(kinds, id="id", label="k").labels.tolist() == ["u", "v"]


@pytest.mark.parametrize(
    ("fill", "expected"),
    [
        ("linear", [[1, 5], [2, 5], [3, 6], [4, 7], [4, 7]]),
        ("previous", [[1, 5], [1, 5], [1, 5], [4, 7], [4, 7]]),
        (-1, [[1, 5], [-1, -1], [-1, -1], [4, 7], [-1, -1]]),
    ],
)
def test_what_is_missing_is_filled_if_asked(fill, expected):
    columns = {"id": ["a"] * 4, "t": [0.0, 0.1, 0.3, 0.4], "x": [1.0, None, 4.0, None], "y": [5.0, None, 7.0, None]}
    if fill == "linear":
        columns["y"][1] = 5.0
    for frame in frames(columns).values():
        data = Dataset.from_frame(frame, id="id", time="t", fill=fill)
        assert data.items[0].tolist() == [pytest.approx(row) for row in expected]


REFUSED = {
    "no such column": ({}, {"time": "when"}, r"there is no column 'when'; the columns are 'who', 't'"),
    "twice a column": ({}, {"channels": ["x", "t"]}, "a column is given twice"),
    "time twice": ({"t": [0, 0, 1, 1, 1]}, {}, "row {4}, column 't': the time occurs twice"),
    "time goes back": ({"t": [0, 0, 2, 1, 1]}, {}, "row {4}, column 't': the time is before that of the previous row"),
    "missing step": ({"t": [0, 0, 1, 1, 4]}, {}, "row {4}, column 't': 2 steps are missing before this row; fill it"),
    "missing time": ({"t": [0, None, 1, 1, 2]}, {}, "row {1}, column 't': missing value"),
    "time is text": ({"t": ["0", "0", "1", "late", "2"]}, {}, "row {3}, column 't': expected a time.*'late'"),
    "missing id": ({"who": ["b", None, "b", "a", "b"]}, {}, "row {1}, column 'who': missing value"),
    "missing label": ({"kind": [None, "run", "walk", "run", "walk"]}, {}, "row {0}, column 'kind': missing value"),
    "label changes": (
        {"kind": ["walk", "run", "walk", "sit", "walk"]},
        {},
        "row {3}, column 'kind': sit, but the first row of this series has run",
    ),
    "group changes": (
        {"subject": [1, 2, 1, 2, 3]},
        {},
        "row {4}, column 'subject': 3, but the first row of this series has 1",
    ),
    "missing value": ({"y": [10, 40, None, 50, 30]}, {}, "row {2}, column 'y': missing value; fill it with fill="),
    "text": ({"x": ["1", "4", "2", "five", "3"]}, {}, "row {3}, column 'x': expected a number, got 'five'"),
    "infinite": ({"x": [1, 4, float("inf"), 5, 3]}, {}, "row {2}, column 'x': expected a finite number in float32"),
    "too large": ({"x": [1, 4, 1e39, 5, 3]}, {}, "row {2}, column 'x': expected a finite number in float32"),
    "no grid": (
        {"t": [0, 0, 1.0, 1, 2.5]},
        {"fill": 0},
        "row {4}, column 't': steps are not multiples of the smallest",
    ),
    "nothing before": ({"x": [None, 4, 2, 5, 3]}, {"fill": "previous"}, "row {0}, column 'x': no previous value"),
    "nothing at all": ({"x": [1, None, 2, None, 3]}, {"fill": "linear"}, "row {1}, column 'x': no value to fill from"),
    "unknown fill": ({}, {"fill": "next"}, "expected fill to be 'linear', 'previous', a number or None, got 'next'"),
    "infinite fill": ({}, {"fill": float("inf")}, "fill must be finite"),
    "no channels": ({}, {"channels": []}, "there are no channels"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow", "csv"])
def test_errors_name_row_and_column(case, library, tmp_path):
    change, settings, message = REFUSED[case]
    columns, first = COLUMNS | change, 0
    path = tmp_path / "gait.csv"
    if library == "csv":
        pd.DataFrame(columns).to_csv(path, index=False)
        first = 2  # a file's header is its row 1
    message = message.format(*range(first, first + 5))
    source = path if library == "csv" else frames(columns)[library]
    read = read_table if library == "csv" else Dataset.from_frame
    with pytest.raises(ValueError, match=message):
        read(source, **NAMED | settings)


def test_times_that_follow_no_clock_are_steps_as_they_come():
    columns = {"id": ["a"] * 3, "t": [0.0, 1.0, 2.7], "x": [1.0, 2.0, 3.0]}
    assert Dataset.from_frame(pd.DataFrame(columns), id="id", time="t").items[0].flatten().tolist() == [1, 2, 3]


def test_no_frame():
    with pytest.raises(TypeError, match="expected a pandas, polars or pyarrow table, got list"):
        Dataset.from_frame([1, 2], id="a")
    with pytest.raises(TypeError, match=r"expected dtype to be torch.float32 or torch.float64"):
        Dataset.from_frame(pd.DataFrame(COLUMNS), id="who", dtype=torch.float16)
    with pytest.raises(ValueError, match="there are no rows"):
        Dataset.from_frame(pd.DataFrame({"id": [], "x": []}), id="id")


def test_limits(tmp_path):
    path = tmp_path / "gait.csv"
    pd.DataFrame(COLUMNS).to_csv(path, index=False)
    with pytest.raises(ValueError, match=r"gait.csv: is larger than limit=10 bytes"):
        read_table(path, **NAMED, limit=10)
    rows = "".join(f"a{i},0,1\n" for i in range(100)) + "b,0,1\nb,999999999,2\n"
    path.write_text("id,t,x\n" + "c,0,1\nc,1,1\n" + rows)
    with pytest.raises(ValueError, match="steps, filled, take more than limit="):
        read_table(path, id="id", time="t", fill=0, limit=1 << 20)
    long = pl.DataFrame({"id": ["a"] * 1000, "x": [0.0] * 1000})
    long.write_parquet(tmp_path / "long.parquet", use_pyarrow=True, compression="zstd")
    with pytest.raises(ValueError, match=r"more than limit=900 bytes|larger than limit=900 bytes"):
        read_table(tmp_path / "long.parquet", id="id", limit=900)


@pytest.mark.parametrize(
    "content", [b"", b"id", b"id,x\na", b"id,x\na,1,2\n", b"id,id\n1,2\n", b"\xff\xfe\x00", b"id,x\n\n"]
)
@pytest.mark.parametrize("ending", ["csv", "parquet", "txt"])
def test_files_that_are_not_tables(content, ending, tmp_path):
    path = tmp_path / f"gait.{ending}"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"gait\."):
        read_table(path, id="id")


@given(content=st.binary(max_size=200))
@settings(deadline=None, max_examples=60)
def test_any_bytes_are_read_or_refused(content, tmp_path_factory):
    for ending, start in (("csv", b"id,t,x\n"), ("parquet", b"PAR1")):
        path = tmp_path_factory.getbasetemp() / f"any.{ending}"
        path.write_bytes(start + content)
        with refusals_that_name("any."):
            read_table(path, id="id", time="t")


def test_a_damaged_parquet_file_is_refused(tmp_path):
    path = tmp_path / "gait.parquet"
    pl.DataFrame(COLUMNS).write_parquet(path)
    whole = path.read_bytes()
    for cut in range(0, len(whole), 97):
        path.write_bytes(whole[:cut] + bytes([whole[cut] ^ 0xFF]) + whole[cut + 1 :])
        with refusals_that_name("gait.parquet"):
            read_table(path, **NAMED)


@pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
def test_round_trip(backend):
    values = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0))
    data = Dataset(Batch(values, [4, 1, 3]), ["b", "a", "b"], ids=("x", "y", "z"), groups=["p", "q", "p"])
    frame = data.to_frame(backend=backend, channels=("left", "right"))
    assert type(frame).__module__.split(".")[0] == backend
    again = Dataset.from_frame(frame, id="id", time="time", label="label", group="group")
    assert again.items == data.items
    assert (again.ids, again.classes) == (data.ids, data.classes)
    assert again.labels.tolist() == data.labels.tolist()
    assert again.groups.tolist() == data.groups.tolist()
    bare = Dataset(values).to_frame(backend=backend)
    assert Dataset.from_frame(bare, id="id", time="time").items == Batch(values)
    targets = Dataset(values, [0.5, 1.0, 2.0], groups=[3, 1, 2])
    again = Dataset.from_frame(targets.to_frame(backend=backend), id="id", time="time", label="label", group="group")
    assert (again.labels.tolist(), again.groups.tolist()) == ([0.5, 1.0, 2.0], [3, 1, 2])


def test_round_trip_through_files(tmp_path):
    data = Dataset([[1.5, 2.25], [3.0]], ["walk", "run"], ids=("a", "b"))
    frame = data.to_frame(backend="polars")
    frame.write_csv(tmp_path / "gait.csv")
    frame.write_parquet(tmp_path / "gait.parquet")
    for ending in ("csv", "parquet"):
        again = read_table(tmp_path / f"gait.{ending}", id="id", time="time", label="label")
        assert again.items == data.items
        assert again.labels.tolist() == ["walk", "run"]


def test_frames_that_could_not_be_read_back():
    data = Dataset(torch.zeros(2, 3, 1))
    with pytest.raises(ValueError, match="expected 1 names of channels, got 2"):
        data.to_frame(channels=("a", "b"))
    with pytest.raises(ValueError, match="two columns would have the same name"):
        data.to_frame(channels=("time",))
    with pytest.raises(ValueError, match="two items have the same id"):
        data[[0, 0]].to_frame()


def test_wide_files(tmp_path):
    path = tmp_path / "gait.csv"
    path.write_text("name,t0,t1,t2,class\na,1,2,3,walk\nb,4,5.5,6,run\n")
    for arguments in ({"label": "class", "id": "name"}, {"label": 4, "id": 0}):
        data = read_wide(path, **arguments)
        assert data.items.values[..., 0].tolist() == [[1, 2, 3], [4, 5.5, 6]]
        assert (data.ids, data.labels.tolist()) == (("a", "b"), ["walk", "run"])
    path = tmp_path / "gait.tsv"
    path.write_text("1\t0.5\t1e3\t\n2\t1\t\t\n")  # as the UCR archive has it
    data = read_wide(path, label=0, header=False, ragged=True)
    assert [item.flatten().tolist() for item in data.items] == [[0.5, 1000], [1]]
    assert data.labels.tolist() == ["1", "2"]
    pl.DataFrame({"k": ["a", "b"], "s0": [1.0, 2.0], "s1": [3.0, 4.0]}).write_parquet(tmp_path / "gait.parquet")
    assert read_wide(tmp_path / "gait.parquet", label="k").items.values[..., 0].tolist() == [[1, 3], [2, 4]]


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("k,a,b\nu,1,2\nv,,3\n", {"ragged": True}, r"gait.csv: row 3, column 'a': missing value$"),
        ("k,a,b\nu,1,2\nv,3,\n", {}, r"gait.csv: row 3, column 'b': missing value; pass ragged=True"),
        ("k,a,b\nu,1,2\nv,,\n", {"ragged": True}, r"row 3, column 'a': the series is empty"),
        ("k,a,b\nu,1,x\n", {}, r"row 2, column 'b': expected a number, got 'x'"),
        ("k,a,b\n,1,2\n", {}, r"row 2, column 'k': missing value"),
        ("k\nu\n", {}, "there are no steps"),
        ("k,a\n", {}, "there are no rows"),
        ("k,a\nu,1\n", {"label": "z"}, "there is no column 'z'"),
        ("k,a\nu,1\n", {"label": 7}, "the number of a column must be a whole number from 0 to 1"),
        ("k,a\nu,1,2\n", {}, "gait.csv: not a table that can be read: .*Row #2: Expected 2 columns, got 3"),
    ],
)
def test_wide_files_that_are_refused(text, arguments, message, tmp_path):
    path = tmp_path / "gait.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_wide(path, **{"label": "k"} | arguments)


def test_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r'pip install "likewise\[tables\]"'):
        Dataset.from_frame(None, id="a")
    with pytest.raises(ImportError, match=r'pip install "likewise\[tables\]"'):
        Dataset(torch.zeros(1, 2, 1)).to_frame()


def test_many_rows_are_read_in_a_moment():
    count = 200_000
    frame = pl.DataFrame(
        {"id": np.arange(count) // 100, "t": np.arange(count) % 100, "x": np.random.default_rng(0).random(count)}
    )
    data = Dataset.from_frame(frame, id="id", time="t")
    assert len(data) == 2000
    assert data.items.lengths.unique().tolist() == [100]
