"""The command line."""

SECTIONS = {
    "Start here": {
        "init": "Write the file that commands without arguments follow.",
        "run": "Fit, translate and audit in one command.",
        "status": "Say where the migration stands, and what is next.",
    },
    "Before that": {
        "demo": "Move a store that ships with the package, offline.",
        "inspect": "Show what a store or a stitch contains.",
        "assess": "Estimate what a migration would cost, or choose a target.",
    },
    "Steps": {
        "fit": "Re-embed a sample and learn the map to the new model.",
        "translate": "Translate a store with a stitch.",
        "audit": "Judge a translated store.",
        "report": "Show an audit again from its JSON report.",
        "reembed": "Embed every text of a store with the new model.",
        "backfill": "Replace translated vectors by true ones from the cache.",
        "collections": "",
    },
    "In production": {
        "live": "",
        "sync": "Bring a translated store up to date.",
        "switch": "Put the new store in the place of the old one.",
        "rollback": "Undo a switch: put the old store back in its place.",
        "forget": "Delete the old store after a switch.",
    },
    "Provenance": {
        "check": "Verify which model a store's vectors come from.",
        "stamp": "Record which model a store's vectors come from.",
    },
    "Shell": {
        "completion": "Print the script that completes words in a shell.",
    },
    "Lab": {
        "embed": "",
        "compare": "",
        "carry": "",
        "labels": "",
        "private": "",
    },
}
"""The commands in the order of the job, with a line each, so that a list of them imports none of this room."""

SUMMARIES = {name: summary for commands in SECTIONS.values() for name, summary in commands.items()}
