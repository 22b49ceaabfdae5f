import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_sequence

from likewise.data.batch import Batch, as_sequences

LENGTHS = [3, 2, 1, 5]


def example(dtype=torch.float32, channels=2) -> Batch:
    """Four sequences that count up, with NaN for padding."""
    values = torch.arange(4 * 5 * channels, dtype=dtype).reshape(4, 5, channels)
    lengths = torch.tensor(LENGTHS)
    return Batch(values.masked_fill((torch.arange(5) >= lengths[:, None])[..., None], torch.nan), lengths)


@st.composite
def sequences(draw):
    """A list of arrays (T_i, C), of one type."""
    channels = draw(st.integers(1, 3))
    lengths = draw(st.lists(st.integers(1, 6), max_size=5))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return [generator.standard_normal((length, channels)).astype(dtype) for length in lengths]


def test_without_lengths_every_step_is_real():
    batch = Batch(torch.zeros(2, 3, 1))
    assert batch.lengths.tolist() == [3, 3]
    assert batch.lengths.dtype == torch.int64
    assert batch.mask.all()


@pytest.mark.parametrize(
    "lengths",
    [[3, 1], (3, 1), np.array([3, 1], np.int32), torch.tensor([3, 1]), torch.tensor([3, 1], dtype=torch.int32)],
    ids=["list", "tuple", "array", "int64", "int32"],
)
def test_lengths_become_int64_on_the_cpu(lengths):
    batch = Batch(torch.zeros(2, 3, 1), lengths)
    assert batch.lengths.tolist() == [3, 1]
    assert batch.lengths.dtype == torch.int64
    assert batch.lengths.device.type == "cpu"


def test_properties():
    batch = example(torch.float64)
    assert (len(batch), batch.channels, batch.dtype, batch.device) == (4, 2, torch.float64, torch.device("cpu"))
    assert batch.mask.sum(1).tolist() == LENGTHS
    assert batch.mask[1].tolist() == [True, True, False, False, False]


def test_a_batch_holds_the_tensor_it_was_given():
    values = torch.zeros(2, 3, 1, requires_grad=True)
    assert Batch(values).values is values


@pytest.mark.parametrize(
    ("values", "lengths", "error", "message"),
    [
        (np.zeros((2, 3, 1)), None, TypeError, "Batch: expected values to be a torch.Tensor, got ndarray"),
        (torch.zeros(2, 3, 1).long(), None, TypeError, r"Batch: expected values to be floating point, got torch.int64"),
        (
            torch.zeros(2, 3),
            None,
            ValueError,
            r"Batch: expected values of shape \(B, T, C\), got \(2, 3\); add a channel with values\[..., None\]",
        ),
        (torch.zeros(3), None, ValueError, r"got \(3,\); add a batch and a channel with values\[None, :, None\]"),
        (torch.zeros(1, 2, 3, 4), None, ValueError, r"got \(1, 2, 3, 4\)$"),
        (torch.zeros(2, 0, 1), None, ValueError, r"at least one step and one channel, got \(2, 0, 1\)"),
        (torch.zeros(2, 3, 0), None, ValueError, r"at least one step and one channel, got \(2, 3, 0\)"),
        (torch.zeros(2, 3, 1), [3], ValueError, r"Batch: expected lengths of shape \(2,\), got \(1,\)"),
        (torch.zeros(2, 3, 1), [[3, 3]], ValueError, r"expected lengths of shape \(2,\), got \(1, 2\)"),
        (torch.zeros(2, 3, 1), [3, 0], ValueError, r"Batch: lengths\[1\] is 0; lengths must be between 1 and 3"),
        (torch.zeros(2, 3, 1), [4, 3], ValueError, r"Batch: lengths\[0\] is 4; lengths must be between 1 and 3"),
        (torch.zeros(2, 3, 1), [3, -1], ValueError, r"lengths\[1\] is -1"),
        (torch.zeros(2, 3, 1), [2.7, 1.0], TypeError, "expected lengths to be whole numbers, got torch.float32"),
        (torch.zeros(2, 3, 1), [True, True], TypeError, "expected lengths to be whole numbers, got torch.bool"),
        (torch.zeros(2, 3, 1), ["a", "b"], TypeError, "Batch: lengths is not an array of numbers"),
    ],
)
def test_bad_batches_are_refused(values, lengths, error, message):
    with pytest.raises(error, match=message):
        Batch(values, lengths)


def test_an_integer_gives_one_sequence_without_padding():
    batch = example()
    for index in (1, -3, np.int64(1), np.uint16(1).astype(np.int16), torch.tensor(1), np.array(1)):
        assert torch.equal(batch[index], torch.tensor([[10.0, 11.0], [12.0, 13.0]]))


@pytest.mark.parametrize("index", [4, -5, torch.tensor(4), [0, 4], np.array([-5])])
def test_an_index_out_of_range_is_an_index_error(index):
    with pytest.raises(IndexError, match="out of bounds for dimension 0 with size 4"):
        example()[index]


@pytest.mark.parametrize(
    ("index", "rows"),
    [
        (slice(1, 3), [1, 2]),
        (slice(None, None, 2), [0, 2]),
        (slice(-1, None), [3]),
        (slice(2, 2), []),
        ([3, 0, 0, -2], [3, 0, 0, 2]),
        ([], []),
        (np.array([2, 1], np.int16), [2, 1]),
        (torch.tensor([2, 1]), [2, 1]),
        (torch.tensor([2, 1], dtype=torch.int32), [2, 1]),
        ([True, False, False, True], [0, 3]),
        (np.array([False, True, False, False]), [1]),
        (torch.zeros(4, dtype=torch.bool), []),
    ],
)
def test_other_indices_give_a_batch(index, rows):
    batch = example()
    found = batch[index]
    assert isinstance(found, Batch)
    assert found.lengths.tolist() == [LENGTHS[row] for row in rows]
    assert found.values.shape == (len(rows), 5, 2)
    for sequence, row in zip(found, rows, strict=True):
        assert torch.equal(sequence, batch[row])


def test_a_slice_is_a_view_and_an_index_passes_the_gradient():
    batch = Batch(torch.zeros(3, 2, 1, requires_grad=True))
    assert batch[1:].values.data_ptr() == batch.values[1:].data_ptr()
    (batch[[2, 2]].values.sum() + batch[0].sum()).backward()
    assert batch.values.grad is not None
    assert batch.values.grad[:, 0, 0].tolist() == [1, 0, 2]


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        ((0, 1), TypeError, "Batch: index sequences only, with one index; slice steps or channels on .values"),
        (True, TypeError, r"Batch: expected an integer, a slice, positions \(K,\) or a mask \(B,\), got torch.bool"),
        ([0.0, 1.0], TypeError, r"got torch.float32 of shape \(2,\)"),
        ([[0, 1]], TypeError, r"got torch.int64 of shape \(1, 2\)"),
        (torch.ones(4, dtype=torch.uint8), TypeError, "got torch.uint8"),
        (None, TypeError, "Batch: the index is not an array of numbers"),
        (..., TypeError, "Batch: the index is not an array of numbers"),
        ("first", TypeError, "Batch: the index is not an array of numbers"),
        ([True, False], IndexError, r"shape of the mask \[2\]"),
        (slice(None, None, -1), ValueError, "step must be greater than zero"),
    ],
)
def test_bad_indices_are_refused(index, error, message):
    with pytest.raises(error, match=message):
        example()[index]


def test_iteration_gives_the_sequences_without_padding():
    assert [tuple(sequence.shape) for sequence in example()] == [(3, 2), (2, 2), (1, 2), (5, 2)]
    assert not any(sequence.isnan().any() for sequence in example())


def test_cat_pads_to_the_longest():
    short, long = Batch(torch.ones(2, 2, 1), [1, 2]), Batch(torch.ones(1, 4, 1, dtype=torch.float64))
    both = Batch.cat([short, long])
    assert both.lengths.tolist() == [1, 2, 4]
    assert both.values.shape == (3, 4, 1)
    assert both.dtype == torch.float64
    assert Batch.cat(iter([short])) == short
    assert Batch.cat([Batch(torch.empty(0, 0, 1)), short]) == short


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        ([], ValueError, "Batch.cat: expected at least one batch"),
        (
            [Batch(torch.zeros(1, 2, 1)), Batch(torch.zeros(1, 2, 3))],
            ValueError,
            "batch 1 has 3 channels, but batch 0 has 1",
        ),
        (
            [Batch(torch.zeros(1, 2, 1)), torch.zeros(1, 2, 1)],
            TypeError,
            "Batch.cat: expected batches, got Tensor at 1",
        ),
    ],
)
def test_bad_joins_are_refused(parts, error, message):
    with pytest.raises(error, match=message):
        Batch.cat(parts)


def test_to_moves_the_values_only():
    batch = example()
    assert batch.to(torch.float64).dtype == torch.float64
    assert batch.to("cpu") == batch
    moved = batch.to(device="meta", dtype=torch.float16)
    assert (moved.device.type, moved.dtype, moved.lengths.device.type) == ("meta", torch.float16, "cpu")
    assert moved.mask.device.type == "meta"
    with pytest.raises(TypeError, match=r"expected values to be floating point, got torch.int64"):
        batch.to(torch.int64)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="pinning needs a GPU")
def test_pinned_memory():
    pinned = example().pin_memory()
    assert pinned.values.is_pinned()
    assert pinned == example()


@pytest.mark.skipif(torch.accelerator.is_available(), reason="for machines without a GPU")
def test_without_a_gpu_pinning_is_pytorchs_error():
    with pytest.raises(RuntimeError, match=r"no.* available"):
        example().pin_memory()


def test_a_data_loader_makes_batches():
    items = [torch.full((length, 1), float(length)) for length in LENGTHS]
    loader = torch.utils.data.DataLoader(items, batch_size=3, collate_fn=Batch.from_list)  # type: ignore[arg-type]
    assert [batch.lengths.tolist() for batch in loader] == [[3, 2, 1], [5]]


def test_equality_ignores_padding():
    batch = example()
    other = Batch(batch.values.nan_to_num(-7), batch.lengths)
    assert batch == other
    assert batch == Batch(torch.cat([other.values, torch.ones(4, 3, 2)], 1), LENGTHS)
    assert batch == batch.to(torch.float64)
    assert batch != other[:3]
    assert batch != Batch(other.values, [3, 2, 1, 4])
    assert batch != Batch(other.values + 1, LENGTHS)
    assert Batch(torch.zeros(1, 2, 1)) != Batch(torch.zeros(1, 2, 2))
    assert (batch == "batch") is False
    inside = Batch(torch.full((1, 2, 1), torch.nan))
    assert inside != inside.to(torch.float32), "NaN in a real step equals nothing, as in a tensor"


def test_batches_have_no_hash():
    with pytest.raises(TypeError, match="unhashable"):
        hash(example())


def test_copies():
    batch = example()
    for other in (copy.deepcopy(batch), pickle.loads(pickle.dumps(batch))):
        assert other == batch
        assert other.values.data_ptr() != batch.values.data_ptr()
    assert copy.copy(batch).values is batch.values


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        (example(), "Batch(4 sequences, 1..5 steps, 2 channels, torch.float32, cpu)"),
        (Batch(torch.zeros(1, 1, 1).half()), "Batch(1 sequence, 1 step, 1 channel, torch.float16, cpu)"),
        (Batch(torch.zeros(3, 7, 1, device="meta")), "Batch(3 sequences, 7 steps, 1 channel, torch.float32, meta)"),
        (Batch(torch.empty(0, 4, 2)), "Batch(0 sequences, 0 steps, 2 channels, torch.float32, cpu)"),
    ],
)
def test_repr(batch, text):
    assert repr(batch) == text


def test_an_empty_batch():
    empty = Batch(torch.empty(0, 4, 2))
    assert (len(empty), list(empty), empty.to_list()) == (0, [], [])
    assert empty.lengths.shape == (0,)
    assert empty[:0] == empty == empty[[]]
    assert empty.mask.shape == (0, 4)
    assert Batch.from_list([]) == Batch(torch.empty(0, 0, 1))
    assert empty.to_aeon() == []
    assert empty.to_tslearn().shape == (0, 4, 2)
    assert Batch.from_tslearn(np.zeros((0, 4, 2))).values.shape == (0, 4, 2)


def test_a_list_may_hold_anything_with_numbers():
    batch = Batch.from_list([torch.tensor([1.0, 2.0]), np.array([[3], [4]]), [5, 6.5], [[7.0]], (8.0,)])
    assert batch.lengths.tolist() == [2, 2, 2, 1, 1]
    assert [sequence[0, 0].item() for sequence in batch] == [1, 3, 5, 7, 8]
    assert batch.dtype == torch.float32
    assert Batch.from_list([np.zeros(2, np.float64), np.zeros(1, np.float32)]).dtype == torch.float64
    assert Batch.from_list(np.zeros((2, 3, 4))) == Batch(torch.zeros(2, 3, 4))


def test_a_list_may_hold_arrays_that_pytorch_does_not_take():
    array = np.arange(6.0).reshape(3, 2)
    expected = Batch(torch.arange(6.0).reshape(1, 3, 2))
    read_only = array.copy()
    read_only.flags.writeable = False
    for odd in (read_only, array[::-1].copy()[::-1], array.astype(">f8"), np.asfortranarray(array)):
        assert Batch.from_list([odd]) == expected
        assert torch.equal(as_sequences("dtw", "x", odd[None])[0], expected.values.double())


def test_a_list_passes_the_gradient():
    items = [torch.ones(2, 1, requires_grad=True), torch.ones(3, 1, requires_grad=True)]
    Batch.from_list(items).values.sum().backward()
    assert [item.grad.sum().item() for item in items] == [2, 3]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("items", "error", "message"),
    [
        ([[1.0], []], ValueError, r"Batch.from_list: items\[1\] is empty: its shape is \(0, 1\)"),
        ([torch.zeros(2, 0)], ValueError, r"items\[0\] is empty: its shape is \(2, 0\)"),
        ([torch.zeros(2, 3), torch.zeros(2, 1)], ValueError, r"items\[1\] has 1 channels, but items\[0\] has 3"),
        ([torch.zeros(2, 3, 4)], ValueError, r"expected items\[0\] of shape \(T, C\) or \(T,\), got \(2, 3, 4\)"),
        ([1.0], ValueError, r"expected items\[0\] of shape \(T, C\) or \(T,\), got \(\)"),
        (
            [[[1.0], [2.0, 3.0]]],
            TypeError,
            r"Batch.from_list: items\[0\] is not an array of numbers: expected sequence of",
        ),
        ([[1.0], "word"], TypeError, r"items\[1\] is not an array of numbers"),
        ([[1.0], [1j]], TypeError, r"expected items\[1\] to be real, got torch.complex64"),
    ],
)
def test_bad_lists_are_refused(items, error, message):
    with pytest.raises(error, match=message):
        Batch.from_list(items)


@given(sequences())
@settings(max_examples=30, deadline=None)
def test_lists_make_the_round_trip(items):
    back = Batch.from_list(items).to_list()
    assert all(np.array_equal(a, b) for a, b in zip(items, back, strict=True))


@given(sequences())
@settings(max_examples=30, deadline=None)
def test_aeon_makes_the_round_trip(items):
    batch = Batch.from_list(items)
    given = batch.to_aeon()
    equal = len({len(item) for item in items}) == 1
    assert isinstance(given, np.ndarray if equal else list)
    if items:
        assert Batch.from_aeon(given) == batch
        assert given[0].shape == items[0].shape[::-1]


@given(sequences())
@settings(max_examples=30, deadline=None)
def test_tslearn_makes_the_round_trip(items):
    batch = Batch.from_list(items)
    given = batch.to_tslearn()
    assert given.shape == batch.values.shape
    assert np.isnan(given).any(2).sum() == given.shape[0] * given.shape[1] - sum(map(len, items))
    if items:
        assert Batch.from_tslearn(given) == batch


@given(sequences().filter(bool))
@settings(max_examples=30, deadline=None)
def test_packed_sequences_make_the_round_trip(items):
    batch = Batch.from_list(items)
    packed = batch.to_packed()
    assert Batch.from_packed(packed) == batch
    assert Batch.from_packed(pack_sequence([torch.from_numpy(item) for item in items], enforce_sorted=False)) == batch
    assert packed.data.shape == (sum(map(len, items)), batch.channels)


def test_padding_does_not_enter_a_packed_sequence():
    assert example().to_packed().data.isfinite().all()


def test_layouts_equal_those_of_the_peers():
    aeon = pytest.importorskip("aeon.distances")
    tslearn = pytest.importorskip("tslearn.utils")
    items = [np.arange(6.0).reshape(3, 2), np.arange(4.0).reshape(2, 2)]
    batch = Batch.from_list(items)
    assert np.array_equal(batch.to_tslearn(), tslearn.to_time_series_dataset(items), equal_nan=True)
    assert Batch.from_tslearn(tslearn.to_time_series_dataset(items)) == batch
    pair = batch.to_aeon()
    assert aeon.dtw_distance(pair[0], pair[1]) == 8  # (4, 5) against (2, 3)


def test_rows_of_nan_inside_a_tslearn_series_are_steps():
    series = np.array([[[1.0], [np.nan], [2.0], [np.nan]]])
    assert Batch.from_tslearn(series).lengths.tolist() == [3]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: Batch.from_aeon(np.zeros((2, 3))),
            r"Batch.from_aeon: expected an array of shape \(N, C, T\), got \(2, 3\)",
        ),
        (lambda: Batch.from_aeon([np.zeros(3)]), r"Batch.from_aeon: expected item 0 of shape \(C, T\), got \(3,\)"),
        (
            lambda: Batch.from_tslearn(np.zeros((2, 3))),
            r"Batch.from_tslearn: expected an array of shape \(N, T, C\), got \(2, 3\)",
        ),
        (lambda: Batch.from_tslearn(np.full((2, 3, 1), np.nan)), r"lengths\[0\] is 0; lengths must be between 1 and 3"),
        (
            lambda: Batch.from_packed(pack_sequence([torch.zeros(3)])),
            r"expected values of shape \(B, T, C\), got \(1, 3\)",
        ),
    ],
)
def test_bad_layouts_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_whole_numbers_become_floats():
    assert Batch.from_aeon(np.ones((1, 2, 3), int)).dtype == torch.float32
    assert Batch.from_tslearn(np.ones((1, 2, 3), int)).dtype == torch.float32
    assert as_sequences("dtw", "x", np.ones((1, 2, 3), bool))[0].dtype == torch.float32


def test_as_sequences():
    batch = example()
    values, lengths = as_sequences("dtw", "x", batch)
    assert values is batch.values
    assert lengths is batch.lengths
    assert as_sequences("dtw", "x", batch.values)[1] is None
    for items in (batch.to_list(), tuple(batch)):
        values, lengths = as_sequences("dtw", "x", items)
        assert lengths is not None
        assert Batch(values, lengths) == batch


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (
            "abc",
            TypeError,
            r"dtw: expected x to be a Batch, a tensor \(B, T, C\) or a list of sequences, got str",
        ),
        (None, TypeError, "got NoneType"),
        (np.zeros((2, 3)), ValueError, r"dtw: expected x of shape \(B, T, C\), got \(2, 3\); add a channel with x"),
        (np.zeros((2, 3, 1), complex), TypeError, "dtw: expected x to be real, got torch.complex128"),
        (np.array([[[None]]]), TypeError, "dtw: x is not an array of numbers"),
        ([[1.0], []], ValueError, r"dtw: x\[1\] is empty"),
        ([[1.0], [[1.0, 2.0]]], ValueError, r"dtw: x\[1\] has 2 channels, but x\[0\] has 1"),
    ],
)
def test_anything_else_is_refused_by_name(value, error, message):
    with pytest.raises(error, match=message):
        as_sequences("dtw", "x", value)


def test_nothing_passed_in_is_changed():
    values, lengths = torch.randn(3, 4, 2), torch.tensor([4, 2, 3])
    series = np.random.default_rng(0).standard_normal((3, 2, 4))
    before = copy.deepcopy((values, lengths, series))
    batch = Batch(values, lengths)
    batch.to_tslearn(), batch.to_aeon(), batch.to_packed(), Batch.cat([batch, batch]), batch[[0, 1]], batch.mask
    Batch.from_aeon(series), Batch.from_aeon(list(series)), Batch.from_list(list(series)), Batch.from_tslearn(series)
    assert torch.equal(values, before[0])
    assert torch.equal(lengths, before[1])
    assert np.array_equal(series, before[2])
