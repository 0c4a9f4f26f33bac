"""An S3 server of this machine, by moto, which whoever started it ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

BUCKET = "bucket"


@contextmanager
def s3_server(folder: Path) -> Iterator[dict[str, str]]:
    """An S3 server with a bucket, and the variables that lead to it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (folder / "s3.log").open("wb") as log:
        server = subprocess.Popen([sys.executable, "-m", "moto.server", "-p", str(port)], stdout=log, stderr=log)
    variables = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "anyone",
        "AWS_SECRET_ACCESS_KEY": "anything",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    try:
        make = f"import time, s3fs\nfor _ in range(100):\n try: s3fs.S3FileSystem().mkdir('{BUCKET}'); break\n"
        make += " except Exception: time.sleep(0.2)\nelse: raise SystemExit('no S3 server')"
        subprocess.run([sys.executable, "-c", make], check=True, env=os.environ | variables)
        with patch.dict(os.environ, variables):
            yield variables
    finally:
        server.kill()
        server.wait()
