"""Files in LIBSVM format, synthetic samples, and divisions among clients."""

from __future__ import annotations

import bz2
import gzip
import random

import numpy as np
import pytest

import burtorch as bt
from burtorch import opt

TEXT = "".join(f"{k % 2} 1:{k}.25 {k + 2}:-{k}e-3 # line\n" for k in range(3000))


@pytest.fixture(params=["text", "gz", "bz2", "gz of two", "bz2 of two"])
def path(request, tmp_path):
    """The same samples in each format; the file name does not matter."""
    data, half = TEXT.encode(), len(TEXT) // 2
    bodies = {
        "text": data,
        "gz": gzip.compress(data),
        "bz2": bz2.compress(data),
        "gz of two": gzip.compress(data[:half]) + gzip.compress(data[half:]),
        "bz2 of two": bz2.compress(data[:half], 1) + bz2.compress(data[half:], 9),
    }
    place = tmp_path / "samples"
    place.write_bytes(bodies[request.param])
    return place


def written(tmp_path, body):
    place = tmp_path / "samples"
    place.write_bytes(body if isinstance(body, bytes) else body.encode())
    return place


def test_a_file_is_the_same_however_it_is_compressed(path):
    rows, labels = opt.load_libsvm(path)
    assert rows.shape == (3000, 3001)
    assert labels.tolist() == [k % 2 for k in range(3000)]
    assert rows.columns.reshape(-1, 2).tolist() == [[0, k + 1] for k in range(3000)]
    assert rows.values.reshape(-1, 2).tolist() == [[k + 0.25, float(f"-{k}e-3")] for k in range(3000)]
    dense, mapped = opt.load_libsvm(str(path), dense=True, dtype="float32", labels=(0, 1), n_features=3500)
    assert dense.dtype == mapped.dtype == np.float32
    np.testing.assert_array_equal(dense[:, :3001], rows.toarray().astype("float32"))
    assert dense.shape == (3000, 3500)
    np.testing.assert_array_equal(mapped, 2 * labels - 1)


def test_problems_accept_loaded_data(tmp_path):
    rows, labels = opt.load_libsvm(written(tmp_path, "0 1:1 2:2\n1 2:-1\n"), labels=(0, 1))
    sparse, dense = opt.logistic_regression(rows, labels), opt.logistic_regression(rows.toarray(), labels)
    np.testing.assert_allclose(sparse.grad([0.5, 1.0]), dense.grad([0.5, 1.0]), rtol=1e-14)


def test_it_agrees_with_other_readers(tmp_path):
    datasets = pytest.importorskip("sklearn.datasets")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 30)) * (rng.random((200, 30)) < 0.3)
    x[0, 29] = 1
    place = tmp_path / "samples"
    datasets.dump_svmlight_file(x, rng.normal(size=200), place, zero_based=False)
    expected, targets = datasets.load_svmlight_file(str(place), zero_based=False)
    rows, labels = opt.load_libsvm(place)
    np.testing.assert_array_equal(rows.toscipy().toarray(), expected.toarray())
    np.testing.assert_array_equal(labels, targets)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: the file ends here and has no samples"),
        ("1 1:1\n1 2:1 2:3", "line 2: feature 2 comes after feature 2; indices must ascend"),
        ("1 1:nan", "line 1: feature 1 is NaN; features must be finite"),
        ("1 0:1", "line 1: feature 0 .* pass zero_based=True"),
        ("a 1:1", 'line 1: expected a label, a number, found "a"'),
    ],
)
def test_errors_name_the_line(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        opt.load_libsvm(written(tmp_path, text))


@pytest.mark.parametrize("dense", [False, True])
def test_numbers_that_float32_has_not_are_refused(tmp_path, dense):
    for text, message in (
        ("1 1:1\n1 1:1e39", "line 2: feature 1 is 1e39; features must be finite in float32"),
        ("1 2:-3.5e38", "line 1: feature 2 is -3.5e38"),
        ("-1e39 1:1", "line 1: the label is -1e39; labels must be finite in float32"),
    ):
        place = written(tmp_path, text)
        with pytest.raises(ValueError, match=message):
            opt.load_libsvm(place, dtype="float32", dense=dense)
        features, labels = opt.load_libsvm(place, dense=True)
        assert np.isfinite(features).all()
        assert np.isfinite(labels).all()
    features, labels = opt.load_libsvm(written(tmp_path, "1e39 1:3e38\n2 1:1"), dtype="float32", labels=(2, 1e39))
    assert labels.tolist() == [1.0, -1.0]
    assert features.values.tolist() == [np.float32(3e38), 1.0]


def test_query_numbers_are_skipped(tmp_path):
    """As scikit-learn does."""
    text = "3 qid:1 1:0.5 3:1\n1 qid:1 2:2 # first\n2\tqid:2\n2 1:1\n"
    features, labels = opt.load_libsvm(written(tmp_path, text), dense=True)
    assert labels.tolist() == [3.0, 1.0, 2.0, 2.0]
    assert features.tolist() == [[0.5, 0.0, 1.0], [0.0, 2.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    datasets = pytest.importorskip("sklearn.datasets")
    peer = datasets.load_svmlight_file(str(tmp_path / "samples"), query_id=False)
    assert peer[0].toarray().tolist() == features.tolist()
    for wrong in ("1 qid:x 1:1", "1 qid:1.5 1:1", "1 qid: 1:1", "1 1:1 qid:2", "1 qid:1 qid:2"):
        with pytest.raises(ValueError, match="line 1"):
            opt.load_libsvm(written(tmp_path, wrong))


def test_other_labels_are_named(tmp_path):
    place = written(tmp_path, "1\n2\n3\n")
    with pytest.raises(ValueError, match="line 3: a label is neither 1 nor 2; the file has 1, 2, 3"):
        opt.load_libsvm(place, labels=(1, 2))
    with pytest.raises(ValueError, match="two different numbers"):
        opt.load_libsvm(place, labels=(1, 1))
    with pytest.raises(FileNotFoundError):
        opt.load_libsvm(tmp_path / "nothing")
    with pytest.raises(OSError):
        opt.load_libsvm(tmp_path)


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress])
def test_damaged_files_are_refused(tmp_path, compress):
    """Some bytes of a compressed file, such as a date, affect nothing; any other change is refused."""
    whole = compress(TEXT.encode())
    expected = opt.load_libsvm(written(tmp_path, whole))[0]
    chance = random.Random(0)
    n_refused = 0
    for _ in range(300):
        damaged = bytearray(whole)
        place = chance.randrange(4, len(whole))
        if chance.random() < 0.3:
            del damaged[place:]
        else:
            damaged[place] ^= 1 << chance.randrange(8)
        try:
            found = opt.load_libsvm(written(tmp_path, bytes(damaged)))[0]
        except ValueError:
            n_refused += 1
        else:
            assert place < 10
            np.testing.assert_array_equal(found.values, expected.values)
    assert n_refused > 280


def test_bzip2_of_hard_contents(tmp_path):
    """Runs of every length, one symbol, all bytes, and blocks at their limit, after a comment sign."""
    chance = random.Random(1)
    for body in (
        b"a" * 1_000_000,
        bytes(byte for byte in range(256) if byte != 10) * 40,
        b"".join(bytes([chance.randrange(97, 100)]) * chance.randrange(1, 600) for _ in range(2000)),
        bytes(chance.randrange(11, 256) for _ in range(950_000)),
        b"",
    ):
        for level in (1, 9):
            data = b"1 1:" + str(len(body)).encode() + b" #" + body + b"\n-1 2:3"
            rows, labels = opt.load_libsvm(written(tmp_path, bz2.compress(data, level)))
            assert labels.tolist() == [1, -1]
            assert rows.values.tolist() == [len(body), 3]


def test_synthetic_problems():
    x, y = opt.make_least_squares(5000, 3, condition=16, noise=0.0, seed=2)
    np.testing.assert_allclose((x**2).mean(0), [1, 1 / 4, 1 / 16], rtol=0.1)
    assert np.linalg.lstsq(x, y, rcond=None)[1] < 1e-20
    rows, labels = opt.make_logistic(100, 50, density=0.1, seed=2, dtype="float32")
    assert isinstance(rows, opt.Rows)
    assert rows.values.dtype == labels.dtype == np.float32
    assert set(labels.tolist()) == {-1, 1}
    again = opt.make_logistic(100, 50, density=0.1, seed=2, dtype="float32")[0]
    np.testing.assert_array_equal(rows.toarray(), again.toarray())
    for wrong in ({"condition": 0.5}, {"density": 0.0}, {"density": 2.0}, {"n": 0}, {"d": 0}, {"dtype": "int8"}):
        with pytest.raises(ValueError):
            opt.make_logistic(**{"n": 10, "d": 3, **wrong})
    with pytest.raises(ValueError, match="noise"):
        opt.make_least_squares(10, 3, noise=-1.0)


@pytest.mark.parametrize("how", ["iid", "sorted", "dirichlet"])
def test_divisions(how):
    labels = np.repeat([1.0, -1.0, 2.0], [50, 30, 21])
    parts = opt.split(labels, 7, how, seed=1)
    assert sorted(np.concatenate(parts)) == list(range(101))
    assert all(len(part) for part in parts)
    for part, again in zip(parts, opt.split(list(labels), 7, how, seed=1), strict=True):
        np.testing.assert_array_equal(part, again)
    # The deviation of each client's share of a label from the overall share.
    far = np.mean([abs((labels[part] == 1).mean() - 50 / 101) for part in parts])
    assert far < 0.25 if how == "iid" else far > 0.1


def test_bad_divisions():
    assert [len(part) for part in opt.split(10, 3)] == [3, 3, 4]
    for call in (
        lambda: opt.split(10, 11),
        lambda: opt.split(10, 0),
        lambda: opt.split(0, 1),
        lambda: opt.split(10, 2, "sorted"),
        lambda: opt.split([1.0], 1, "random"),
        lambda: opt.split([1.0, 2.0], 1, "dirichlet", concentration=0.0),
        lambda: opt.split([1.0, float("nan")], 1),
        lambda: opt.split(np.ones((2, 2)), 1),
    ):
        with pytest.raises(ValueError):
            call()
    assert bt.opt.split is opt.split


def test_labels_paths_and_dtypes_of_several_kinds(tmp_path):
    path = tmp_path / "two"
    path.write_text("3 1:1\n7 4:1\n")
    for labels in ((3, 7), [3, 7], np.array([3.0, 7.0]), (np.float32(3), 7)):
        assert opt.load_libsvm(path, labels=labels)[1].tolist() == [-1.0, 1.0]
    for wrong in ((3,), (3, 7, 8), 3.0, [[3, 7]], []):
        with pytest.raises(ValueError, match="labels must be two, the negative one first, found the shape"):
            opt.load_libsvm(path, labels=wrong)
    for wrong in ("37", (None, 7), ("3", "7")):
        with pytest.raises(TypeError, match="labels must be numbers, found"):
            opt.load_libsvm(path, labels=wrong)
    for given in (path, str(path), bytes(path)):
        assert opt.load_libsvm(given)[0].shape == (2, 4)
    with pytest.raises(TypeError, match=r"expected str, bytes or os.PathLike object, not int"):
        opt.load_libsvm(3)
    makers = (
        lambda dtype: opt.load_libsvm(path, dtype=dtype),
        lambda dtype: opt.make_least_squares(3, 2, dtype=dtype),
        lambda dtype: opt.make_logistic(3, 2, density=0.5, dtype=dtype),
    )
    for make in makers:
        for name in ("float32", "float64"):
            for dtype in (name, np.dtype(name), getattr(np, name)):
                features, labels = make(dtype)
                assert getattr(features, "values", features).dtype == labels.dtype == name
        for wrong in ("float16", np.float16, int):
            with pytest.raises(ValueError, match="float64"):
                make(wrong)


def test_a_dense_matrix_without_memory_is_named(tmp_path):
    resource = pytest.importorskip("resource")
    path = tmp_path / "wide"
    path.write_text("1 1:1\n2 4294967295:1\n")
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 35, limits[1]))
    try:
        with pytest.raises(MemoryError, match="for a dense matrix were refused; free memory or use less of it"):
            opt.load_libsvm(path, dense=True)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
