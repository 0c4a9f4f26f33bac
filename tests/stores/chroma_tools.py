"""A real server of Chroma, one for all tests of a process, and an embedding function that a collection can name."""

import atexit
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

import chromadb


@cache
def server():
    """A client, and the location without a collection."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="lead-migrate-chroma-"))
    command = [str(Path(sys.executable).parent / "chroma"), "run", "--path", str(folder / "data")]
    with (folder / "log").open("wb") as output:
        process = subprocess.Popen([*command, "--host", "127.0.0.1", "--port", str(port)], stdout=output, stderr=output)

    def stop():
        process.terminate()
        process.wait(20)
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(stop)
    for _ in range(300):
        try:
            settings = chromadb.config.Settings(anonymized_telemetry=False)
            return chromadb.HttpClient(
                host="127.0.0.1", port=port, settings=settings
            ), f"chroma+http://127.0.0.1:{port}"
        except ValueError:
            time.sleep(0.1)
    raise AssertionError("the server of Chroma does not answer")


class Named(chromadb.EmbeddingFunction):
    """Says that it is OpenAI's, and embeds nothing."""

    def __init__(self):
        pass

    def __call__(self, input):  # noqa: A002 - as Chroma calls it
        raise AssertionError("it is not asked")

    @staticmethod
    def name():
        return "openai"

    def get_config(self):
        return {"api_key_env_var": "OPENAI_API_KEY", "model_name": "text-embedding-ada-002", "api_base": "http://proxy"}

    @staticmethod
    def build_from_config(config):
        return Named()
