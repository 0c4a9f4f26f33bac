"""A live searcher in a process of its own, which answers the queries of the world until it is told to stop."""

import json
import multiprocessing
import os
import traceback
from itertools import cycle, islice

from children import DEADLINE_S, start_child


class Searching:
    """The process: it searches the store at a location from the start on, and writes each answer to a file."""

    def __init__(self, location, queries, answers, *, cache, environment):
        answers.unlink(missing_ok=True)
        self.answers = answers
        receiver, self._sender = multiprocessing.get_context("forkserver").Pipe(duplex=False)
        self.process, self._ended = start_child(_search, location, queries, answers, cache, receiver, environment)
        receiver.close()

    def stop(self, *, kill):
        """Let it end, or kill it; what it has answered, a dictionary a query."""
        if kill:
            self.process.kill()
        self._sender.close()
        self.process.join(DEADLINE_S)
        self._ended.close()
        assert self.process.exitcode is not None, "the searcher does not end"
        lines = self.answers.read_text("utf-8").split("\n")[:-1] if self.answers.exists() else []
        return [json.loads(line) for line in lines]


def _search(location, queries, answers, cache, stopping, environment):
    from migrate.errors import LeadMigrateError
    from migrate.live.options import LiveLimits
    from migrate.live.searcher import LiveSearcher

    os.environ.clear()
    os.environ.update(environment)
    limits = LiveLimits(max_ms=1_000, refresh_s=0.1, sampled=1, depth=12, max_documents=4)
    with answers.open("a") as file:

        def note(**line):
            print(json.dumps(line), file=file, flush=True)

        try:
            with LiveSearcher(location, limits=limits, cache=cache) as searcher:
                for query in islice(cycle(queries), 400):
                    if stopping.poll(0.02):
                        break
                    try:
                        answer = searcher.search(query.text)
                        held = searcher.documents(answer.ids)
                    except LeadMigrateError as error:
                        note(refused=str(error))
                        continue
                    texts = {document.id: document.text for document in held}
                    scores = answer.scores.tolist()
                    note(query=query.text, ids=answer.ids, scores=scores, untrue=answer.untrue, texts=texts)
                stopping.poll(None)
        except LeadMigrateError as error:
            note(refused=str(error))
        except BaseException:
            note(traceback=traceback.format_exc())
            raise
