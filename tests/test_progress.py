from likewise._progress import track


def test_items_pass_through_and_the_bar_goes_to_stderr(capsys):
    assert list(track([3, 1, 2], "Counting")) == [3, 1, 2]
    assert list(track(iter("ab"), "Spelling", total=2)) == ["a", "b"]
    found = capsys.readouterr()
    assert not found.out
    assert "Counting" in found.err
    assert "Spelling" in found.err
