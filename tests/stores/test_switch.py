"""Switching, rolling back and forgetting stores of every kind, by the real things."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from asking import asking
from children import call_in_child
from database_tests import files_of, written
from dying import interrupt_at
from kind_faiss import Faiss
from kind_pgvector import Pgvector
from kinds import kind_class
from postgres import as_text, connect, wait_for_lock
from safe_reports import BOUNDS
from switch_tools import (
    COUNT,
    DIM,
    NEW_MODEL,
    OLD_MODEL,
    change_switch,
    change_text,
    make_named,
    make_sqlite,
    manifest,
    new_vectors,
    old_vectors,
    records,
    translate,
    write_report,
)

import migrate
from migrate.errors import InputError, StoreError, UsageError
from migrate.manifest import MANIFEST_NAME
from migrate.report.switch import switched_text
from migrate.steps.switch import forget, rollback, switch
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.stores.content import content_of
from migrate.stores.outputs import Output
from migrate.stores.registry import find_exchange, output_of
from migrate.stores.switching import why_no_switch
from migrate.testing.stores import example_documents

# Of databases, some of them servers; the quick tests try what is alike of all stores on files
pytestmark = pytest.mark.slow


def folders(tmp_path):
    old = Faiss().make(tmp_path / "old", records())
    translate(old, tmp_path / "new")
    return old, str(tmp_path / "new")


def sqlites(tmp_path):
    kind_class("sqlite-vec")
    old = make_sqlite(tmp_path / "app")
    translate(old, tmp_path / "new")
    return old, f"sqlite-vec:{tmp_path}/new/my.db#items"


def tables(tmp_path):
    old = Pgvector().make(tmp_path, records())
    written(open_store(old), f"{old}_new", tmp_path / "content", new_vectors())
    return old, f"{old}_new"


def served(tmp_path):
    """Two on a server, both made by this tool."""
    pytest.importorskip("chromadb")
    from chroma_tools import server

    place = f"{server()[1]}#c{time.time_ns():x}"
    source = Faiss().make(tmp_path / "source", records())
    written(open_store(source), place, tmp_path / "one", old_vectors())
    written(open_store(place), f"{place}-new", tmp_path / "two", new_vectors())
    return place, f"{place}-new"


def parquets(tmp_path):
    """Folders of which the new one has fewer files than the old one."""
    kind = kind_class("parquet")()
    old = kind.make(tmp_path / "old", records()).partition("#")[0]
    translate(old, tmp_path / "new", output=output_of(kind.place(tmp_path / "new")))
    return old, kind.place(tmp_path / "new")


MAKERS = [folders, sqlites, parquets, tables, served]
"""Of each way of switching one; `tests/golden` switches every kind, and folders of Chroma and LanceDB as an index's."""


def stamped(pair):
    """Both with a manifest that names their models."""
    for location, spec in zip(pair, (OLD_MODEL, NEW_MODEL), strict=True):
        store = open_store(location)
        index = {"index": store.index_path.name} if hasattr(store, "index_path") else {}
        store.companions.keep(replace(manifest(spec), details=index))
    return pair


@pytest.fixture(params=MAKERS)
def pair(request, tmp_path):
    return stamped(request.param(tmp_path))


def has(location):
    """Which vectors and which model answer at a location; new ones were written in the order of the old store."""
    store = open_store(location)
    found = read_all(store.scan())
    by_id = {document.id: row for row, document in enumerate(example_documents(COUNT))}
    rows = [by_id[doc_id] for doc_id in found.ids]
    spec = store.info.manifest.model.spec if store.info.manifest else None
    if np.allclose(found.vectors, old_vectors()[rows]):
        return "old", spec
    assert np.allclose(found.vectors, new_vectors()), "neither of them"
    return "new", spec


def test_the_model_of_queries_is_named_with_its_prefixes_and_dimensions(tmp_path):
    old, new = stamped(folders(tmp_path))
    store = open_store(new)
    model = replace(store.info.manifest.model, spec="openai:text-embedding-3-small", query_prefix="query: ")
    store.companions.keep(replace(store.info.manifest, model=model))
    done = switch(old, new, unproven=True)
    assert done.model == f"openai:text-embedding-3-small,dimensions={model.dim},query-prefix=query: "
    assert done.old_model == f"{OLD_MODEL},dimensions={open_store(done.aside).info.dim}"


def test_a_new_store_answers_under_the_old_name_and_back(pair, tmp_path):
    old, new = pair
    report = write_report(tmp_path / "r.json", old, new)
    done = switch(old, new, audit=report)
    specs = [spec.partition(",dimensions=")[0] for spec in (done.model, done.old_model)]
    assert (specs, done.proven) == ([NEW_MODEL, OLD_MODEL], True)
    assert has(old) == ("new", NEW_MODEL)
    assert has(done.aside)[0] == "old"
    assert switch(old, new).already, "again is no harm"
    assert has(old) == ("new", NEW_MODEL)
    rollback(old)
    assert has(old) == ("old", OLD_MODEL)
    assert has(new) == ("new", NEW_MODEL)
    with pytest.raises(UsageError, match="nothing was switched"):
        rollback(old)
    assert switch(old, new, audit=report).proven, "and once more"
    assert has(old) == ("new", NEW_MODEL)
    forget(old)
    assert has(old) == ("new", NEW_MODEL)
    with pytest.raises((InputError, UsageError)):
        open_store(done.aside)
    with pytest.raises(UsageError, match="nothing was switched"):
        forget(old)


def test_a_store_that_somebody_writes_to_meanwhile_is_not_switched(pair, monkeypatch):
    old, new = pair

    def content_of_both(store):
        content = migrate.stores.content.content_of(store)
        if store.info.location == open_store(new).info.location:
            change_text(old)
        return content

    monkeypatch.setattr("migrate.steps.switch.job.content_of", content_of_both)
    with pytest.raises(StoreError, match="changed while it was compared"):
        switch(old, new, unproven=True)
    assert has(old) == ("old", OLD_MODEL)
    assert has(new) == ("new", NEW_MODEL)
    monkeypatch.undo()
    assert not is_noted(old)
    switch(old, new, unproven=True)
    assert has(old)[0] == "new"


def test_a_transaction_that_was_open_is_waited_for_and_seen(tmp_path):
    old, new = stamped(tables(tmp_path))
    failed = []

    def switch_meanwhile():
        with pytest.raises(StoreError, match="changed while it was compared"):
            switch(old, new, unproven=True)
        failed.append(True)

    thread = threading.Thread(target=switch_meanwhile, daemon=True)
    with connect() as writer, writer.transaction():
        name, first = old.rpartition("#")[2], example_documents(1)[0].id
        writer.execute(f"UPDATE {name} SET content = 'later' WHERE id = '{first}'")
        thread.start()
        wait_for_lock(thread.is_alive)
    thread.join(30)
    assert failed
    assert has(old) == ("old", OLD_MODEL)


@pytest.mark.parametrize("with_source", [True, False])
def test_a_proven_switch_takes_no_other_texts(tmp_path, with_source):
    old, new = stamped(folders(tmp_path))
    report = json.loads(write_report(tmp_path / "r.json", old, new).read_text())
    change_text(old)
    if with_source:
        report["stores"]["source"] = content_of(open_store(old))  # as if it were of texts that the new one has not
    else:
        store = open_store(new)
        rows = {"source rows": content_of(open_store(old))["rows_sha256"]}
        store.companions.keep(replace(store.info.manifest, inputs=rows))
        report["stores"] = {"translated": content_of(open_store(new))}
    (tmp_path / "r.json").write_text(json.dumps(report))
    with pytest.raises(InputError, match=r"1 documents .* and 0 other metadata"):
        switch(old, new, audit=tmp_path / "r.json")
    assert has(old)[0] == "old"


def test_a_proven_switch_takes_no_other_metadata(tmp_path):
    old, new = stamped(folders(tmp_path))
    report = write_report(tmp_path / "r.json", old, new)
    documents = Path(new, "docs.jsonl")
    lines = [json.loads(line) for line in documents.read_text().splitlines()]
    lines[3]["metadata"] = {"tenant": "another"}
    documents.write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = write_report(tmp_path / "r.json", old, new)
    with pytest.raises(InputError, match=r"0 documents .* and 1 other metadata"):
        switch(old, new, audit=report)


def test_stores_that_were_switched_are_neither_switched_on_nor_replaced(pair, tmp_path):
    old, new = pair
    done = switch(old, new, unproven=True)
    with pytest.raises(UsageError, match="or `forget "):
        switch(new, old, unproven=True)
    for location in dict.fromkeys((old, done.aside)):
        output = output_of(location.replace("/my.db", "")) if ":" in location else Output(Path(location))
        with pytest.raises(UsageError, match="or `forget "):
            output.refuse_existing(force=True)
    rollback(old)
    assert has(old) == ("old", OLD_MODEL)
    assert has(new) == ("new", NEW_MODEL)


def test_a_folder_that_stepped_aside_is_not_replaced_before_it_is_forgotten(tmp_path):
    old, new = stamped(folders(tmp_path))
    switch(old, new, unproven=True)
    for folder in (old, new):
        with pytest.raises(
            UsageError, match=f"a store of a switch of {old} is not replaced; run `rollback {old}` or `forget"
        ):
            Output(Path(folder)).refuse_existing(force=True)
    third = str(tmp_path / "third")
    translate(old, Path(third))
    for pair in ((new, third), (third, new)):
        with pytest.raises(UsageError, match="or `forget "):
            switch(*pair, unproven=True)
    forget(old)
    Output(Path(old)).refuse_existing(force=True)


LONG = f"two-stage {'9' * 5_000}"


def test_without_a_safe_report_of_these_two_nothing_is_switched(tmp_path):
    old, new = pair = stamped(folders(tmp_path))
    with pytest.raises(InputError, match="no report of an audit beside it; name one"):
        switch(old, new)
    for stores, facts, words in (
        (pair, {"outcome": "INCONCLUSIVE"}, "says INCONCLUSIVE"),
        (
            pair,
            {"verdict": {"provisional": True, "measured": "agreement@10", "agreement@10": BOUNDS}},
            r"says SAFE \(provisional\), which proves nothing",
        ),
        (pair, {"plan": {"name": LONG, "outcome": "SAFE"}, "family": {LONG: BOUNDS}}, "is on two-stage 9"),
        ((old, old), {}, r"is of another store, .*\(the same ids, other vectors\)"),
        ((new, new), {}, r"is of another source, .*\(the same ids, other vectors\)"),
        (pair, {"schema_version": 3}, "has schema version 3, .* reads 5"),
        (pair, {"schema_version": 6}, "has schema version 6, and this"),
        (pair, {"stores": {}}, "says of no store what it holds"),
        (pair, {"verdict": {"retention": {**BOUNDS, "lower": 0.9}}}, "says SAFE, which its own numbers do not bear"),
        (pair, {"verdict": {"margin": 2}}, "says SAFE, which its own numbers do not bear"),
        (pair, {"verdict": {"retention": None}}, "'retention' must be"),
    ):
        report = write_report(tmp_path / "r.json", *stores, **facts)
        with pytest.raises(InputError, match=words):
            switch(old, new, audit=report)
    assert has(old) == ("old", OLD_MODEL)
    assert not switch(old, new, unproven=True).proven
    assert has(old) == ("new", NEW_MODEL)


@pytest.mark.parametrize("depth", [None, 20])
def test_a_switch_names_the_margin_of_its_report(depth, tmp_path):
    old, new = stamped(folders(tmp_path))
    plan = {"name": "translated" if depth is None else f"two-stage {depth}", "outcome": "SAFE"}
    verdict = {"margin": 0.9, "safe_from": 0.9, "not_safe_below": 0.9}
    done = switch(old, new, audit=write_report(tmp_path / "r.json", old, new, verdict=verdict, plan=plan))
    assert done.margin == 0.9 and done.two_stage == depth
    assert "report says" in switched_text(done, old) and " by a margin of 90 %" in switched_text(done, old)
    assert switch(old, new).margin == 0.9, "that of the record"
    rollback(old)
    assert switch(old, new, unproven=True).margin is None


FOLDER = ["noted", "moved", "exchanged"]
RENAMES = ["noted", "moved", "moved:2", "moved:3", "exchanged"]
POINTS = {folders: FOLDER, sqlites: ["moved"], tables: ["noted", "exchanged"], served: RENAMES[:-1]}
KILLS = [(make, False, point) for make, points in POINTS.items() for point in points]
KILLS += [(folders, True, point) for point in RENAMES]


def die(call, old, new, point, *, plain=False):
    call_in_child(change_switch, call, old, new, plain, point=point if ":" in point else f"{point}:1")


@pytest.mark.parametrize(("make", "plain", "point"), KILLS)
def test_a_switch_that_is_killed_anywhere_is_finished_or_undone(make, plain, point, tmp_path):
    old, new = stamped(make(tmp_path))
    die("switch", old, new, point, plain=plain)
    if not plain and make is not served:
        assert has(old)[0] in ("old", "new"), "no moment without a store"
    if point == "noted" and make is not tables:  # whose transaction notes nothing
        with pytest.raises(UsageError, match="the switch is incomplete"):
            forget(old)
    switch(old, new, unproven=True)
    assert has(old) == ("new", NEW_MODEL), "finished"
    die("rollback", old, new, point, plain=plain)
    if is_noted(old):
        rollback(old)
    assert has(old) == ("old", OLD_MODEL)
    die("switch", old, new, point, plain=plain)
    if is_noted(old):
        rollback(old)
    assert has(old) == ("old", OLD_MODEL), "undone"
    assert has(new) == ("new", NEW_MODEL)


@pytest.mark.parametrize("make", POINTS)
def test_a_way_back_that_is_killed_is_a_switch_again_if_that_is_what_is_wanted(make, tmp_path):
    old, new = stamped(make(tmp_path))
    switch(old, new, unproven=True)
    die("rollback", old, new, "exchanged")
    switch(old, new, unproven=True)
    assert has(old) == ("new", NEW_MODEL)
    rollback(old)
    assert (has(old), has(new)) == (("old", OLD_MODEL), ("new", NEW_MODEL))


@pytest.mark.parametrize("point", ["noted", "set aside"])
@pytest.mark.parametrize("make", [folders, tables, served])
def test_what_is_half_forgotten_is_forgotten_by_the_next(make, point, tmp_path):
    old, new = stamped(make(tmp_path))
    switch(old, new, unproven=True)
    die("forget", old, new, point)
    if is_noted(old):
        forget(old)
    assert has(old) == ("new", NEW_MODEL)
    assert not is_noted(old)


def is_noted(location):
    exchange = find_exchange(location)
    return exchange is not None and exchange.record() is not None


def search_folder(location):
    import faiss

    return faiss.read_index(f"{location}/index.faiss").search(old_vectors()[:1], 5)[1][0].tolist()


def search_table(location, _opened={}):  # noqa: B006 - one connection, which is open all the while
    if "connection" not in _opened:
        _opened["connection"] = connect()
    question = f"SELECT id FROM {location.rpartition('#')[2]} ORDER BY embedding <-> %s::vector LIMIT 5"
    return [row[0] for row in _opened["connection"].execute(question, [as_text(old_vectors()[0])])]


def searched_all_the_while(old, new, search):
    """Ask in a thread while stores are switched and rolled back."""
    answers = []

    def answered(failures):
        """Wait for an answer to a question that is asked from now on, unless one fails."""
        count, end = len(answers) + 2, time.monotonic() + 60
        while len(answers) < count and not failures:
            assert time.monotonic() < end, "who searches gets no answer"
            time.sleep(0.002)

    with asking(lambda: answers.append(tuple(search(old)))) as failures:
        for _ in range(3):
            switch(old, new, unproven=True)
            answered(failures)
            rollback(old)
            answered(failures)
    assert not failures
    return answers


@pytest.mark.parametrize(("make", "search"), [(folders, search_folder), (tables, search_table)])
def test_who_searches_all_the_while_gets_one_or_the_other(make, search, tmp_path):
    old, new = make(tmp_path)
    before = tuple(search(old))
    answers = searched_all_the_while(old, new, search)
    assert len(set(answers)) == 2, "answers of two stores, both seen"
    assert answers[-1] == before


def test_who_searches_a_collection_all_the_while_gets_one_or_the_other(tmp_path):
    old, new = served(tmp_path)
    from chroma_tools import server
    from chromadb.errors import NotFoundError

    client, name = server()[0], old.rpartition("#")[2]
    held, answers_of_held = client.get_collection(name, embedding_function=None), Counter()

    def nearest(collection):
        return tuple(collection.query(old_vectors()[:1], n_results=5)["ids"][0])

    def search(location):
        answers_of_held[nearest(held)] += 1
        try:
            return nearest(client.get_collection(name, embedding_function=None))
        except NotFoundError:  # between two calls nothing has the name
            return ()

    answers = searched_all_the_while(old, new, search)
    assert len(answers_of_held) == 1, "who holds the old one goes on"
    assert len({*answers} - {()}) == 2, "answers of two stores, both seen"


def named_on_a_server(tmp_path):
    """Two on a server that name one embedding function; not made by this tool."""
    pytest.importorskip("chromadb")
    from chroma_tools import server

    client, url = server()
    name = f"c{time.time_ns():x}"
    make_named(client, name, old_vectors())
    make_named(client, f"{name}-new", new_vectors())
    return f"{url}#{name}", f"{url}#{name}-new"


def named_in_folders(tmp_path):
    """Whole folders whose collections name a function."""
    kind = kind_class("chroma")()
    old, new = (kind.place(tmp_path / name) for name in ("old", "new"))
    with kind.opened(old) as client:
        make_named(client, "docs", old_vectors())
    translate(old, tmp_path / "new")
    return stamped((old, new))


@pytest.mark.parametrize("make", [named_on_a_server, named_in_folders])
def test_the_embedding_function_changes_with_the_name(make, tmp_path):
    old, new = make(tmp_path)

    def model(location):
        return open_store(location).rows.configuration["embedding_function"]["config"]

    assert model(old) == model(new)
    switch(old, new, unproven=True)
    if make is named_on_a_server:  # no manifest there says which model is the new one
        assert open_store(old).rows.configuration["embedding_function"] == {"type": "legacy"}
    else:
        assert model(old)["model_name"] == "text-embedding-3-small"
        assert (model(old)["api_base"], model(old)["dimensions"]) == ("http://proxy", DIM)
    rollback(old)
    assert model(old)["model_name"] == "text-embedding-ada-002"


def test_a_password_is_noted_nowhere(tmp_path):
    old, new = (location.replace("postgres@", "postgres:se-cret@") for location in tables(tmp_path))
    done = switch(old, new, unproven=True)
    assert "se-cret" not in repr(done) + repr(find_exchange(old).record())
    assert rollback(old).old == done.old


def test_a_folder_with_something_else_is_refused_by_name(tmp_path):
    old, new = folders(tmp_path)
    (tmp_path / "old" / "settings.yaml").write_text("mine")
    with pytest.raises(UsageError, match=r"there is settings\.yaml, which .*new lacks"):
        switch(old, new, unproven=True)
    for number in range(6):
        (tmp_path / "old" / f"notes{number}").touch()
    with pytest.raises(UsageError, match="notes0, notes1, notes2, notes3, notes4, which"):
        switch(old, new, unproven=True)
    with pytest.raises(UsageError, match=re.escape("this is the old store itself")):
        switch(old, old, unproven=True)


def test_folders_on_two_file_systems_are_refused_by_name(tmp_path):
    old, new = folders(tmp_path)
    elsewhere = next((path for path in map(Path, ELSEWHERE) if is_writable_elsewhere(path, tmp_path)), None)
    if elsewhere is None:
        pytest.skip("there is one file system")
    with tempfile.TemporaryDirectory(dir=elsewhere) as folder:
        moved = shutil.copytree(new, Path(folder) / "new")
        with pytest.raises(UsageError, match=f"{moved}: this is on another file system than {old}"):
            switch(old, str(moved), unproven=True)
    assert has(old)[0] == "old" and not is_noted(old)


ELSEWHERE = ("/dev/shm", "/tmp", Path.home(), Path.cwd())


def is_writable_elsewhere(path, here):
    return path.is_dir() and os.access(path, os.W_OK) and path.stat().st_dev != here.stat().st_dev


@pytest.mark.parametrize("moment", ["noted:1", "exchanged:1"])
@pytest.mark.parametrize("call", [switch, rollback])
def test_what_is_half_switched_or_half_undone_is_not_forgotten(call, moment, tmp_path, monkeypatch):
    """Of a way back that is complete but for the note, the old store is the one that answers."""
    old, new = stamped(folders(tmp_path))
    if call is rollback:
        switch(old, new, unproven=True)
    with monkeypatch.context() as patch:
        interrupt_at(moment, patch)
        with pytest.raises(KeyboardInterrupt):
            switch(old, new, unproven=True) if call is switch else rollback(old)
    if (call, moment) == (switch, "exchanged:1"):
        forget(old)
        assert has(old) == ("new", NEW_MODEL) and not Path(new).exists()
        return
    with pytest.raises(UsageError, match="incomplete: run `switch` or `rollback`"):
        forget(old)
    rollback(old)
    assert (has(old), has(new)) == (("old", OLD_MODEL), ("new", NEW_MODEL))


@pytest.mark.parametrize("moment", ["noted:1", "set aside:1"])
def test_what_is_half_forgotten_is_neither_switched_nor_undone(moment, tmp_path, monkeypatch):
    old, new = stamped(folders(tmp_path))
    switch(old, new, unproven=True)
    with monkeypatch.context() as patch:
        interrupt_at(moment, patch)
        with pytest.raises(KeyboardInterrupt):
            forget(old)
    with pytest.raises(UsageError, match="at least in part; run `forget` again"):
        rollback(old)
    exchange = find_exchange(old)
    with pytest.raises(UsageError, match="only partly deleted; run `forget` again"):
        exchange.switch(exchange.record())
    assert has(old) == ("new", NEW_MODEL)
    forget(old)
    assert has(old) == ("new", NEW_MODEL)
    assert [path.name for path in tmp_path.iterdir()] == ["old"], "the old store is deleted, and what was noted"


def test_a_switch_is_found_by_a_file_of_the_store_with_and_without_the_folder(tmp_path):
    old, new = stamped(folders(tmp_path))
    index, of_another = Path(old) / "index.faiss", tmp_path / "old" / "index.faiss" / "deeper"
    assert find_exchange(str(index)) is None
    switch(old, new, unproven=True)
    assert find_exchange(str(index)).record() == find_exchange(old).record() is not None
    assert find_exchange(str(of_another)) is None and find_exchange(f"{tmp_path}/nowhere") is None
    Path(old).rename(tmp_path / ".old.switching")  # as between two renames
    assert find_exchange(str(index)).record() == find_exchange(old).record() is not None


def test_what_keeps_files_in_nested_folders_from_trading_places_is_told(tmp_path):
    _, new = folders(tmp_path)
    inner = tmp_path / "old" / "inner"
    shutil.copytree(new, inner)
    (inner / "index.faiss").rename(inner / "another.faiss")
    refused = f"trade places in a switch, and {inner} lies inside {tmp_path / 'old'}; move each into a folder"
    for pair in ((tmp_path / "old", inner / "another.faiss"), (inner / "another.faiss", tmp_path / "old")):
        with pytest.raises(UsageError, match=re.escape(refused)):
            switch(*map(str, pair), unproven=True)
    assert (inner / "another.faiss").is_file()


@pytest.mark.parametrize("content", [b"", b"[]", b'{"paths": ["old"]}', b"\xff"])
def test_a_damaged_note_of_a_switch_is_told_in_one_line(content, tmp_path):
    old, new = folders(tmp_path)
    switch(old, new, unproven=True)
    note = tmp_path / ".old.switch.json"
    assert note.is_file()
    note.write_bytes(content)
    with pytest.raises(InputError, match=f"{note}: no switch has noted this .*; see what wrote it"):
        rollback(old)


def test_whether_stores_can_be_switched_is_known_without_switching(tmp_path):
    old, new = map(open_store, folders(tmp_path))
    other = open_store(sqlites(tmp_path / "others")[0])
    reason = "the two are of kinds that do not trade names"
    assert why_no_switch(old, new) is None
    assert why_no_switch(old, other) == why_no_switch(other, new) == reason
    assert f"both stores lie in {tmp_path / 'old'}, and a switch lets their folders trade" in why_no_switch(old, old)
    assert not is_noted(old.info.location)


def test_files_on_object_storage_do_not_trade_names(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    local = kind_class("parquet")().make(tmp_path / "files", records()).partition("#")[0]
    place = fsspec.filesystem("memory")
    for name in ("old", "new"):
        place.put(local.partition(":")[2], f"/switched/{tmp_path.name}/{name}", recursive=True)
    old, new = (open_store(f"parquet:memory://switched/{tmp_path.name}/{name}") for name in ("old", "new"))
    assert why_no_switch(old, new) == "the two are of kinds that do not trade names"


@pytest.mark.parametrize("which", [0, 1])
def test_a_folder_that_is_a_mount_point_is_refused(which, tmp_path, mount):
    pair = list(folders(tmp_path))
    mount(tmp_path / "volume")
    shutil.copytree(pair[which], tmp_path / "volume", dirs_exist_ok=True)
    pair[which] = str(tmp_path / "volume")
    with pytest.raises(UsageError, match=r"volume: a mount point cannot be renamed"):
        switch(*pair, unproven=True)


@pytest.mark.parametrize("kind", ["chroma", "sqlite-vec"])
def test_where_a_folder_has_several_the_string_to_change_is_named(kind, tmp_path):
    kind = kind_class(kind)()
    kind.make(tmp_path / "old", records(), name="others")
    old, new = kind.make(tmp_path / "old", records()), kind.location(tmp_path / "new", kind.name)
    translate(old, tmp_path / "new")
    before = [files_of(tmp_path / name) for name in ("old", "new")]
    spots = [location.partition(":")[2].partition("?")[0] for location in (old, new)]
    words = f"s, others.*in your programs, change {spots[0]} to {spots[1]}"
    with pytest.raises(UsageError, match=words):
        switch(old, new, unproven=True)
    assert [files_of(tmp_path / name) for name in ("old", "new")] == before and not is_noted(old)


def test_other_ids_fewer_documents_or_another_kind_are_refused(tmp_path):
    old, new = folders(tmp_path)
    lines = (tmp_path / "new" / "docs.jsonl").read_text().splitlines()
    facts = json.loads(lines[3])
    lines[3] = json.dumps({**facts, "id": "another"})
    (tmp_path / "new" / "docs.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match="other ids than"):
        switch(old, new, unproven=True)
    fewer = Faiss().make(tmp_path / "fewer", dict(list(records().items())[1:]))
    with pytest.raises(InputError, match="other vectors than"):
        switch(old, fewer, unproven=True)
    with pytest.raises(UsageError, match="this is a store of the kind sqlite-vec"):
        switch(old, sqlites(tmp_path / "new")[0], unproven=True)


def test_a_view_that_reads_the_old_table_is_named(tmp_path):
    old, new = tables(tmp_path)
    table = old.rpartition("#")[2]
    with connect() as connection:
        connection.execute(f"CREATE VIEW {table}_seen AS SELECT id FROM {table}")
        connection.execute(f"CREATE TABLE {table}_marks (of_id text REFERENCES {table} (id))")
    with pytest.raises(UsageError, match=f"view {table}_seen reads it"):
        switch(old, new, unproven=True)
    with connect() as connection:
        connection.execute(f"DROP VIEW {table}_seen")
    with pytest.raises(UsageError, match=f"of {table}_marks points at it"):
        switch(old, new, unproven=True)


def test_who_holds_the_old_table_is_not_waited_for_long(tmp_path, monkeypatch):
    monkeypatch.setattr("migrate.databases.pgvector_server.PATIENCE", "100ms")
    old, new = tables(tmp_path)
    with connect() as connection, connection.transaction():
        connection.execute(f"SELECT count(*) FROM {old.rpartition('#')[2]}")
        with pytest.raises(StoreError, match="another transaction held the tables"):
            switch(old, new, unproven=True)
    assert not is_noted(old)
    switch(old, new, unproven=True)


def test_a_folder_that_came_later_is_not_taken_for_the_old_one(tmp_path):
    old, new = folders(tmp_path)
    switch(old, new, unproven=True)
    shutil.rmtree(new)
    Faiss().make(Path(new), records())
    for undo in (rollback, forget):
        with pytest.raises(InputError, match="other stores have come to the places"):
            undo(old)
    assert open_store(new).info.count == COUNT, "nothing of somebody else's is deleted"


def test_what_lies_beside_in_a_database_is_in_the_new_one_too(tmp_path):
    old, new = sqlites(tmp_path)
    import apsw

    def facts():
        with closing(apsw.Connection(f"{tmp_path}/app/my.db")) as connection:
            schema = "SELECT name, tbl_name, sql FROM sqlite_master WHERE name IN ('customers', 'gone')"
            questions = (schema, "SELECT * FROM customers", "PRAGMA integrity_check")
            return [list(connection.execute(question)) for question in questions]

    before, content = facts(), (tmp_path / "app" / "my.db").read_bytes()
    switch(old, new, unproven=True)
    assert has(old)[0] == "new" and facts() == before
    rollback(old)
    assert (tmp_path / "app" / "my.db").read_bytes() == content
    assert not (tmp_path / "app" / MANIFEST_NAME).exists()


@pytest.mark.parametrize("which", ["old", "new"])
@pytest.mark.parametrize(
    "question",
    [
        "INSERT INTO customers VALUES (2, 'bob')",
        "CREATE TABLE orders (id)",
        "CREATE VIEW orders AS SELECT 1",
        "DROP TRIGGER gone",
    ],
)
def test_what_was_written_beside_the_table_since_the_copy_is_not_lost(which, question, tmp_path):
    old, new = sqlites(tmp_path)
    import apsw

    with closing(apsw.Connection(str(tmp_path / {"old": "app"}.get(which, which) / "my.db"))) as connection:
        connection.execute(question)
    with pytest.raises(UsageError, match=r"its table \w+ differs "):
        switch(old, new, unproven=True)
    assert has(old)[0] == "old" and not is_noted(old)


def test_a_database_of_another_file_name_is_not_switched(tmp_path):
    old = sqlites(tmp_path)[0]
    new = tmp_path / "other"
    new.mkdir()
    shutil.copy(tmp_path / "new" / "my.db", new / "store.db")
    words = f"in your programs, change {tmp_path}/app/my.db#items to {new}/store.db#items"
    with pytest.raises(UsageError, match=words):
        switch(old, f"sqlite-vec:{new}/store.db#items", unproven=True)
    assert has(old)[0] == "old" and not is_noted(old)


def test_what_a_killed_writer_has_left_half_written_is_undone(tmp_path):
    old = sqlites(tmp_path)[0]
    code = (
        "import os, sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "connection.execute('PRAGMA cache_size = 1')\n"
        "connection.execute('BEGIN')\n"
        "connection.execute('CREATE TABLE half (x)')\n"
        "connection.executemany('INSERT INTO half VALUES (zeroblob(9000))', [()] * 300)\n"
        "os._exit(1)\n"
    )
    path = tmp_path / "app" / "my.db"
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert path.with_name("my.db-journal").stat().st_size
    assert has(old) == ("old", None)
    assert not path.with_name("my.db-journal").exists()
