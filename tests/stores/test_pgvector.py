"""Tables of a real PostgreSQL with pgvector."""

import re
import uuid
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import sync_tools as tools
from database_tests import DatabaseTests, name_of
from database_tests import written as write
from kind_base import records_of
from kind_pgvector import Pgvector
from postgres import as_text, connect, has_halves, server_url

import migrate
from migrate.errors import StoreError, UsageError
from migrate.manifest import Manifest, ModelIdentity
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.stores.registry import output_of
from migrate.testing.stores import example_documents, example_vectors

# Of databases, some of them servers; the quick tests try what is alike of all stores on files
pytestmark = pytest.mark.slow

pytest.importorskip("psycopg", reason="needs the extra pgvector")


def location(table):
    return f"pgvector:{server_url()}#{table}"


def create(table, documents, vectors, metric="l2"):
    Pgvector().create(table, records_of(documents, vectors), metric)


class TestPgvector(DatabaseTests):
    def make_store(self, folder, documents, vectors, metric):
        create(name_of(folder), documents, vectors, metric)
        return location(name_of(folder))

    def new_location(self, folder):
        return location(name_of(folder))


COUNT, DIM = 120, 6

AWKWARD = """
CREATE TABLE tenants_{t} (id uuid PRIMARY KEY, name text);
INSERT INTO tenants_{t} SELECT gen_random_uuid(), 'tenant ' || i FROM generate_series(1, 3) i;
CREATE TABLE {t} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id uuid NOT NULL REFERENCES tenants_{t} (id),
    "Odd ""name"" .x" text, body text, price numeric(30, 12), at timestamptz, tags text[], raw bytea, flags bit(3),
    nested jsonb, other vector(3), embedding vector(6), n serial, note varchar(9) DEFAULT 'none' CHECK (note <> 'bad'),
    doubled bigint GENERATED ALWAYS AS (n * 2) STORED, UNIQUE (tenant_id, n)
);
INSERT INTO {t} (tenant_id, "Odd ""name"" .x", body, price, at, tags, raw, flags, nested, other, embedding)
SELECT (SELECT id FROM tenants_{t} ORDER BY name OFFSET i % 3 LIMIT 1),
    CASE WHEN i % 4 > 0 THEN E'tab\\t"é🦆' || i END, CASE WHEN i % 5 > 0 THEN 'words ' || i || ' of ' || i % 7 END,
    i / 7.0::numeric(30, 12), now() + i * interval '1 s', CASE WHEN i % 3 > 0 THEN ARRAY['a,b', NULL, '{{}}'] END,
    decode(lpad(to_hex(i), 4, '0'), 'hex'), B'101',
    jsonb_build_object('a', jsonb_build_array(i, NULL, 1.50), 'b', '{{}}'::jsonb),
    CASE WHEN i % 2 > 0 THEN '[1,2,3]'::vector END,
    CASE WHEN i % 10 > 0 THEN ('[' || i || ',1,2,3,' || sin(i)::real || ',' || cos(i)::real || ']')::vector END
FROM generate_series(1, 120) i;
CREATE INDEX {t}_hnsw ON {t} USING hnsw (embedding vector_cosine_ops) WITH (m = 8, ef_construction = 33);
CREATE INDEX {t}_ivf ON {t} USING ivfflat (embedding vector_cosine_ops) WITH (lists = 5);
CREATE INDEX {t}_lower ON {t} (lower(body)) WHERE n > 3;
CREATE UNIQUE INDEX "{t} ""USING"" n" ON {t} USING btree (n) INCLUDE (price);
ALTER TABLE {t} ENABLE ROW LEVEL SECURITY;
CREATE POLICY only_own ON {t} USING (tenant_id::text = current_setting('app.tenant', true));
GRANT SELECT ON {t} TO pg_monitor;
"""


@pytest.fixture
def awkward(tmp_path):
    table = name_of(tmp_path / "awkward")
    with connect() as connection:
        connection.execute(AWKWARD.format(t=table))
    yield table
    with connect() as connection:
        connection.execute(f"DROP TABLE {table}, tenants_{table} CASCADE")


def ask(question, *values):
    with connect() as connection:
        return connection.execute(question, values).fetchall()


def written(source, name, dim, seed=3):
    """A copy with other vectors, published."""
    vectors = np.random.default_rng(seed).normal(size=(source.info.count, dim)).astype(np.float32)
    with TemporaryDirectory() as folder:
        made, finished = write(source, location(name), Path(folder, "new"), vectors)
    return made, vectors, finished


LANGCHAIN = """
CREATE SCHEMA lc; SET search_path = lc, public;
CREATE TABLE langchain_pg_collection (uuid uuid PRIMARY KEY, name varchar UNIQUE NOT NULL, cmetadata json);
CREATE TABLE langchain_pg_embedding (
    id varchar PRIMARY KEY, collection_id uuid REFERENCES langchain_pg_collection (uuid) ON DELETE CASCADE,
    embedding vector, document varchar, cmetadata jsonb
);
CREATE INDEX ix_cmetadata_gin ON langchain_pg_embedding USING gin (cmetadata jsonb_path_ops);
INSERT INTO langchain_pg_collection SELECT gen_random_uuid(), name FROM (VALUES ('one'), ('two')) v (name);
INSERT INTO langchain_pg_embedding
SELECT name || i, uuid, (CASE name WHEN 'one' THEN '[1,2,' ELSE '[1,2,3,' END || i || ']')::vector, 'text ' || i,
    jsonb_build_object('page', i) FROM langchain_pg_collection, generate_series(1, 50) i;
CREATE INDEX by_one ON langchain_pg_embedding USING hnsw ((embedding::vector(3)) vector_cosine_ops)
    WHERE vector_dims(embedding) = 3;
"""


@pytest.fixture
def langchain():
    with connect() as connection:
        connection.execute(LANGCHAIN)
    yield "lc.langchain_pg_embedding"
    with connect() as connection:
        connection.execute("DROP SCHEMA lc CASCADE")


def test_a_collection_of_langchain_is_a_store(langchain):
    with pytest.raises(StoreError, match="there are one, two: name one with"):
        open_store(location(langchain))
    one, two = (open_store(f"{location(langchain)}?collection={name}") for name in ("one", "two"))
    assert (one.info.count, one.info.dim, two.info.count, two.info.dim) == (50, 3, 50, 4)
    (document,) = one.documents(np.array([one.ids(range(50)).index("one7")]))
    assert document.text == "text 7" and document.metadata["page"] == 7
    assert [setting and setting.name for setting in (one.searcher().setting, two.searcher().setting)] == [
        "hnsw.ef_search",
        None,
    ]  # the index is of 3 dimensions
    for store, name in ((one, "one"), (two, "two")):
        whole = read_all(store.scan())
        units = whole.vectors / np.linalg.norm(whole.vectors, axis=1, keepdims=True)
        nearest = np.argsort(-units @ units[7], kind="stable")[:3]
        assert store.searcher().search(whole.vectors[7:8], 3)[0].ids[0] == whole.ids[nearest[0]] == whole.ids[7]
        assert all(doc_id.startswith(name) for doc_id in store.searcher().search(whole.vectors[7:8], 50)[0].ids)
    new, vectors, _ = written(two, "lc.langchain_two", 5)
    assert np.array_equal(read_all(new.scan()).vectors, vectors) and list(new.documents()) == list(two.documents())


OWNED = """
CREATE SCHEMA owned; SET search_path = owned, public;
CREATE TABLE chunks (workspace varchar, id varchar, content text, v vector(3), PRIMARY KEY (workspace, id));
CREATE TABLE nothing (LIKE chunks INCLUDING ALL);
INSERT INTO chunks SELECT owner, 'c' || i, owner || ' ' || i, ('[1,2,' || i || ']')::vector
    FROM (VALUES ('ann'), ('bob')) v (owner), generate_series(1, 20) i;
"""


@pytest.fixture
def owned():
    with connect() as connection:
        connection.execute(OWNED)
    yield "owned.chunks"
    with connect() as connection:
        connection.execute("DROP SCHEMA owned CASCADE")


def test_rows_of_an_owner_are_a_store(owned):
    with pytest.raises(StoreError, match="there are ann, bob: name one with"):
        open_store(location(owned))
    ann, bob = (open_store(f"{location(owned)}?collection={name}") for name in ("ann", "bob"))
    assert ann.info.count == bob.info.count == 20 and sorted(ann.ids(range(20))) == sorted(bob.ids(range(20)))
    assert all(document.text.startswith("bob ") for document in bob.documents())
    assert bob.rows.update({"c7": np.zeros(3, np.float32)}) == 1
    assert ask(f"SELECT workspace FROM {owned} WHERE v = '[0,0,0]'") == [("bob",)]
    new, vectors, _ = written(ann, "owned.made", 5)
    assert np.array_equal(read_all(new.scan()).vectors, vectors) and list(new.documents()) == list(ann.documents())
    assert ask("SELECT DISTINCT workspace FROM owned.made") == [("ann",)]
    assert open_store(location("owned.nothing")).info.count == 0


def test_a_copy_with_a_sequence_is_written_over_by_force(awkward):
    source, new = open_store(f"{location(awkward)}.embedding?text=body"), location(f"{awkward}_new.embedding")
    stitch = migrate.fit(source, tools.Hashed(dim=5), kind="ridge", sample=40)
    for _ in range(3):
        migrate.translate(source, stitch, new, force=True)
    assert ask(f"SELECT pg_get_serial_sequence('{awkward}_new', 'n')")[0][0]
    assert ask(f"SELECT nextval(pg_get_serial_sequence('{awkward}_new', 'n'))") == [(COUNT + 1,)]


def test_all_columns_of_an_awkward_table_go_through(awkward):
    source = open_store(f"{location(awkward)}.embedding?text=body")
    assert (source.info.count, source.info.dim, source.info.without_vector) == (108, DIM, 12)
    new, vectors, _ = written(source, f"{awkward}_new.embedding", 9)
    assert new.info.dim == 9
    assert np.array_equal(read_all(new.scan()).vectors, vectors)
    columns = [name for name in source.rows.table.types if name != "embedding"]
    names = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
    old_rows = ask(f"SELECT {names}, embedding IS NULL FROM {awkward} ORDER BY id")
    assert len(old_rows) == COUNT
    assert ask(f"SELECT {names}, embedding IS NULL FROM {awkward}_new ORDER BY id") == old_rows
    types = """
        SELECT attname, format_type(atttypid, atttypmod), attnotnull, attidentity, attgenerated,
            pg_get_expr(adbin, adrelid)
        FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
        WHERE attrelid = %s::regclass AND attnum > 0 AND attname NOT IN ('embedding', 'n') ORDER BY attnum
    """
    assert ask(types, awkward) == ask(types, f"{awkward}_new")


def test_keys_indexes_sequences_policies_and_grants_go_with_a_copy(awkward):
    new, _, _ = written(open_store(f"{location(awkward)}.embedding?text=body"), f"{awkward}_new.embedding", 9)
    kept = {index.name: index for index in new.rows.table.indexes}
    assert new.rows.text == "body"  # as the source was opened
    graph, lists, lower = (kept[f"{awkward}_new_{name}"] for name in ("hnsw", "ivf", "lower"))
    assert (graph.distance, graph.options) == ("cosine", {"m": "8", "ef_construction": "33"})
    assert lists.options == {"lists": "5"}
    assert "lower(body)" in lower.definition and "WHERE (n > 3)" in lower.definition
    assert kept[f'{awkward}_new "USING" n'].definition.startswith("CREATE UNIQUE INDEX")
    for question in (
        "SELECT contype::text, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = %s::regclass "
        "ORDER BY 1, 2",
        "SELECT policyname, permissive, roles, cmd, qual, with_check FROM pg_policies WHERE tablename = %s",
    ):
        assert ask(question, f"{awkward}_new") == ask(question, awkward) != []
    is_secured = "SELECT relrowsecurity FROM pg_class WHERE relname = %s"
    assert ask(is_secured, f"{awkward}_new") == [(True,)]
    assert ask("SELECT has_table_privilege('pg_monitor', %s, 'SELECT')", f"{awkward}_new") == [(True,)]
    tenant = ask(f"SELECT id FROM tenants_{awkward} LIMIT 1")[0][0]
    inserted = ask(f"INSERT INTO {awkward}_new (tenant_id) VALUES (%s) RETURNING id, n, note, doubled", tenant)
    assert inserted == [(COUNT + 1, COUNT + 1, "none", 2 * COUNT + 2)]
    assert ask(f"INSERT INTO {awkward} (tenant_id) VALUES (%s) RETURNING id, n", tenant) == [(COUNT + 1, COUNT + 1)]


def test_comment_and_parameters_go_with_a_copy_and_what_does_not_is_named(awkward):
    with connect() as connection:
        connection.execute(f"COMMENT ON TABLE {awkward} IS '100%% ours'")
        connection.execute(f"COMMENT ON COLUMN {awkward}.note IS 'a note'")
        connection.execute(f"COMMENT ON INDEX {awkward}_lower IS 'in lower case'")
        connection.execute(f"ALTER TABLE {awkward} SET (fillfactor = 70, autovacuum_enabled = false)")
        connection.execute(f"ALTER TABLE {awkward} REPLICA IDENTITY FULL")
        connection.execute(f"CREATE RULE kept AS ON DELETE TO {awkward} DO INSTEAD NOTHING")
        connection.execute(f"CREATE STATISTICS {awkward}_two ON n, note FROM {awkward}")
    _, _, finished = written(open_store(f"{location(awkward)}.embedding?text=body"), f"{awkward}_new.embedding", 9)
    for question in (
        "SELECT obj_description(%s::regclass, 'pg_class')",
        "SELECT col_description(attrelid, attnum) FROM pg_attribute WHERE attrelid = %s::regclass AND attname = 'note'",
        "SELECT reloptions FROM pg_class WHERE oid = %s::regclass",
        "SELECT stxkeys::text, stxkind FROM pg_statistic_ext WHERE stxrelid = %s::regclass",
    ):
        assert ask(question, f"{awkward}_new") == ask(question, awkward) != [(None,)]
    expected = f"not copied of the table: rule kept, its replica identity, the comment of index {awkward}_lower; see"
    assert any(remark.startswith(expected) for remark in finished.remarks), finished.remarks


def facts_of_columns(table):
    """All that the catalog says of the columns of a table but of the vectors' type."""
    return ask(
        """
        SELECT attname, split_part(format_type(atttypid, atttypmod), '(', 1), attnotnull, attidentity, attgenerated,
            pg_get_expr(adbin, adrelid), attstorage, attcompression, attstattarget, attoptions, attacl::text,
            attcollation, col_description(attrelid, attnum)
        FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
        WHERE attrelid = %s::regclass AND attnum > 0 ORDER BY attnum
        """,
        table,
    )


def test_a_column_keeps_storage_statistics_parameters_and_grants_in_a_copy(tmp_path):
    table = name_of(tmp_path / "columns")
    with connect() as connection:
        connection.execute(
            f"CREATE TABLE {table} (id bigint PRIMARY KEY, a text STORAGE EXTERNAL COMPRESSION pglz, "
            f'b text COLLATE "C", embedding vector(6)) WITH (toast.autovacuum_enabled = false)'
        )
        connection.execute(f"ALTER TABLE {table} ALTER embedding SET STORAGE PLAIN, ALTER embedding SET STATISTICS 0")
        connection.execute(f"ALTER TABLE {table} ALTER b SET STATISTICS 500, ALTER b SET (n_distinct = 5)")
        connection.execute(f"GRANT SELECT (id), UPDATE (a) ON {table} TO pg_monitor WITH GRANT OPTION")
        connection.execute(f"GRANT SELECT (b) ON {table} TO PUBLIC")
        connection.execute(
            f"INSERT INTO {table} (id, embedding) SELECT i, '[1,2,3,4,5,6]' FROM generate_series(1, 9) i"
        )
    _, _, writer = written(open_store(f"{location(table)}.embedding"), f"{table}_new.embedding", 4)
    assert facts_of_columns(f"{table}_new") == facts_of_columns(table)
    question = "SELECT reloptions FROM pg_class WHERE oid = (SELECT reltoastrelid FROM pg_class WHERE relname = %s)"
    assert ask(question, f"{table}_new") == ask(question, table) == [(["autovacuum_enabled=false"],)]
    assert writer.remarks == ()


@pytest.mark.parametrize(
    ("columns", "also", "lacking"),
    [
        ("", "ALTER TABLE {t} OWNER TO pg_monitor", "its owner pg_monitor"),
        ("", "CLUSTER {t} USING {t}_pkey", "that it is clustered by {t}_pkey"),
        (", n int", "ALTER TABLE {t} ADD CHECK (n > 1) NOT VALID", "that constraint {t}_n_check is not valid"),
        ("", "COMMENT ON CONSTRAINT {t}_pkey ON {t} IS 'the key'", "the comment of constraint {t}_pkey"),
        ("", "CREATE POLICY own ON {t}; COMMENT ON POLICY own ON {t} IS 'ours'", "the comment of policy own"),
        (
            ", b text",
            "CREATE INDEX {t}_lower ON {t} (lower(b)); ALTER INDEX {t}_lower ALTER COLUMN 1 SET STATISTICS 300",
            "the statistics target of index {t}_lower",
        ),
        ("", "CREATE TABLE {t}_above (id bigint); ALTER TABLE {t} INHERIT {t}_above", "that it inherits {t}_above"),
        (
            "",
            "CREATE TABLE {t}_below () INHERITS ({t})",
            "that {t}_below inherits it, whose rows are in the new table",
        ),
        ("", "ALTER TABLE {t} SET UNLOGGED", "that it is unlogged"),
        (
            "",
            "CREATE TYPE {t}_type AS (id bigint, embedding vector(6)); ALTER TABLE {t} OF {t}_type",
            "that it is of type {t}_type",
        ),
        ("", "CREATE PUBLICATION {t}_feed FOR TABLE {t}", "its place in publication {t}_feed"),
    ],
)
def test_what_no_copy_of_a_table_has_is_named(tmp_path, columns, also, lacking):
    table = name_of(tmp_path / "lacking")
    with connect() as connection:
        connection.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY, embedding vector(6){columns})")
        connection.execute(
            f"INSERT INTO {table} (id, embedding) SELECT i, '[1,2,3,4,5,6]' FROM generate_series(1, 9) i"
        )
        for statement in also.format(t=table).split("; "):
            connection.execute(statement)
    _, _, writer = written(open_store(f"{location(table)}.embedding"), f"{table}_new.embedding", 4)
    expected = f"not copied of the table: {lacking.format(t=table)}; see to that on the new one"
    assert expected in writer.remarks


def test_metadata_are_the_other_columns(awkward):
    source = open_store(f"{location(awkward)}.embedding?text=body")
    document = next(iter(source.documents(np.array([0]))))
    assert document.id == "1" and document.text == "words 1 of 1"
    assert document.metadata["nested"] == {"a": [1, None, 1.5], "b": {}}
    assert document.metadata["tags"] == ["a,b", None, "{}"] and document.metadata["other"] == "[1,2,3]"
    assert "embedding" not in document.metadata and "body" not in document.metadata


def test_texts_may_be_in_a_field_of_json():
    name = f"t{uuid.uuid4().hex[:12]}"
    with connect() as connection:
        connection.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, vector vector(2), payload jsonb)")
        assert open_store(f"{location(name)}?text=payload.data").info.count == 0
        payload = """{"data": "a ' text", "user": "ann"}"""
        connection.execute(f"INSERT INTO {name} VALUES (1, '[1,2]', %s), (2, '[2,1]', '{{}}')", [payload])
    store = open_store(f"{location(name)}?text=payload.data")
    first, second = store.documents()
    assert (first.text, first.metadata, second.text) == ("a ' text", {"user": "ann"}, "")
    written(store, f"{name}_new", 3)
    assert list(open_store(f"{location(name)}_new?text=payload.data").documents()) == [first, second]
    with pytest.raises(StoreError, match="a field 'dat' in no record; it has texts in data, user: "):
        open_store(f"{location(name)}?text=payload.dat")
    assert any("?text=payload.FIELD" in note for note in open_store(location(name)).info.notes)


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("nosuch", "", "no column of vectors 'nosuch'"),
        ("{t}", "", "of public.{t}.embedding, public.{t}.other"),
        ("{t}.embedding", "?text=nosuch", "no column of texts 'nosuch'"),
        ("{t}.embedding", "?id=nosuch", "'nosuch'; there are id, tenant_id, "),
        ("{t}.embedding", "?id=note", "the id 'none' comes twice"),
        ("{t}.embedding", "?distance=far", "distance 'far'; say l2, ip or cosine"),
        ("{t}.embedding", "?collection=c", "langchain_pg_collection"),
    ],
)
def test_what_cannot_be_opened_is_told_in_one_line(awkward, name, options, why):
    with pytest.raises(StoreError) as error:
        open_store(f"{location(name.format(t=awkward))}{options}").ids(range(1))
    assert why.format(t=awkward) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("place", ["", "host=/tmp password=secret#t", "mysql://h/db#t", "postgresql:/u:secret@h/db#t"])
def test_what_is_no_url_of_a_server_is_a_usage_error(place):
    with pytest.raises(UsageError, match=r"write pgvector:postgresql://HOST/DB#TABLE") as error:
        open_store(f"pgvector:{place}")
    assert "secret" not in str(error.value)


def test_tables_are_listed_as_a_location_names_them():
    name = f't{uuid.uuid4().hex[:12]} "Docs"'
    quoted = name.replace('"', '""')
    create(f'"{quoted}"', example_documents(3), example_vectors(3))
    with connect() as connection:
        connection.execute(f'ALTER TABLE "{quoted}" ADD "an.other" vector(3)')
    with pytest.raises(StoreError) as error:
        open_store(location(f'"{quoted}"'))
    assert str(error.value).endswith(f'public."{quoted}"."an.other", public."{quoted}".embedding')
    assert open_store(location(f'public."{quoted}".embedding')).info.count == 3


def test_what_is_noted_of_a_dropped_table_is_not_of_one_with_another_dimension():
    table = f"t{uuid.uuid4().hex[:12]}"
    create(table, example_documents(3), example_vectors(3))
    dim = example_vectors(3).shape[1]
    manifest = Manifest(kind="store", model=ModelIdentity("openai:text-embedding-3-small", dim, normalized=True))
    open_store(location(table)).companions.keep(manifest)
    assert open_store(location(table)).info.manifest is not None
    create(table, example_documents(3), np.ones((3, dim + 1), np.float32))
    store = open_store(location(table))
    assert store.info.manifest is None and store.folder is None
    assert any(f"of vectors of dimension {dim}" in note for note in store.info.notes)
    create(table, example_documents(3), example_vectors(3))


def test_only_a_table_that_this_tool_made_is_replaced(awkward, tmp_path):
    source = open_store(f"{location(awkward)}.embedding")
    written(source, f"{awkward}_new.embedding", 9)
    output_of(location(f"{awkward}_new.embedding")).refuse_existing(force=True)
    with pytest.raises(UsageError, match="exists; choose another output"):
        output_of(location(f"{awkward}_new.embedding")).refuse_existing(force=False)
    with pytest.raises(UsageError, match="was not made by this tool"):
        output_of(location(awkward)).refuse_existing(force=True)
    with pytest.raises(UsageError, match=r"as in #fresh\.embedding"):
        output_of(location("fresh")).writer(source, tmp_path, 4)
    with pytest.raises(UsageError, match="this is the table that is read"):
        output_of(location(f"{awkward}.embedding")).writer(source, tmp_path, 4)


def test_added_changed_and_deleted_rows_are_noticed(awkward):
    source = open_store(f"{location(awkward)}.embedding?text=body")
    another = f"INSERT INTO {awkward} (tenant_id, embedding) SELECT tenant_id, embedding FROM {awkward} WHERE id = 1"
    for change, why in (
        (another, "1 documents were added and 0 deleted, such as '121'"),
        (f"UPDATE {awkward} SET note = 'another' WHERE id = 7", "records with the same ids were changed"),
        (f"DELETE FROM {awkward} WHERE id = 9", "0 documents were added and 1 deleted, such as '9'"),
    ):
        before = source.snapshot()
        source.check_unchanged(before)
        with connect() as connection:
            connection.execute(change)
        with pytest.raises(StoreError, match=why):
            source.check_unchanged(before)
        source = open_store(f"{location(awkward)}.embedding?text=body")


def test_halves_are_read_exactly_and_written_as_halves(tmp_path):
    if not has_halves():
        pytest.skip("the server's pgvector is older than 0.7")
    table, vectors = name_of(tmp_path), np.random.default_rng(0).normal(size=(40, 6)).astype(np.float16)
    with connect() as connection:
        connection.execute(f"CREATE TABLE {table} (id integer PRIMARY KEY, v halfvec(6))")
        for row, vector in enumerate(vectors):
            connection.execute(f"INSERT INTO {table} VALUES (%s, %s::halfvec)", [row, as_text(vector)])
        connection.execute(f"CREATE INDEX ON {table} USING hnsw (v halfvec_ip_ops) WITH (m = 5)")
    source = open_store(location(table))
    assert (source.info.metric, source.info.has_texts) == ("ip", False)
    whole = read_all(source.scan())
    assert np.array_equal(whole.vectors, vectors[[int(doc_id) for doc_id in whole.ids]].astype(np.float32))
    new, written_vectors, _ = written(source, f"{table}_new", 2_500)  # more than an index on vector could have
    assert np.array_equal(read_all(new.scan()).vectors, written_vectors.astype(np.float16).astype(np.float32))
    assert new.rows.table.type == "halfvec" and new.rows.table.vector_indexes[0].options == {"m": "5"}


def wide(count, dim=2_500):
    return np.random.default_rng(1).normal(size=(count, dim)).astype(np.float32)


def plan_of(question, *values):
    """How the server answers, where it is not to read the whole table."""
    with connect() as connection:
        connection.execute("SET enable_seqscan = off")
        return "".join(row[0] for row in connection.execute(f"EXPLAIN {question}", values))


@pytest.mark.parametrize(
    ("index", "on", "operator"),
    [
        ("hnsw (v vector_cosine_ops) WITH (m = 5)", "", "<=>"),
        ("hnsw ((v::halfvec(6)) halfvec_cosine_ops)", "", "<=>"),
        ('hnsw (v vector_ip_ops) WHERE "a(b" > 0', "", "<#>"),
        ("ivfflat (v) WITH (lists = 2)", "", "<->"),
        ("hnsw (v vector_l2_ops)", "untyped", "<->"),
    ],
)
def test_beyond_2000_dimensions_a_copy_is_indexed_in_halves(tmp_path, index, on, operator):
    if not has_halves() and "halfvec" in index:
        pytest.skip("the server's pgvector is older than 0.7")
    table = name_of(tmp_path)
    with connect() as connection:
        connection.execute(f'CREATE TABLE {table} (id integer PRIMARY KEY, "a(b" integer DEFAULT 1, v vector(6))')
        for row, vector in enumerate(wide(20, 6)):
            connection.execute(f"INSERT INTO {table} (id, v) VALUES (%s, %s)", [row, as_text(vector)])
        connection.execute(f"CREATE INDEX ON {table} USING {index}")
        if on == "untyped":
            connection.execute(f"ALTER TABLE {table} ALTER v TYPE vector")
    if not has_halves():
        with pytest.raises(UsageError, match="at most 2,000 dimensions"):
            written(open_store(location(table)), f"{table}_new", 2_500)
        return
    new, vectors, finished = written(open_store(location(table)), f"{table}_new", 2_500)
    # The column loses nothing
    assert np.array_equal(read_all(new.scan()).vectors, vectors)
    assert any("::halfvec(2500)" in made and "halfvec_" in made for made in indexes_of(f"{table}_new"))
    nearest = f"ORDER BY v::halfvec(2500) {operator} %s::halfvec(2500) LIMIT 3"
    condition = 'WHERE "a(b" > 0' if "a(b" in index else ""
    plan = plan_of(f"SELECT id FROM {table}_new {condition} {nearest}", as_text(vectors[0]))
    assert "Index Scan" in plan
    # A copy of a copy has such an index already
    assert any("ORDER BY" in remark for remark in finished.remarks) == ("::halfvec" not in index)
    again, _, _ = written(new, f"{table}_again", 3_000)
    assert any("::halfvec(3000)" in made for made in indexes_of(f"{table}_again")) and again.info.dim == 3_000
    with pytest.raises(UsageError, match="at most 4,000 dimensions"):
        written(new, f"{table}_more", 4_001)


def test_a_new_table_and_a_new_column_beyond_2000_dimensions_are_indexed_in_halves(tmp_path):
    if not has_halves():
        pytest.skip("the server's pgvector is older than 0.7")
    table = name_of(tmp_path)
    np.save(tmp_path / "old.npy", wide(20, 8))
    source = open_store(tmp_path / "old.npy")
    new, vectors, finished = written(source, f"{table}", 2_500)
    whole = read_all(new.scan())
    assert new.rows.table.type == "vector"
    assert np.array_equal(whole.vectors, vectors[[int(doc_id) for doc_id in whole.ids]])
    (remark,) = finished.remarks
    question = re.search("ORDER BY .*", remark)[0].replace("'[...]'", "%s")
    assert "Index Scan" in plan_of(f"SELECT id FROM {table} {question} LIMIT 3", as_text(vectors[0]))
    # Its own search uses it
    assert [hits.ids[0] for hits in new.searcher().search(vectors[:2], 1)] == ["0", "1"]
    more, _, finished = written(source, f"{table}_more", 4_001)
    assert more.rows.table.vector_indexes == [] and "at most 4,000 dimensions" in finished.remarks[0]


def indexes_of(table):
    return [row[0] for row in ask("SELECT indexdef FROM pg_indexes WHERE tablename = %s ORDER BY indexname", table)]


def translated_in_place(place, field="new"):
    fitted = migrate.fit(place, tools.Hashed(), kind="ridge", sample=30)
    return migrate.translate(place, fitted, into=field)


def make_rows(table, column, end=""):
    """A table of 60 rows; in one partition, with what ends its definition."""
    with connect() as connection:
        connection.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY, body text, {column} vector(8)){end}")
        if end:
            connection.execute(f"CREATE TABLE {table}_0 PARTITION OF {table} FOR VALUES WITH (MODULUS 1, REMAINDER 0)")
        connection.execute(
            f"INSERT INTO {table} SELECT i, 'text ' || i, (SELECT array_agg(sin(i * j)) FROM generate_series(1, 8) j) "
            "FROM generate_series(1, 60) i"
        )


def test_indexes_of_a_column_called_as_a_type_and_a_setting_are_made_on_the_new_one(tmp_path):
    for name, column in (("typed", "vector"), ("set", "m")):
        table = name_of(tmp_path / name)
        make_rows(table, column)
        with connect() as connection:
            connection.execute(f"CREATE INDEX ON {table} USING hnsw ({column} vector_ip_ops) WITH (m = 8)")
            connection.execute(
                f"CREATE INDEX ON {table} USING hnsw ({column} vector_l2_ops) WHERE vector_dims({column}) = 8"
            )
        assert translated_in_place(location(f"{table}?distance=ip")).remarks == ()
        made = [index for index in indexes_of(table) if "new" in index]
        assert len(made) == 2
        assert any("(new vector_ip_ops) WITH (m='8')" in index for index in made)
        assert any("(new vector_l2_ops) WHERE (vector_dims(new) = 6)" in index for index in made)


def test_a_new_column_beyond_2000_dimensions_is_indexed_in_halves(tmp_path):
    if not has_halves():
        pytest.skip("the server's pgvector is older than 0.7")
    table = name_of(tmp_path / "wide")
    make_rows(table, "v")
    with connect() as connection:
        connection.execute(f"CREATE INDEX ON {table} USING hnsw (v vector_l2_ops) WITH (m = 5)")
    rows = open_store(location(table)).rows
    ids = [str(number) for number in range(1, 61)]
    (remark,) = rows.fields.write("wide", 2_500, iter([(ids, wide(60))]))
    assert "wide::halfvec(2500) <-> '[...]'" in remark.replace('"', "")
    assert any("(wide)::halfvec(2500)) halfvec_l2_ops) WITH (m='5')" in index for index in indexes_of(table))
    (remark,) = rows.fields.write("wider", 4_001, iter([(ids, wide(60, 4_001))]))
    assert "wider has no index, as pgvector indexes at most 4,000 dimensions" in remark


def test_a_partitioned_table_gets_a_column_without_an_index(tmp_path):
    table = name_of(tmp_path / "parts")
    make_rows(table, "e", " PARTITION BY HASH (id)")
    with connect() as connection:
        connection.execute(f"CREATE INDEX ON {table} USING hnsw (e vector_l2_ops)")
    (remark,) = translated_in_place(location(f"{table}")).remarks
    assert "no index" in remark
    assert open_store(location(f"{table}?vector=new")).info.count == 60


def test_a_collection_of_langchain_gets_a_column_of_its_own(langchain):
    place = location(f"{langchain}?collection=one&id=id")
    before = read_all(open_store(place).scan())
    assert translated_in_place(place).count == 50
    field = open_store(f"{place}&vector=new")
    assert (field.info.count, field.info.dim, field.info.manifest.model.spec) == (50, tools.TARGET_DIM, "hashed")
    assert (read_all(open_store(place).scan()).vectors == before.vectors).all()
    assert open_store(location(f"{langchain}?collection=two&id=id")).info.dim == 4
