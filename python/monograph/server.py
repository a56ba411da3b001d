"""Tasks in this process, and whole clusters by `monograph launch`."""

import os
import socket
import subprocess
from typing import Any, List, Mapping, Optional, Sequence, Union

from monograph import _native
from monograph.cluster import ClusterSpec
from monograph.session import _options


class Server:
    """A task of a cluster in this process, as monograph-executor is one in its own.

    Options are those of the C API (monograph/c_api.h, MG_SetServerOption): bind, key_file,
    cpu_devices, gpu_devices, inter_op_parallelism_threads, intra_op_parallelism_threads, lanes,
    trusted_network.
    """

    def __init__(
        self,
        cluster: Union[ClusterSpec, Mapping[str, Any], str],
        job_name: str,
        task_index: int = 0,
        **options: Any,
    ):
        self._native = _native.Server(ClusterSpec(cluster).to_json(), job_name, task_index, _options(options))

    @classmethod
    def create_local_server(cls, **options: Any) -> "Server":
        """A cluster of one task, on a free port of this machine."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        return cls({"local": [address]}, "local", 0, **options)

    @property
    def target(self) -> str:
        """What Session takes: "grpc://host:port"."""
        return self._native.target

    def join(self) -> None:
        """Waits until the server is stopped, or for Ctrl-C."""
        while not self._native.join(100):
            pass

    def stop(self, drain: float = 0) -> None:
        """Lets running steps end for at most so many seconds, then ends the task."""
        self._native.stop(int(drain * 1000))


def program(name: str) -> str:
    """The path of `monograph` or `monograph-executor` that came with this package."""
    return os.path.join(os.path.dirname(__file__), "bin", name)


def launch(
    command: Sequence[str],
    *,
    workers: Optional[int] = None,
    ps: Optional[int] = None,
    flags: Sequence[str] = (),
) -> int:
    """Starts a cluster on this machine, runs the command against it, and ends it: `monograph launch`.

    The command finds the cluster by ClusterSpec.from_environment(), and also gets --cluster and
    --key_file. flags: more of `monograph launch --help`. Returns the command's exit code.
    """
    arguments: List[str] = [program("monograph"), "launch"]
    if workers is not None:
        arguments.append(f"--workers={workers}")
    if ps is not None:
        arguments.append(f"--ps={ps}")
    return subprocess.run([*arguments, *flags, "--", *command], check=False).returncode
