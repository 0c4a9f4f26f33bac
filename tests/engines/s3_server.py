"""An S3 server of this machine, by moto, which whoever started it ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest.mock import patch

BUCKET = "bucket"


START_S = 120


def wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    """Wait until the server takes connections."""
    end = time.monotonic() + START_S
    while True:
        with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
        assert server.poll() is None and time.monotonic() < end, "the S3 server does not start"
        time.sleep(0.02)


@contextmanager
def s3_server(folder: Path) -> Iterator[dict[str, str]]:
    """An S3 server with a bucket, and the variables that lead to it."""
    import s3fs

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
        wait_for(port, server)
        with patch.dict(os.environ, variables):
            s3fs.S3FileSystem(skip_instance_cache=True).mkdir(BUCKET)
            yield variables
    finally:
        server.kill()
        server.wait()
