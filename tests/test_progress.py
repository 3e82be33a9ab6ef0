"""The progress bar shows phase, answer and error, and is silent when nobody watches."""

import re

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


def test_no_terminal_no_progress(capfd):
    thermint.evidence(linear.model(), ladder=11, draws=40)
    assert capfd.readouterr() == ("", "")
