"""The command line."""

SUMMARIES = {
    "inspect": "Show what a store or a stitch contains.",
    "assess": "Estimate what a migration would cost; sends nothing.",
    "check": "Verify which model a store's vectors come from.",
    "stamp": "Record which model a store's vectors come from.",
    "embed": "Embed a corpus into a new store.",
    "fit": "Re-embed a sample and learn the map to the new model.",
    "translate": "Translate a store with a stitch.",
    "reembed": "Embed a store anew with the new model.",
    "backfill": "Put true vectors from the cache into a store.",
    "sync": "Bring a translated store up to date.",
    "audit": "Judge a translated store.",
    "compare": "",
    "carry": "",
    "private": "",
    "run": "Fit, translate and audit in one command.",
    "switch": "Put the new store in the old one's place.",
    "rollback": "Undo a switch: put the old store back in its place.",
    "forget": "Delete the old store after a switch.",
    "live": "",
    "demo": "Move a store that comes along, offline.",
}
"""The commands by the steps of a migration, with a line each, so that a list of them imports none of this room."""
