"""Print the newest released Python that pyenv or the PATH has, if it is newer than the one that runs this."""

import os
import re
import subprocess
import sys
from pathlib import Path

ASK = "import sys; v = sys.version_info; print(v.major, v.minor, v.releaselevel == 'final' and not sys.abiflags)"


def main() -> None:
    """Ask each interpreter for its version: those of pyenv, and the commands python3.N."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = [*pyenv.glob("versions/3.*/bin/python")]
    for folder in map(Path, os.get_exec_path()):
        found += [path for path in folder.glob("python3.*") if re.fullmatch(r"python3\.\d+", path.name)]
    newest, which = sys.version_info[:2], None
    for python in found:
        said = subprocess.run([python, "-c", ASK], capture_output=True, text=True).stdout.split()
        if said[2:] == ["True"] and (version := (int(said[0]), int(said[1]))) > newest:
            newest, which = version, python
    if which is not None:
        print(which)


main()
