"""What the kinds of stores in this folder are made of: see `Kind`, and `kinds.py` for the list of them."""

import uuid
from contextlib import closing, nullcontext
from pathlib import Path

import numpy as np

NO_DIM = 8
"""The dimension of stores that have no record to tell it."""


class Kind:
    """A kind of store, made, changed and read by its own client alone.

    Records are documents with their vectors, by their ids. `needs` are the modules that have to be installed, and
    `options` is what a location has to end in for a store of the kind to be opened.
    """

    options = ""

    @classmethod
    def started(cls, ends, folder):
        """The kind, after the server that it needs on a folder, which stops with `ends`."""
        return cls()

    def make(self, folder, records):
        """Make a store, in the place of one that is there; its location. Some take a metric as well."""
        raise NotImplementedError

    def change(self, location, before, after):
        """Insert, update and delete; a record that is the same object stays as it is."""
        self.make(self.files(location), after)

    def place(self, folder):
        """The location of a new store, as it is written beside one of the kind."""
        return str(folder)

    def named_place(self, folder):
        """The location of a new store made of another kind, or None where only a folder would be named."""
        found = self.place(folder)
        return found if ":" in found else None

    def read(self, location):
        """Records in the client's own order, each as (id, fields, vector or None), and facts of the whole."""
        raise NotImplementedError

    def files(self, location):
        """The folder or the file of a store, or None."""
        return Path(place_of(location))

    def left(self):
        """What is on a server, by name."""
        return {}


class Collections(Kind):
    """Collections of a folder, which a client opens; `create` makes one, `put` adds, changes and deletes records."""

    scheme, name = "", "docs"

    def make(self, folder, records, metric="l2", name=None):
        location = self.location(folder, name or self.name)
        with self.opened(location) as client:
            self.create(client, name or self.name, records, metric)
        return location + self.options

    def location(self, folder, name):
        return f"{self.scheme}:{folder}#{name}"

    def opened(self, location):
        return closing(self.client(location))

    def change(self, location, before, after):
        with self.opened(location) as client:
            self.put(client, name_of(location), after, *parts(before, after))

    def place(self, folder):
        return self.location(folder, self.name)


class ServerCollections(Collections):
    """Collections of a server, of which `server` is a client; those of its caller are named after their folders."""

    def __init__(self, client, url):
        self.server, self.url = client, url

    def location(self, folder, name):
        return f"{self.url}#{name}"

    def opened(self, location):
        return nullcontext(self.server)

    def make(self, folder, records, metric="l2"):
        return super().make(folder, records, metric, unique_name("old"))

    def place(self, folder):
        return self.location(folder, unique_name("new"))

    def files(self, location):
        return None


class SqliteFile(Collections):
    """A table of a file of SQLite; `columns` makes it, and `row` has the values of a record for `filled` columns."""

    name, filled, values = "items", "", ""

    def location(self, folder, name):
        return f"{self.scheme}:{folder}/my.db#{name}"

    def opened(self, location):
        return closing(self.connect(location))

    def make(self, folder, records, metric="l2", name=None):
        folder.mkdir(parents=True, exist_ok=True)
        return super().make(folder, records, metric, name)

    def place(self, folder):
        return str(folder)

    def named_place(self, folder):
        return f"{self.scheme}:{folder}#docs"

    def files(self, location):
        found = Path(place_of(location) or location)
        return found if found.is_dir() else found.parent

    def create(self, connection, name, records, metric="l2"):
        connection.execute(f"CREATE {self.columns(name, vectors_of(records).shape[1])}")
        self.put(connection, name, records, list(records))

    def put(self, connection, name, records, names, gone=()):
        rows = [self.row(*records[one]) for one in names]
        with connection:
            connection.executemany(f'DELETE FROM "{name}" WHERE id = ?', [(one,) for one in [*gone, *names]])
            connection.executemany(f'INSERT INTO "{name}" {self.filled} VALUES ({self.values})', rows)

    def read(self, location):
        (path,) = sorted(self.files(location).glob("*.db"))
        with closing(self.connect(f"{self.scheme}:{path}#")) as connection:
            made = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE sql NOTNULL").fetchall())
            made = {name: sql for name, sql in made.items() if not name.startswith(("items_", "docs_", "lead_"))}
            table = "items" if "items" in made else "docs"
            names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            rows = [dict(zip(names, row, strict=False)) for row in connection.execute(f"SELECT * FROM {table}")]
            facts = {"made": made}
            if "customers" in made:
                facts["customers"] = repr(connection.execute("SELECT * FROM customers").fetchall())
        column = "e" if "e" in names else "embedding"
        return rows_of(rows, column, lambda value: np.frombuffer(value, np.float32)), facts


def unique_name(start):
    return f"{start}{uuid.uuid4().hex[:12]}"


def add_customers(connection):
    """A table of the user's own."""
    connection.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT)")
    connection.execute("INSERT INTO customers VALUES (1, 'ann')")
    connection.execute("CREATE VIEW names AS SELECT name FROM customers")


def parts(before, after):
    """Ids that came or changed, and those that went."""
    return [name for name in after if after[name] is not before.get(name)], [n for n in before if n not in after]


def place_of(location):
    """The folder, file or URL of a location."""
    place = location.partition("#")[0]
    return place if place.startswith("/") else place.partition(":")[2] or place


def name_of(location):
    """The collection of a location."""
    return location.partition("#")[2].partition("?")[0]


def with_distance(location, metric):
    """The location of a table that does not know by what distance it is searched."""
    return location + ("" if metric == "l2" else f"?distance={metric}")


def records_of(documents, vectors):
    """Records of documents, in no order of their ids."""
    return {d.id: (d, vector) for d, vector in zip(documents, vectors, strict=True)}


def vectors_of(records):
    return np.array([vector for _, vector in records.values()], np.float32) if records else np.empty((0, NO_DIM))


def rows_of(rows, column="vector", as_vector=lambda values: np.array(values, np.float32)):
    """What is read of rows as dictionaries with a column `id` and one of vectors."""
    found = []
    for row in rows:
        vector = row.pop(column)
        found.append((row.pop("id"), row, None if vector is None else as_vector(vector)))
    return found
