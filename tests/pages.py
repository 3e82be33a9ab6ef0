"""Read the code of a documentation page, and run it, as ``python pages.py FILE.md`` does; see `test_docs.py`.

What a page may have:

* A block of ``python``: it is run, after those before it, in one namespace.
* ``<!-- run`` and Python on the lines after it, up to a line ``-->``: run as well, but no reader sees it. It makes what
  a fragment needs, such as a model.
* A block of ``text`` right after a block of Python: what that prints.
* A block whose first line is ``# name.py``: a file of that name. It is run by itself where a comment says so, such as
  ``<!-- run python name.py 1 2 -->``, or imported by later ones. ``{port}`` is a free port. In a hidden block it
  may be ``sitecustomize.py``, which Python runs before later scripts.
* A block with ``if __name__ == "__main__":``: a script, run in a process of its own, since its workers import it.
* A block whose first line begins with ``# Not run``, and says why.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

PIECE = re.compile(
    r"^(?P<fence>`{3,})(?P<language>[^\n`]*)\n(?P<code>.*?)^(?P=fence)[ ]*$"
    r"|^<!-- run\n(?P<hidden>.*?)^-->[ ]*$"
    r"|^<!-- run (?P<command>[^\n]*?) -->[ ]*$",
    re.DOTALL | re.MULTILINE,
)
NAMED = re.compile(r"# ([\w.-]+\.py)\n")
MAIN = 'if __name__ == "__main__":'
NOT_RUN = "# Not run"
SHORTENED = ("evidence", "compare", "replicate")  # what `fewer` changes


class Block(NamedTuple):
    """A piece of a page that is run, or that says what is printed."""

    kind: str  # "python", "script", "file", "command", "not run", "shell", "directive" or a language
    code: str
    line: int  # of the page, where the code begins, from 1
    shown: str | None = None  # what it prints, as the page has it


def blocks(text: str) -> list[Block]:
    """Find all blocks of a page, in order."""
    found: list[Block] = []
    end = 0
    for match in PIECE.finditer(text):
        between, end = text[end : match.start()], match.end()
        code = next(match[name] for name in ("code", "hidden", "command") if match[name] is not None)
        line = text[: match.start()].count("\n") + (1 if match["command"] else 2)
        language = (match["language"] or "").strip()
        if match["hidden"] is not None:
            found.append(Block("file" if NAMED.match(code) else "python", code, line))
        elif match["command"] is not None:
            found.append(Block("command", code, line))
        elif language == "text" and found and found[-1].kind in ("python", "script") and not between.strip():
            found[-1] = found[-1]._replace(shown=code)
        else:
            found.append(Block(_kind(language, code), code, line))
    return found


def _kind(language: str, code: str) -> str:
    if language in ("", "bash", "sh", "shell", "console"):
        return "shell"
    if language != "python":
        return "directive" if language.startswith("{") else language  # of MyST
    if code.startswith(NOT_RUN):
        return "not run"
    if NAMED.match(code):
        return "file"
    return "script" if MAIN in code else "python"


def fewer(**options: Any) -> None:
    """Make later calls in this process with these options in place of what is written, so that a page is quick."""
    import thermint

    for name in SHORTENED:
        original = _originals.setdefault(name, getattr(thermint, name))
        setattr(thermint, name, functools.partial(_with, original, options))


_originals: dict[str, Any] = {}


def _with(function: Any, options: dict[str, Any], model: Any, *n: int, **kwargs: Any) -> Any:
    return function(model, *(min(number, 2) for number in n), **kwargs | options)  # two replicates, of however many


def run(page: Path) -> list[tuple[int, str, str | None]]:
    """Run a page in the current folder: line, what was printed and what should have been, for each block."""
    namespace: dict[str, Any] = {"__name__": "page"}
    printed = []
    for number, block in enumerate(blocks(page.read_text())):
        output = io.StringIO()
        if block.kind == "python":
            padded = "\n" * (block.line - 1) + block.code  # so that errors name the page's lines
            with contextlib.redirect_stdout(output):
                exec(compile(padded, str(page), "exec", dont_inherit=True), namespace)
        elif block.kind == "file":
            named = NAMED.match(block.code)
            assert named
            Path(named[1]).write_text(block.code)
        elif block.kind in ("script", "command"):
            command = shlex.split(block.code) if block.kind == "command" else ["python", f"block_{number}.py"]
            if block.kind == "script":
                Path(command[1]).write_text(block.code)
            command = [_installed(word.replace("{port}", str(_free_port()))) for word in command]
            places = [".", str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
            environment = os.environ | {"PYTHONPATH": os.pathsep.join(places)}
            done = subprocess.run(command, capture_output=True, text=True, env=environment)
            if done.returncode:
                raise RuntimeError(f"{page}, line {block.line}: {shlex.join(command)} failed.\n{done.stderr}")
            output.write(done.stdout)
        else:
            continue
        printed.append((block.line, output.getvalue(), block.shown))
    return printed


def _installed(word: str) -> str:
    """Name a program of this environment in full."""
    beside = Path(sys.executable).with_name(word)
    return sys.executable if word == "python" else str(beside) if word == "mpiexec" and beside.exists() else word


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


if __name__ == "__main__":
    sys.path.insert(0, os.getcwd())  # where files of the page are
    print(json.dumps(run(Path(sys.argv[1]))))
