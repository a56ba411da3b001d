"""installed.py FOLDER: uses the Python package that was installed there, and nothing of the sources."""

import os
import sys
from importlib import metadata

import monograph
from monograph.server import program

folder = os.path.realpath(sys.argv[1])
for path in (monograph.__file__, monograph._native.__file__, program("monograph"), program("monograph-executor")):
    assert os.path.realpath(path).startswith(folder), path
assert metadata.version("monograph") == monograph.__version__
with open("/proc/self/maps") as maps:
    libraries = {line.split()[-1] for line in maps if "libmonograph_c.so" in line}
assert libraries == {os.path.join(folder, "monograph", "libmonograph_c.so")}, libraries
package = os.path.join(folder, "monograph")
names = set(os.listdir(package))
assert {"py.typed", "_native.pyi", "tensorflow.py", "_started"} <= names, names
assert not any(name.endswith(".cc") for name in names), names

GRAPH = b"""
node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }
node { name: "y" op: "Mul" input: "x" input: "x" attr { key: "T" value { type: DT_FLOAT } } }
"""
path = os.path.join(folder, "graph.pbtxt")
with open(path, "wb") as file:
    file.write(GRAPH)
with monograph.Session(path) as session:
    assert session.run("y:0", {"x:0": 3.0}) == 9
server = monograph.Server.create_local_server()
with monograph.Session(path, server.target) as session:
    assert session.run("y:0", {"x:0": 4.0}) == 16
server.stop()
