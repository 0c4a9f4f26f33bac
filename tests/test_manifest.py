import json
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta

import pytest

from migrate.errors import ManifestError, StitchError, UsageError
from migrate.manifest import (
    FORMAT_VERSION,
    MANIFEST_NAME,
    Manifest,
    ModelIdentity,
    ReportFacts,
    StitchFacts,
    StoreFacts,
    creation_date,
    find_manifest,
    read_manifest,
)

FULL = Manifest(
    kind="stitch",
    model=ModelIdentity("st:target", 384, True, "doc: ", "query: ", "abc"),
    source_model=ModelIdentity("tfidf", 20, False),
    seed=11,
    inputs={"rows": "ff"},
    counts={"pairs": 3},
    details={"ä": [1, None, {"x": 0.1}]},
    created="2020-01-02T03:04:05+00:00",
    tool_version="0.0.1",
)


def written(folder, **changes):
    """A manifest's file with some facts replaced; a change to ... removes the fact."""
    FULL.write(folder)
    path = folder / MANIFEST_NAME
    facts = {**json.loads(path.read_text()), "manifest_sha256": ..., **changes}
    path.write_text(json.dumps({name: value for name, value in facts.items() if value is not ...}))
    return folder


@pytest.mark.parametrize("manifest", [FULL, Manifest(kind="report")], ids=["full", "bare"])
def test_every_field_comes_back(manifest, tmp_path):
    manifest.write(tmp_path)
    assert read_manifest(tmp_path, manifest.kind) == find_manifest(tmp_path, manifest.kind) == manifest
    with pytest.raises(ManifestError, match=f"this is a {manifest.kind}, not a store"):
        find_manifest(tmp_path, "store")


@pytest.mark.parametrize("details", [{}, {"a": {10: 1.5, 9: float("nan")}, "b": (1, "é")}])
def test_a_manifest_knows_its_own_content(details, tmp_path):
    replace(FULL, details=details).write(tmp_path)
    path = tmp_path / MANIFEST_NAME
    content = path.read_text()
    path.write_text(json.dumps(json.loads(content)))  # spaces are nobody's content
    assert read_manifest(tmp_path, "stitch").seed == FULL.seed
    for before, after in (('"seed": 11', '"seed": 12'), ('"pairs": 3', '"pairs": 3.5'), ('sha256": "', 'sha256": "0')):
        assert content.count(before) == 1
        path.write_text(content.replace(before, after))
        with pytest.raises(ManifestError, match=r"own SHA-256 \(\w+\.\.\., now \w+\.\.\.\)"):
            read_manifest(tmp_path, "stitch")


def test_an_older_manifest_that_does_not_know_its_content_is_read(tmp_path):
    assert read_manifest(written(tmp_path, seed=99), "stitch") == replace(FULL, seed=99)


def test_the_date_is_now_in_utc(monkeypatch):
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    created = datetime.fromisoformat(Manifest(kind="store").created)
    assert abs(datetime.now(UTC) - created) < timedelta(seconds=5)
    assert created.utcoffset() == timedelta(0)


def test_the_date_can_be_given_for_reproducible_bytes(monkeypatch, tmp_path):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    Manifest(kind="store").write(tmp_path)
    assert json.loads((tmp_path / MANIFEST_NAME).read_bytes())["created"] == "1970-01-02T00:00:00+00:00"


def test_requested_dimensions_come_back_and_older_versions_can_read_the_manifest(tmp_path):
    model, source = (replace(identity, dimensions=256) for identity in (FULL.model, FULL.source_model))
    manifest = replace(FULL, model=model)
    manifest.write(tmp_path)
    content = json.loads((tmp_path / MANIFEST_NAME).read_text())
    assert content["model"].keys() == content["source_model"].keys() == asdict(model).keys() - {"dimensions"}
    assert content["details"] == {**FULL.details, "requested dimensions": {"model": 256}}
    back = read_manifest(tmp_path, "stitch")
    assert back == manifest and (back.model.dimensions, back.source_model.dimensions) == (256, None)
    replace(manifest, source_model=source).write(tmp_path)
    assert read_manifest(tmp_path, "stitch").source_model.dimensions == 256


NOT_THE_FIELDS = [
    {"surprise": 1},
    {"model": ...},
    {"model": {"spec": "x"}},
    {"source_model": "x"},
    *({field: value} for field in ("inputs", "counts", "details") for value in (None, 5, ["x"])),
    *({"details": {"requested dimensions": value}} for value in (5, {"model": "x"}, {"models": 5})),
]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"kind": "store"}, "this is a store, not a stitch"),
        ({"kind": ...}, "this is something else, not a stitch"),
        (
            {"format_version": FORMAT_VERSION + 1, "tool_version": "9.9"},
            "version 2, but this version reads 1; it was written by lead-migrate 9.9",
        ),
        ({"format_version": ...}, "has format version None, but this version reads 1"),
        *((changes, "not the fields of a stitch manifest") for changes in NOT_THE_FIELDS),
    ],
)
def test_other_facts_are_refused(changes, named, tmp_path):
    with pytest.raises(ManifestError, match=named) as caught:
        read_manifest(written(tmp_path, **changes), "stitch")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[1]"])
def test_what_is_no_manifest_is_refused(content, tmp_path):
    (tmp_path / MANIFEST_NAME).write_bytes(content)
    with pytest.raises(ManifestError, match=r"not valid JSON|this is something else"):
        read_manifest(tmp_path, "stitch")


def test_a_folder_without_a_manifest_is_refused_but_may_be_asked(tmp_path):
    assert find_manifest(tmp_path, "store") is None
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(ManifestError, match=f"no store here: there is no {MANIFEST_NAME} in it"):
            read_manifest(folder, "store")


@pytest.mark.parametrize("epoch", ["soon", "1.5", "9" * 25])
def test_a_date_that_is_none_is_a_usage_error(epoch, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    with pytest.raises(UsageError, match="SOURCE_DATE_EPOCH"):
        creation_date()


STORE = StoreFacts(
    made_by="translate",
    index="index.faiss",
    index_hash="ff",
    documents_hashes={"docs.jsonl": "aa"},
    confidence_lowest=0.5,
    confidence_spearman=1,
    filled_in="from the cache",
    checked={"basis": "sample"},
    chosen_by=("a", "b"),
)
STITCH = StitchFacts(fingerprint={"dim": 3}, direction="query", texts=False, norm=1.0, arrays=("x",), files={"x": "ff"})
REPORT = ReportFacts(dataset="topics", resamples=500)


@pytest.mark.parametrize(("kind", "facts"), [("store", STORE), ("stitch", STITCH), ("report", REPORT)])
def test_typed_facts_come_back_beside_those_that_nobody_knows(kind, facts, tmp_path):
    Manifest(kind, details={**facts.as_details(), "of a newer version": [1]}).write(tmp_path)
    manifest = read_manifest(tmp_path, kind)
    assert getattr(manifest, kind) == facts
    assert type(facts).unknown(manifest.details) == {"of a newer version": [1]}


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("store", "made by", 3),
        ("store", "index_hash", None),
        ("store", "documents_hashes", {"docs.jsonl": 3}),
        ("store", "confidence_lowest", "0.5"),
        ("store", "confidence_spearman", True),
        ("store", "chosen by queries", "abc"),
        ("store", "chosen by queries", None),
        ("stitch", "fingerprint", [3]),
        ("stitch", "texts", "no"),
        ("stitch", "arrays", [1]),
        ("stitch", "files", ["weights"]),
        ("report", "resamples", 1.5),
    ],
)
def test_a_fact_of_another_type_is_refused_by_file_and_name(kind, key, value, tmp_path):
    Manifest(kind, details={key: value}).write(tmp_path)
    with pytest.raises(ManifestError) as caught:
        read_manifest(tmp_path, kind)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / MANIFEST_NAME}: in its details '{key}") and "\n" not in message
    assert " must be " in message


@pytest.mark.parametrize("details", [{}, {"fingerprint": {}}, {"fingerprint": {"dim": "3"}}])
def test_a_stitch_that_does_not_say_its_store_is_refused(details):
    with pytest.raises(StitchError, match="does not say which store it is for"):
        _ = Manifest("stitch", details=details).stitch.fitted_on
