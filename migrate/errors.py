"""Every error a user can meet, as one tree. Nothing here prints or exits.

    LeadMigrateError            70   a bug, unless a subclass below says otherwise
    ├── UsageError               2   wrong or contradictory options
    │   └── SpendingError        2   it costs more than may be spent
    ├── InputError               4   something that was read is not usable
    │   ├── StoreError           4   a vector store: unreadable, malformed, inconsistent
    │   │   └── UnsupportedStoreError  4   well formed, but of a kind that is not read
    │   ├── VectorError          4   a zero, NaN or Inf vector, or a wrong dimension
    │   ├── MissingVectorError   4   a file of vectors that has none for a text
    │   ├── StitchError          4   a stitch: malformed, or not fitted for this store
    │   ├── ManifestError        4   a manifest of another kind or format version
    │   └── DatasetError         4   a BEIR folder, a corpus, a query file
    ├── OutputError              5   disk full, permission, a file that vanished
    ├── LockedError              6   another run holds the output
    ├── RemoteError              7   a remote service failed
    │   └── AuthenticationError  7   it refused the key
    └── InconclusiveError        3   no verdict is possible
        └── DocumentQueriesError  3   too few queries are left that are no stored documents

A message is one line: what happened and what to do. Errors of other libraries are
translated where they arise; none of them reaches a user.
"""

from __future__ import annotations


class LeadMigrateError(Exception):
    """Root of the tree. Its own exit code means: a bug in lead-migrate."""

    exit_code: int = 70


class UsageError(LeadMigrateError):
    """Options that are wrong or contradict each other."""

    exit_code = 2


class SpendingError(UsageError):
    """It costs, or would cost, more than may be spent."""


class InputError(LeadMigrateError):
    """Something that was read is unreadable, malformed or inconsistent."""

    exit_code = 4


class StoreError(InputError):
    """A vector store is unreadable, malformed or inconsistent."""


class UnsupportedStoreError(StoreError):
    """A well-formed vector store of a kind that is not read."""


class VectorError(InputError):
    """A zero, NaN or Inf vector, or vectors of the wrong dimension."""


class MissingVectorError(InputError):
    """A file of vectors holds none for some of the texts."""


class StitchError(InputError):
    """A stitch is malformed, or was not fitted for what it is applied to."""


class ManifestError(InputError):
    """A manifest of another kind or of a format version that is not read."""


class DatasetError(InputError):
    """A BEIR folder, a corpus or a query file is unreadable or inconsistent."""


class OutputError(LeadMigrateError):
    """Reading or writing failed for a reason outside the data: full disk, permission."""

    exit_code = 5


class LockedError(LeadMigrateError):
    """Another run holds the lock of the same output."""

    exit_code = 6


class RemoteError(LeadMigrateError):
    """A remote service failed, and trying again did not help."""

    exit_code = 7


class AuthenticationError(RemoteError):
    """A remote service refused the key."""


class InconclusiveError(LeadMigrateError):
    """The audit could conclude neither SAFE nor NOT SAFE."""

    exit_code = 3


class DocumentQueriesError(InconclusiveError):
    """Too few queries are left for a verdict, as the others are stored documents."""
