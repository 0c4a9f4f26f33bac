"""The command line."""

SUMMARIES = {
    "inspect": "What is in a store or a stitch.",
    "assess": "What moving a store would cost; spends nothing.",
    "check": "Whether a store comes from a model.",
    "stamp": "Write down which model a store is of.",
    "embed": "A corpus to a new store.",
    "fit": "A small sample, re-embedded, to a stitch.",
    "translate": "A store through a stitch.",
    "reembed": "A store with the new model.",
    "backfill": "True vectors from the cache into a store.",
    "sync": "Bring a translated store up to date.",
    "audit": "A verdict on a translated store.",
    "compare": "",
    "carry": "",
    "private": "",
    "run": "The whole path in one command.",
    "switch": "Let the new store answer under the old name.",
    "rollback": "Let the old store answer again.",
    "forget": "Delete the old store after a switch.",
    "live": "",
    "demo": "The whole path on a store that comes along, offline.",
}
"""The commands by the steps of a migration, with a line each, so that a list of them imports none of this room."""
