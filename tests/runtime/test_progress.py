"""The progress bar shows phase, answer and error, and is silent when nobody watches."""

import re
import subprocess
import sys

import thermint
from thermint.paper import linear


def test_progress_shows_the_answer_so_far(capfd, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "140")
    thermint.evidence(linear.model(), ladder=11, draws=40, progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "looking for the posterior" in err
    assert "fitting a reference" in err
    answers = re.findall(r"log evidence (-\d+\.\d+) ± (\d+\.\d+)", err)
    value, error = map(float, answers[-1])
    assert abs(value - linear.log_evidence()) < 5 * error + 1e-9  # the posterior is normal


def test_a_line_for_every_round_where_there_is_no_terminal(capfd):
    result = thermint.evidence(linear.model(), reference="prior", ladder=11, draws=40, target_error=0.03)
    out, err = capfd.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert len(lines) == result.settings["rounds"] > 1
    assert all(f"round {number}: log evidence -" in line for number, line in enumerate(lines, start=1))
    assert "(target ± 0.03)" in lines[-1]
    assert f"{result.evaluations:,} evaluations" in lines[-1]


def test_nothing_at_all_if_so_wanted(capfd):
    thermint.evidence(linear.model(), ladder=11, draws=40, progress=False)
    assert capfd.readouterr() == ("", "")


NOTEBOOK = """
import nbclient, nbformat
code = "import thermint; result = thermint.evidence(thermint.paper.linear.model(), ladder=11, draws=40); print(result)"
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
for output in notebook.cells[0].outputs:
    print(output.output_type, output.get("name"), output.get("text"), output.get("data"))
"""


def test_a_notebook_shows_the_bar_and_the_answer():
    ran = subprocess.run([sys.executable, "-c", NOTEBOOK], capture_output=True, text=True, timeout=180)
    assert ran.returncode == 0, ran.stderr
    assert "application/vnd.jupyter.widget-view+json" in ran.stdout
    assert "stream stdout log evidence  -141.48" in ran.stdout
    assert "stderr" not in ran.stdout  # no warning, and no lines beside the bar
