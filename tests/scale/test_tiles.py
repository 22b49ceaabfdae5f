import json
import struct

import google_crc32c
import numpy as np
import pytest

from likewise.scale.tiles import MANIFEST, Layout, check_tile, remove_leftovers, write_tile

LAYOUT = Layout((5, 7), (3, 4), "float32", False, "DTW()", "0" * 64)


@pytest.fixture
def folder(tmp_path):
    LAYOUT.write(tmp_path)
    for tile in LAYOUT.tiles():
        rows, columns = np.arange(5)[tile.rows, None], np.arange(7)[tile.columns]
        write_tile(tmp_path, LAYOUT, tile, (10 * rows + columns).astype(np.float32))
    return tmp_path


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(("size", "side"), [(1, 1), (5, 2), (6, 2), (6, 6), (17, 4)])
def test_tiles_cover_the_matrix_once(symmetric, size, side):
    layout = Layout((size, size), (side, side), "float32", symmetric, "", "")
    seen = np.zeros((size, size), int)
    for tile in layout.tiles():
        seen[tile.rows, tile.columns] += 1
        if symmetric and tile.row != tile.column:
            seen[tile.columns, tile.rows] += 1
    assert (seen == 1).all()
    assert sum(1 for _ in layout.tiles()) == layout.count


def test_a_tile_is_what_was_written(folder):
    values = check_tile(folder, LAYOUT, LAYOUT.at(1, 1))
    assert values.tolist() == [[34, 35, 36], [44, 45, 46]]
    content = (folder / "c/1/1").read_bytes()
    assert len(content) == LAYOUT.tile_bytes == 3 * 4 * 4 + 4
    assert struct.unpack("<I", content[-4:])[0] == google_crc32c.value(content[:-4])


def test_zarr_reads_it(folder):
    zarr = pytest.importorskip("zarr")
    found = zarr.open_array(folder, mode="r")
    assert np.array_equal(found[:], 10 * np.arange(5)[:, None] + np.arange(7))


def spoil(folder, change):
    path = folder / "c/0/1"
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(content)


def flip(content):
    content[5] ^= 1


def checksum_of_another(content):
    content[-4:] = b"\0\0\0\0"


def nan_with_a_right_checksum(content):
    content[:4] = struct.pack("<f", np.nan)
    content[-4:] = struct.pack("<I", google_crc32c.value(bytes(content[:-4])))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (flip, "checksum is wrong"),
        (checksum_of_another, "checksum is wrong"),
        (nan_with_a_right_checksum, "holds NaN"),
        (lambda content: content.pop(), "51 bytes instead of 52"),
        (lambda content: content.extend(b"123"), "55 bytes instead of 52"),
        (lambda content: content.clear(), "0 bytes instead of 52"),
    ],
)
def test_a_damaged_tile_is_found(folder, change, problem):
    spoil(folder, change)
    with pytest.raises(ValueError, match=f"c/0/1: damaged: .*{problem}"):
        check_tile(folder, LAYOUT, LAYOUT.at(0, 1))


def test_a_missing_tile_and_a_link_are_refused(folder):
    (folder / "c/0/1").rename(folder / "moved")
    with pytest.raises(FileNotFoundError, match="c/0/1: this tile is missing"):
        check_tile(folder, LAYOUT, LAYOUT.at(0, 1))
    (folder / "c/0/1").symlink_to(folder / "moved")
    with pytest.raises(FileNotFoundError):
        check_tile(folder, LAYOUT, LAYOUT.at(0, 1))


def test_values_of_another_shape_are_refused(folder):
    with pytest.raises(ValueError, match=r"expected values of shape \(2, 3\)"):
        write_tile(folder, LAYOUT, LAYOUT.at(1, 1), np.zeros((3, 4), np.float32))


def test_leftovers_of_killed_writers_go(folder):
    (folder / "c/0/.1.99-aaaaaaaa.part").write_bytes(b"half")
    remove_leftovers(folder)
    assert not list(folder.glob("c/*/.*"))
    assert Layout.read(folder) == LAYOUT


def put(*keys):
    *path, value = keys

    def change(manifest):
        inside = manifest
        for key in path[:-1]:
            inside = inside[key]
        inside[path[-1]] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        put("shape", [5]),
        put("shape", [5, -7]),
        put("shape", [5, 1 << 40]),
        put("shape", [5.0, 7]),
        put("shape", [True, 7]),
        put("chunk_grid", "configuration", "chunk_shape", [1 << 20, 1 << 20]),
        put("chunk_grid", "configuration", "chunk_shape", [0, 4]),
        put("chunk_grid", "name", "other"),
        put("data_type", "float64"),
        put("data_type", ["float32"]),
        put("codecs", [{"name": "bytes", "configuration": {"endian": "little"}}]),
        put("fill_value", 0),
        put("zarr_format", 2),
        put("attributes", {}),
        put("attributes", None),
        put("attributes", "likewise", "symmetric", 1),
        put("attributes", "likewise", "symmetric", True),  # it is not square
        put("attributes", "likewise", "distance", 3),
        put("attributes", "likewise", "distance", "a" * 100_000),
        put("attributes", "likewise", "format", 2),
        put("more", 1),
    ],
)
def test_a_strange_manifest_is_refused(folder, change):
    manifest = json.loads((folder / MANIFEST).read_text())
    change(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match=MANIFEST):
        Layout.read(folder)


@pytest.mark.parametrize("content", ["", "[]", "3", "null", '{"shape": [5, 7]}', "{" * 10000])
def test_other_files_are_not_manifests(tmp_path, content):
    (tmp_path / MANIFEST).write_text(content)
    with pytest.raises(ValueError, match=MANIFEST):
        Layout.read(tmp_path)
