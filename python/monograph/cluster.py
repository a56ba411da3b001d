"""The tasks of a cluster, as TensorFlow's tf.train.ClusterSpec describes them."""

import json
import os
from typing import Any, Dict, List, Mapping, Optional, Union

_Tasks = Union[List[str], Mapping[Any, str]]


class ClusterSpec:
    """ClusterSpec({"ps": ["node0:2222"], "worker": ["node1:2222", "node2:2222"]})

    Also of addresses by index ({"worker": {1: "node2:2222"}}), of JSON, of the path of a file with
    JSON, or of another ClusterSpec.
    """

    def __init__(self, cluster: Union["ClusterSpec", Mapping[str, _Tasks], str, "os.PathLike[str]"]):
        if isinstance(cluster, ClusterSpec):
            cluster = cluster._jobs
        elif isinstance(cluster, (str, os.PathLike)):
            text = os.fspath(cluster)
            if not text.lstrip().startswith("{"):
                with open(text, encoding="utf-8") as file:
                    text = file.read()
            cluster = json.loads(text)
        if not isinstance(cluster, Mapping):
            raise TypeError("a cluster is {job: [address, ...]}, not " + repr(cluster))
        self._jobs: Dict[str, Dict[int, str]] = {}
        for job, tasks in cluster.items():
            pairs = tasks.items() if isinstance(tasks, Mapping) else enumerate(tasks)
            self._jobs[job] = {int(index): address for index, address in pairs}

    @classmethod
    def from_environment(cls) -> Optional["ClusterSpec"]:
        """The cluster that `monograph launch` started this program against; None without one."""
        text = os.environ.get("MONOGRAPH_CLUSTER", "")
        return cls(text) if text else None

    @property
    def jobs(self) -> List[str]:
        return list(self._jobs)

    def num_tasks(self, job: str) -> int:
        return len(self._jobs[job])

    def task_indices(self, job: str) -> List[int]:
        return sorted(self._jobs[job])

    def task_address(self, job: str, index: int) -> str:
        return self._jobs[job][index]

    def job_tasks(self, job: str) -> List[str]:
        """Addresses in the order of their tasks."""
        return [address for _, address in sorted(self._jobs[job].items())]

    def as_dict(self) -> Dict[str, Union[List[str], Dict[int, str]]]:
        """As the constructor takes it: lists, but for jobs whose indices have gaps."""
        return {
            job: [tasks[i] for i in range(len(tasks))] if set(tasks) == set(range(len(tasks))) else dict(tasks)
            for job, tasks in self._jobs.items()
        }

    def to_json(self) -> str:
        return json.dumps(self.as_dict())

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClusterSpec) and self._jobs == other._jobs

    def __repr__(self) -> str:
        return f"ClusterSpec({self.as_dict()!r})"
