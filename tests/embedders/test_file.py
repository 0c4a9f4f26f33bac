import warnings
import zipfile

import numpy as np
import pytest

from migrate.embedders.file import FileEmbedder
from migrate.errors import InputError, MissingVectorError, OutputError
from migrate.files import sha256_file
from migrate.vectors import Document, Query, summarize_norms

RNG = np.random.default_rng(3)


def unit(n, d):
    rows = RNG.standard_normal((n, d))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def save(path, **arrays):
    np.savez(path, **arrays)
    return FileEmbedder(path)


def numbered(count):
    return [Document(str(row), "?") for row in range(count)]


def refuse(path, message=None):
    with pytest.raises(InputError, match=message) as caught:
        _ = FileEmbedder(path).identity
    assert "\n" not in str(caught.value)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "vectors.npz"


def test_finds_vectors_by_id_in_the_order_asked_for(path):
    docs = RNG.standard_normal((4, 3)).astype(np.float32)
    embedder = save(path, doc_ids=np.array(["a", "b", "c", "d"]), docs=docs)
    vectors = embedder.embed_documents([Document("c", "?"), Document("a", "?"), Document("c", "?")])
    np.testing.assert_array_equal(vectors, docs[[2, 0, 2]])
    assert embedder.identity.dim == 3 and not embedder.identity.normalized


def test_the_identity_is_name_and_content_of_the_file_without_its_folder(tmp_path):
    for folder in ("old", "new"):
        (tmp_path / folder).mkdir()
    old, new = (save(tmp_path / folder / "v.npz", doc_ids=["a"], docs=unit(1, 3)) for folder in ("old", "new"))
    assert old.identity.spec == new.identity.spec == "file:v.npz" and old.identity != new.identity
    assert old.identity.revision == sha256_file(old.path)
    again = FileEmbedder((tmp_path / "new" / "v.npz").rename(tmp_path / "v.npz"))
    assert again.identity == new.identity


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_unit_vectors_become_unit_vectors_again_and_stay_bit_for_bit_where_they_are(dtype, path):
    rows = unit(50, 768).astype(dtype)
    embedder = save(path, doc_ids=np.arange(50), docs=rows)
    vectors = embedder.embed_documents(numbered(50))
    assert vectors.dtype == np.float32
    assert embedder.identity.normalized
    norms = summarize_norms(vectors)
    assert max(norms.maximum - 1, 1 - norms.minimum) < 1e-6
    np.testing.assert_allclose(vectors, rows, atol=1e-3 if dtype == np.float16 else 0)


def test_texts_decide_where_the_file_holds_them(path):
    docs = unit(2, 3)
    embedder = save(path, doc_ids=np.array(["a", "b"]), docs=docs, doc_texts=np.array(["tea", "milk"]))
    np.testing.assert_allclose(embedder.embed_documents([Document("other id", "milk")])[0], docs[1], rtol=1e-6)
    with pytest.raises(InputError, match=r"1 of 1 documents \('a'\) \(1 of them"):
        embedder.embed_documents([Document("a", "coffee")])


def test_queries_have_their_own_vectors(path):
    docs, queries = unit(1, 3), unit(1, 3)
    embedder = save(path, doc_ids=["x"], docs=docs, query_ids=["x"], queries=queries)
    np.testing.assert_allclose(embedder.embed_queries([Query("x", "?")]), queries, rtol=1e-6)


def test_a_file_that_names_its_model_may_grow(path):
    few = save(path, **ONE, model="clip").identity
    more = save(path, doc_ids=["a", "b"], docs=unit(2, 3), model="clip").identity
    assert few == more and few.revision == "clip"


def test_ids_that_a_file_lacks_are_listed_beside_it(path):
    embedder = save(path, **ONE, model="clip")
    listed = path.with_name(f"{path.name}.missing.txt")
    with pytest.raises(MissingVectorError, match=f"for 4 of 5 documents .* {listed} lists it$"):
        embedder.embed_documents([Document(name, "") for name in "edacb"])
    assert listed.read_text().splitlines() == [*"edcb"]
    with pytest.raises(MissingVectorError, match="name its `model`"):
        save(path, **ONE).embed_documents([Document(name, "") for name in "edacb"])
    assert [embedder.holds(Document(name, "")) for name in "ab"] == [True, False]
    # All of a later batch may be lacking
    with pytest.raises(MissingVectorError, match=r"for 4 of 4 documents .* lists it$"):
        embedder.embed_documents([Document(name, "") for name in "edcb"])


def test_a_file_of_other_texts_is_told_and_gets_no_list(path):
    embedder = save(path, **ONE, model="clip")
    with pytest.raises(MissingVectorError, match=r"for 4 of 4 documents .* name the right one$"):
        embedder.embed_documents([Document(name, "") for name in "edcb"])
    assert list(path.parent.iterdir()) == [path]


def test_an_unknown_id_is_named(path):
    embedder = save(path, doc_ids=["a"], docs=unit(1, 3))
    with pytest.raises(InputError, match=r"1 of 2 documents \('zzz'\); is it the right file"):
        embedder.embed_documents([Document("a", "?"), Document("zzz", "?")])
    with pytest.raises(InputError, match=r"9 of 9 documents \('b0', 'b1', 'b2', \.\.\.\)"):
        embedder.embed_documents([Document(f"b{number}", "?") for number in range(9)])
    with pytest.raises(InputError, match="no query vectors"):
        embedder.embed_queries([Query("a", "?")])


def with_nan():
    rows = unit(2, 3)
    rows[1, 1] = np.nan
    return rows


ONE = {"doc_ids": ["a"], "docs": unit(1, 3)}
MALFORMED = {
    "no docs": ({"doc_ids": ["a", "b"]}, "doc_ids and docs"),
    "no ids": ({"docs": unit(2, 3)}, "has docs but no doc_ids"),
    "too few ids": ({"doc_ids": ["a"], "docs": unit(2, 3)}, "2 rows in docs for 1 ids"),
    "too few texts": ({"doc_ids": ["a", "b"], "docs": unit(2, 3), "doc_texts": ["x"]}, "1 doc_texts for 2 ids"),
    "an id twice": ({"doc_ids": ["a", "a"], "docs": unit(2, 3)}, "twice"),
    "NaN": ({"doc_ids": ["a", "b"], "docs": with_nan()}, "'b'"),
    "zero": ({"doc_ids": ["a", "b"], "docs": np.zeros((2, 3))}, "zero vector for document 'a'"),
    "overflow": ({"doc_ids": ["a", "b"], "docs": np.full((2, 3), 1e300)}, "'a'"),
    "constant": ({"doc_ids": [*"abcd"], "docs": np.ones((4, 3))}, "4 rows of docs are the same vector"),
    "one-dimensional": ({"doc_ids": ["a", "b"], "docs": np.ones(2)}, "table of floats"),
    "integers": ({"doc_ids": ["a", "b"], "docs": np.ones((2, 3), dtype=int)}, "table of floats"),
    "no columns": ({"doc_ids": ["a", "b"], "docs": np.ones((2, 0))}, "table of floats"),
    "float ids": ({"doc_ids": [0.5, 1.5], "docs": unit(2, 3)}, "list of strings"),
    "objects": ({"doc_ids": np.array(["a", None], dtype=object), "docs": unit(2, 3)}, "Python objects"),
    "a list of models": ({**ONE, "model": ["clip"]}, "not a name"),
    "a number of a model": ({**ONE, "model": 7}, "not a name"),
    "two dimensions": ({**ONE, "query_ids": ["q"], "queries": unit(1, 4)}, "documents have dimension 3, queries 4"),
}


@pytest.mark.parametrize(("arrays", "message"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_files_are_refused(arrays, message, path):
    save(path, **arrays)
    refuse(path, message)


@pytest.mark.parametrize("content", [b"", b"not a zip file", b"PK\x03\x04 broken"])
def test_other_files_are_refused(content, path):
    path.write_bytes(content)
    refuse(path, "npz")


def test_what_is_no_file_is_refused(path):
    refuse(path, "no such file")
    refuse(path.parent, "directory")


def test_files_that_are_cut_or_have_another_bit_are_refused(path):
    save(path, doc_ids=np.arange(20), docs=unit(20, 16))
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[len(damaged) // 2] ^= 1
    for content in (damaged, *(whole[:cut] for cut in range(0, len(whole), 37))):
        path.write_bytes(content)
        refuse(path)


@pytest.mark.slow
def test_a_zip_bomb_is_not_unpacked(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("docs.npy", "w") as member:
        for _ in range(100):
            member.write(bytes(1 << 20))
    refuse(path, "claims 104857600 bytes")


def test_only_vectors_that_are_found_by_text_need_the_texts(path):
    assert save(path, **ONE).finds_by_id
    assert not save(path, **ONE, doc_texts=["one"]).finds_by_id


HUGE = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 1000), }"
HUGE += b" " * (64 - (10 + len(HUGE) + 1) % 64) + b"\n"


@pytest.mark.parametrize(
    ("header", "says"), [(HUGE, r"claims an array of shape \(1000000000000, 1000\)"), (b"(" * 9_000, "npz")]
)
def test_a_header_that_claims_too_much_or_is_nested_allocates_nothing(header, says, path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("docs.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    refuse(path, says)


def test_a_file_that_may_not_be_read_is_not_a_malformed_one(path, monkeypatch):
    def refuse(*args, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(zipfile, "ZipFile", refuse)
    with pytest.raises(OutputError, match="Permission denied"):
        _ = FileEmbedder(path).identity


def rewritten(path, method=zipfile.ZIP_DEFLATED, twice=False):
    """The file with its arrays packed in another way, or one of them twice."""
    np.savez(path, doc_ids=["a"], docs=np.ones((1, 2), np.float32))
    with zipfile.ZipFile(path) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    with zipfile.ZipFile(path, "w", method) as archive, warnings.catch_warnings(action="ignore"):
        for name, content in members + members[:twice]:
            archive.writestr(name, content)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"method": zipfile.ZIP_BZIP2}, "packed in another way"),
        ({"method": zipfile.ZIP_LZMA}, "packed in another way"),
        ({"twice": True}, "an array twice"),
    ],
)
def test_a_file_that_numpy_would_not_write_is_refused(options, says, path):
    rewritten(path)
    assert FileEmbedder(path).identity.dim == 2
    rewritten(path, **options)
    refuse(path, says)


def test_an_encrypted_file_is_refused(path):
    rewritten(path)
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(raw)
    refuse(path, "encrypted")
