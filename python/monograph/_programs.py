"""The programs `monograph` and `monograph-executor` of the package, as commands of its environment."""

import os
import sys

from monograph.server import program


def _run(name: str) -> None:
    os.execv(program(name), [name, *sys.argv[1:]])


def monograph() -> None:
    _run("monograph")


def monograph_executor() -> None:
    _run("monograph-executor")
