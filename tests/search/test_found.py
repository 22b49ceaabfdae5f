import torch

from likewise.search.found import Found, Stats, keep_apart


def test_rows_are_padded_with_infinity_and_minus_one():
    found = Found.from_rows([[(1.0, 3, 2, 6)], [], [(0.0, 1, 0, 4), (2.0, 0, 5, 9)]], Stats("exhaustive", 12))
    assert found.distances.tolist() == [[1.0, torch.inf], [torch.inf, torch.inf], [0.0, 2.0]]
    assert found.items.tolist() == [[3, -1], [-1, -1], [1, 0]]
    assert found.starts.tolist() == [[2, -1], [-1, -1], [0, 5]]
    assert found.ends.tolist() == [[6, -1], [-1, -1], [4, 9]]
    assert found.counts.tolist() == [1, 0, 2]


def test_no_queries_and_no_hits():
    assert Found.from_rows([], Stats("exhaustive", 0)).items.shape == (0, 0)
    assert Found.from_rows([[], []], Stats("exhaustive", 0), torch.float64).distances.shape == (2, 0)


def test_groups_of_queries_are_joined():
    one = Found.from_rows([[(1.0, 3, 2, 6)]], Stats("bounds", 4, {"ends": 1}, cells=5, seconds=0.5))
    two = Found.from_rows([[], [(0.0, 1, 0, 4), (2.0, 0, 5, 9)]], Stats("bounds", 8, {"ends": 2, "keogh": 1}))
    both = Found.cat([one, two])
    assert both.items.tolist() == [[3, -1], [-1, -1], [1, 0]]
    assert both.distances[0].tolist() == [1.0, torch.inf]
    assert both.stats == Stats("bounds", 12, {"ends": 3, "keogh": 1}, cells=5, seconds=0.5)
    assert both.stats.compared == 8


def test_the_sum_is_exact_only_if_every_part_is():
    assert not Stats.total([Stats("a", 1), Stats("a", 1, exact=False)]).exact
    assert "approximate" in str(Stats("a", 1, exact=False))


def test_hits_are_kept_apart_in_each_item():
    generator = torch.Generator().manual_seed(0)
    items, starts = (torch.randint(high, (60,), generator=generator) for high in (2, 40))
    ends = starts + torch.randint(4, 9, (60,), generator=generator)
    for exclude in (0.0, 0.25, 0.5, 1.0):
        kept: list[int] = []
        for w in range(60):
            near = [
                v for v in kept if items[v] == items[w] and abs(starts[v] - starts[w]) < exclude * (ends[v] - starts[v])
            ]
            if not near:
                kept.append(w)
        assert keep_apart(items, starts, ends, [50, 50], exclude, None) == kept
        assert keep_apart(items, starts, ends, [50, 50], exclude, 5) == kept[:5]
