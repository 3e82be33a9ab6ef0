"""The HTML report: what it says, that nothing in it can do harm, and how it behaves in a browser."""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from browser import Browser, Page, executable

import thermint
from thermint import Evidence
from thermint.model.settings import Settings
from thermint.paper import linear
from thermint.report import drawing, formatting, markup, sentences, trust
from thermint.report import page as report
from thermint.report.methods import methods
from thermint.report.snippet import snippet

SCRIPT = "</script><script>document.title = 'owned'</script><b>"
WARNING = "not converged: R-hat of the log likelihood exceeds 1.05. Increase draws."


@pytest.fixture(scope="module")
def result() -> Evidence:
    options: dict[str, Any] = {"reference": "prior", "ladder": 11, "rule": "second-order", "populations": 2}
    made = thermint.evidence(linear.model(), **options, draws=400, seed=5)
    assert made.trace is not None
    return replace(made, trace=made.trace[:, ::8])  # takes less time to draw


@pytest.fixture(scope="module")
def text(result: Evidence) -> str:
    """Return a page with all that there can be on it."""
    return report.page({"linear": result})


@pytest.fixture
def _no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what takes most of the time, where it does not matter."""
    monkeypatch.setattr(markup, "figure", lambda *_, **__: "")


@pytest.fixture(scope="module")
def annealed() -> Evidence:
    return thermint.anneal(linear.model(), ladder=6, particles=50)


def ran(log_evidence: float, standard_error: float, warnings: tuple[str, ...] = (), **fields: Any) -> Evidence:
    """Make a result that says so, and has nothing else."""
    empty = pd.DataFrame()
    made = Evidence(
        log_evidence, standard_error, standard_error, 0.0, 50.0, 100, 1.0, warnings, empty, empty, {}, Settings()
    )
    return replace(made, **fields)


def said(text: str) -> str:
    """Return the sentence that answers, and the caution after it."""
    return " ".join(unescape(part) for part in re.findall(r'<p class="(?:sentence|caution)">(.*?)</p>', text))


class Tags(HTMLParser):
    """Collects the tags of a page, and sees that they are closed in order."""

    VOID = ("meta", "link", "br", "img")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag


# --- Sentences -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_no_plots")
def test_one_model_in_one_sentence():
    text = report.page({"": ran(-259.857588, 0.000012)})
    assert said(text) == (
        "The log evidence of the model is -259.857588, with a standard error of 0.000012 "
        "(95 % interval -259.857612 to -259.857564)."
    )
    assert "No warnings" in text


@pytest.mark.usefixtures("_no_plots")
def test_warnings_come_with_a_caution():
    text = report.page({"mine": ran(-1.0, 0.1, (WARNING,))})
    assert said(text).startswith("The log evidence of the model “mine” is -1.00")
    assert said(text).endswith("This number should not be quoted before the warnings below are dealt with.")
    assert "<h2>1 warning</h2>" in text
    assert "<li>Not converged: R-hat" in text
    assert "No warnings" not in text


@pytest.mark.usefixtures("_no_plots")
@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (2.62499, 2e-5, "the Bayes factor is about 13.8 to 1 (log 2.624990 ± 0.000020), which is positive evidence on"),
        (1e3, 0.01, "the Bayes factor is more than 10^6 to 1 (log 1000.000 ± 0.010), which is very strong evidence"),
        (0.4, 1e-4, "about 1.49 to 1 (log 0.40000 ± 0.00010), which is not worth more than a bare mention on"),
        (1.2, 0.3, "between 1.8 and 6.0 to 1 (log 1.20 ± 0.30), which is between “not worth more than a bare mention”"),
        (14.0, 1.0, "more than 170,000 to 1 (log 14.0 ± 1.0), which is very strong"),
    ],
)
def test_two_models_in_one_sentence(value, error, words):
    text = said(report.page({"Y": ran(-100.0, 0.0), "X": ran(-100.0 + value, error)}))
    assert text.startswith("The data favour “X” over “Y”: ")
    assert words in text


@pytest.mark.usefixtures("_no_plots")
def test_the_probability_of_the_best_is_given():
    pima = {"with age": ran(-259.85759, 1e-5), "without": ran(-257.23260, 1e-5)}
    assert said(report.page(pima)).endswith("with equal prior odds, “without” has probability 0.932.")
    table = thermint.compare(pima, prior={"with age": 0.9, "without": 0.1})
    given = said(report.page(pima, table))
    assert given.endswith("with the prior probabilities given, “without” has probability 0.605.")
    far = {"a": ran(0.0, 0.1), "b": ran(-50.0, 0.1)}
    assert said(report.page(far)).endswith("“a” has probability above 0.999.")
    rough = {"a": ran(0.0, 0.3), "b": ran(-2.0, 0.2)}
    assert said(report.page(rough)).endswith("“a” has probability 0.881 ± 0.038.")


@pytest.mark.usefixtures("_no_plots")
def test_errors_that_do_not_allow_a_verdict_say_so():
    text = said(report.page({"a": ran(-10.0, 0.2), "b": ran(-10.3, 0.2), "c": ran(-10.4, 0.2), "d": ran(-20.0, 0.2)}))
    assert text.startswith("The errors do not allow a verdict between “a”, “b” and “c”: the log Bayes factor of “a”")
    assert "0.30 ± 0.28, which may well be zero" in text
    assert "favour" not in text


@pytest.mark.parametrize(
    ("odds", "error", "text"),
    [
        (7e5, 1e-3, "about 700,000 to 1"),
        (1.5e6, 1e-3, "more than 10^6 to 1"),
        (20.0, 0.04, "about 20.0 to 1"),
        (20.0, 0.08, "between 17 and 23 to 1"),
    ],
)
def test_odds_say_no_more_than_is_known(odds, error, text):
    assert sentences.odds(np.log(odds), error) == text


@pytest.mark.parametrize(("low", "high"), [(-259.884, -259.836), (0.0, 1.0), (-5210.0, 17.0), (3e-7, 8e-7)])
def test_ticks_are_round_and_neither_few_nor_crowded(low, high):
    ticks = drawing.nice_ticks(low, high)
    assert np.all((ticks >= low) & (ticks <= high))
    assert len(f"{ticks[1] - ticks[0]:.10g}".strip("0.").partition("e")[0]) == 1  # one digit
    apart = (ticks[1] - ticks[0]) / (high - low) * (drawing.HEIGHT - drawing.TOP - drawing.BOTTOM)
    assert 2.5 * 12 < apart < 6.5 * 12  # in heights of a line of text


@pytest.mark.usefixtures("_no_plots")
def test_no_odds_or_probabilities_where_errors_are_large():
    text = report.page({"a": ran(-10.0, 20.0), "b": ran(-30.0, 0.1), "c": ran(-200.0, 0.1)})
    table = text.partition('id="comparison"')[2].partition("</table>")[0]
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in table.split("<tr>")[2:]]
    assert [row[2] for row in cells] == ["", "undecided", "more than 10^6 to 1"]
    assert [row[3] == "not known" for row in cells] == [True, True, False]


@pytest.mark.usefixtures("_no_plots")
def test_several_models_are_named():
    text = said(report.page({"c": ran(-9.0, 0.01), "a": ran(-1.0, 0.01), "b": ran(-4.0, 0.01, (WARNING,))}))
    assert text.startswith("Of the 3 models, the data favour “a” most: the Bayes factor over the next, “b”, is about")
    assert "with equal prior probabilities" in text
    assert text.endswith("These numbers should not be quoted before the warnings below, about “b”, are dealt with.")


@pytest.mark.usefixtures("_no_plots")
def test_numbers_that_are_not_finite_are_not_quoted():
    one = said(report.page({"": ran(np.nan, np.inf)}))
    assert one == "The log evidence of the model cannot be quoted: its value, or its error, is not finite."
    two = said(report.page({"a": ran(-1.0, 0.1), "b": ran(np.inf, np.inf)}))
    assert two.startswith("The models cannot be compared: the log evidence, or its error, is not finite for “b”.")


# --- What is on the page ---------------------------------------------------------------------------------------------


def test_all_parts_are_there(result, text):
    headings = re.findall(r"<h\d>(.*?)</h\d>", text)
    assert headings == [
        "Evidence of linear",
        "No warnings",
        "Where the error comes from",
        "What is integrated",
        "Rungs",
        "Diagnostics",
        "Other methods, same draws",
        "How it was computed",
        "How to repeat it",
        "References",
    ]
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", text)
    assert len(captions) == 6  # integrand, ratio, swaps, traces, coefficients, estimators
    assert text.count('class="rung"') == len(result.rungs) == 11
    assert "R&#8209;hat" in re.findall(r"<th[^>]*>(.*?)</th>", text)
    Tags(text)


def test_nothing_is_loaded(text, path):
    for page in (text, path.read_text(encoding="utf-8")):
        for tag, attributes in Tags(page).found:
            assert tag not in ("img", "iframe", "object", "embed", "base")
            assert "src" not in attributes
            for name, value in attributes.items():
                if name.endswith("href") and not (tag == "a" and (value or "").startswith("https://doi.org/")):
                    assert (value or "").startswith(("#", "data:"))
        style = "".join(re.findall(r"<style>(.*?)</style>", page, re.DOTALL))
        assert "url(" not in style
        assert "@import" not in style
        without_links = re.sub(r'<a href="https://doi.org/[^"]*">', "", page)
        assert "http:" not in without_links
        assert "https:" not in without_links
        assert "default-src 'none'" in page


def test_names_and_warnings_are_text_not_html(result):
    named = replace(result, warnings=(f"look: {SCRIPT}",), settings=replace(result.settings, parameters=[SCRIPT]))
    text = report.page({SCRIPT: named, "$\\frac{": ran(-142.0, 0.1), "日本 & 🙂": ran(-143.0, 0.1)})
    assert text.count("<figcaption>") == 7
    scripts = [attributes for tag, attributes in Tags(text).found if tag == "script"]
    assert len(scripts) == 2
    assert [attributes.get("type") for attributes in scripts] == ["application/json", None]
    assert "<b>" not in text
    assert text.count("</script>") == len(scripts)


def test_the_data_are_in_the_page(result, text):
    (data,) = re.findall(r'<script type="application/json">(.*?)</script>', text)
    found = json.loads(data)
    assert found["result"]["log_evidence"] == result.log_evidence
    assert len(found["rungs"]) == len(result.rungs)
    shown = dict(found["rungs"][3])
    assert shown["t"] == f"{result.rungs['t'][3]:.4g}"
    assert shown["ESS"] == f"{result.rungs['ess'][3]:,.0f}"
    assert dict(found["rungs"][-1])["swap rate"] == "–"


@pytest.mark.usefixtures("_no_plots")
def test_the_error_budget_adds_up(result):
    parts = trust.budget(result)
    assert [part.name for part in parts] == ["Monte Carlo", "quadrature", "rounding"]
    np.testing.assert_allclose(np.sqrt(sum(part.error**2 for part in parts)), result.standard_error, rtol=1e-5)
    apart = replace(result, standard_error=5 * result.standard_error)
    assert trust.budget(apart)[-1].name == "disagreement"
    np.testing.assert_allclose(np.sqrt(sum(p.error**2 for p in trust.budget(apart))), apart.standard_error)
    widths = [
        float(width)
        for width in re.findall(r'<rect class="part-\d" x="[\d.]*" width="([\d.]+)"', report.page({"": apart}))
    ]
    np.testing.assert_allclose(sum(widths), 100, atol=0.01)


def test_an_annealed_result_lacks_much(annealed):
    text = report.page({"": annealed})
    assert "annealed importance sampling (Neal 2001): 50 particles" in text
    assert "Control variates leave" not in text
    assert 'class="rung"' in text
    assert "R&#8209;hat" not in re.findall(r"<th[^>]*>(.*?)</th>", text)
    assert "The bias of a logarithm" in text
    assert "Other methods" not in text
    assert "Along the path" in text
    Tags(text)


def test_what_is_missing_is_left_out(result):
    text = report.page({"": replace(result, trace=None, coefficients=None, posterior=None)})
    assert text.count("<figcaption>") == 4


def test_values_that_are_not_finite_are_dashes(result):
    rungs = result.rungs.copy()
    rungs.loc[4, ["mean", "error", "ratio", "r_hat"]] = np.nan
    rungs.loc[5, ["error", "plain_error", "ess"]] = np.inf
    estimates = result.estimates.copy()
    estimates.loc["mbar"] = np.nan
    text = report.page({"": replace(result, rungs=rungs, estimates=estimates)})
    assert text.count('class="rung"') == 10
    page = re.sub(r"<(script|style|image).*?>.*?</\1>|<image [^>]*>", "", text, flags=re.DOTALL)
    assert not re.search(r"\b(nan|inf)\b", re.sub(r"<[^>]*>", " ", page))
    assert not re.search(r'"[^"]*\b(nan|inf)\b[^"]*"', page)
    Tags(text)


def test_without_matplotlib_the_rest_is_there(result, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    text = report.page({"": result})
    assert text.count("<figcaption>") == 1
    assert "thermint[plot]" in text


# --- Words about the run ---------------------------------------------------------------------------------------------


def test_methods_say_what_was_used(result):
    text = methods(result)
    assert "power posteriors" in text
    assert "2 independent populations with 400 draws" in text
    assert "second-order correction (Friel, Hurn and Wyse 2014)" in text
    assert "Stein control variates" in text
    described = {"components": 3, "dof": 5.0}
    settings = replace(result.settings, reference="fitted", described=described, method="bridge")
    settings = replace(settings, kernel="hmc", swap="random_pair", crossfit=False, degree=2)
    other = methods(replace(result, settings=settings, rungs=result.rungs.assign(degree=2)))
    assert "a mixture of 3 Student-t distributions with 5 degrees of freedom" in other
    assert "Hamiltonian Monte Carlo" in other
    assert "bridge form" in other
    assert "(degree 2; Oates, Papamarkou and Girolami 2016), whose coefficients were fitted in sample" in other
    assert "Hurn" not in other
    plain = methods(replace(result, rungs=result.rungs.assign(degree=0)))
    assert "no control variates were used" in plain
    assert "Oates" not in plain


@pytest.mark.usefixtures("_no_plots")
def test_only_what_is_cited_is_listed(result, annealed):
    assert "Kass" not in report.page({"": result}).partition('id="references"')[2]
    listed = report.page({"a": result, "b": replace(result, log_evidence=-150.0)}).partition('id="references"')[2]
    assert all(name in listed for name in ("Kass", "Oates", "Pettitt", "Hurn", "Shirts"))
    assert "Neal" not in listed
    assert "Neal" in report.page({"": annealed}).partition('id="references"')[2]


@pytest.mark.parametrize("which", ["result", "annealed"])
def test_the_snippet_repeats_the_run(which, request):
    before: Evidence = request.getfixturevalue(which)
    names: dict[str, Any] = {"model": linear.model()}
    exec(snippet(before), names)
    assert names["result"].log_evidence == before.log_evidence
    pd.testing.assert_frame_equal(names["result"].rungs, before.rungs, check_exact=True)


@pytest.mark.usefixtures("_no_plots")
def test_the_snippet_of_an_estimate():
    draws = thermint.sample(linear.model(), ladder=5, draws=50, populations=2)
    before = thermint.estimate(draws, method="bridge", degree=1, rule="trapezoid", crossfit=False)
    names: dict[str, Any] = {"draws": draws}
    exec(snippet(before), names)
    assert names["result"].log_evidence == before.log_evidence
    assert "import thermint" in report.page({"": before})


def test_rounds_and_functions_of_ones_own_in_the_snippet(result):
    settings = replace(result.settings, rounds=3, draws=400, target_error=0.01, kernel="my_kernel", seed=7)
    text = snippet(replace(result, settings=settings))
    assert "draws=100, populations=2, target_error=0.01, seed=7" in text
    assert "kernel=my_kernel" in text
    fitted = replace(settings, reference="fitted", kernel="mala", ladder=thermint.ladders.lobatto(5).tolist())
    assert '(model, rule="second-order", draws=100' in snippet(replace(result, settings=fitted))


# --- The file --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_no_plots")
def test_the_path_is_returned_and_replaced(result, tmp_path):
    path = tmp_path / "x.html"
    path.write_text("old")
    assert result.report(str(path), "named") == path
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert [file.name for file in tmp_path.iterdir()] == ["x.html"]
    assert "Evidence of named" in path.read_text(encoding="utf-8")


@pytest.mark.usefixtures("_no_plots")
def test_a_write_that_fails_leaves_the_old_file(result, tmp_path, monkeypatch):
    path = tmp_path / "x.html"
    path.write_text("old")

    def full(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="no space"):
        result.report(path)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["x.html"]


def test_bad_paths_and_tables_are_refused(result, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere"):
        result.report(tmp_path / "nowhere" / "x.html")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        result.report(tmp_path)
    with pytest.raises(ValueError, match="there are no results"):
        report.write({}, tmp_path / "x.html")
    table = thermint.compare({"a": result})
    with pytest.raises(ValueError, match="table is not of these models, 'b'"):
        report.page({"b": result}, table)
    with pytest.raises(ValueError, match="table and result of 'a' differ"):
        report.page({"a": replace(result, log_evidence=0.0)}, table)


# --- In a browser ----------------------------------------------------------------------------------------------------

needs_browser = pytest.mark.skipif(executable() is None, reason="there is no chromium or google-chrome on this machine")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    made = Browser(tmp_path_factory.mktemp("profile"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def path(result: Evidence, tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Both have all columns; the second is drawn without what takes long.
    other = replace(result, log_evidence=result.log_evidence - 2, warnings=(WARNING,), trace=None, coefficients=None)
    return report.write({SCRIPT: result, "other": other}, tmp_path_factory.mktemp("page") / "two.html")


def readout(page: Page) -> dict[str, str]:
    """Return what is shown of a rung, of the first model."""
    labels = "[...document.querySelector('.readout').querySelectorAll('dt')]"
    return dict(page.run(f"{labels}.map(label => [label.textContent, label.nextSibling.textContent])"))


def expected(result: Evidence, rung: int) -> dict[str, str]:
    row = result.rungs.iloc[rung]
    return {
        "rung": str(rung),
        "t": f"{row.t:.4g}",
        "degree": f"{row.degree:.0f}",
        "accepted": f"{row.acceptance:.2f}",
        "ESS": f"{row.ess:,.0f}",
        "R-hat": f"{row.r_hat:.3f}",
        "E[g]": formatting.with_error(row["mean"], row.error),
        "plain average": formatting.with_error(row.plain_mean, row.plain_error),
    }


@needs_browser
def test_a_page_with_errors_is_noticed(browser, tmp_path):
    bad = tmp_path / "bad.html"
    bad.write_text("<script>console.error('one'); missing()</script><img src='nowhere.png'>")
    page = Page(browser, bad)
    assert any("one" in text for text in page.problems)
    assert any("missing is not defined" in text for text in page.problems)
    assert any(address.endswith("nowhere.png") for address in page.requests)


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_pointing_at_a_rung_shows_its_numbers(browser, path, result, dark):
    page = Page(browser, path, dark=dark)
    assert readout(page) == {}
    for rung in (3, 10, 0):
        page.hover(f".rung[data-rung='{rung}'] .dot")
        assert expected(result, rung).items() <= readout(page).items()
        assert page.run("document.querySelectorAll('#rungs-0 tr.current').length") == 1
        assert page.run("document.querySelector('#rungs-0 tr.current').rowIndex") == rung + 1
    page.hover("#rungs-0 tbody tr:nth-child(6)")
    assert readout(page)["rung"] == "5"
    assert page.run("document.querySelector('.rung.current').dataset.rung") == "5"
    assert page.problems == []
    assert [address for address in page.requests if not address.startswith("data:")] == [path.as_uri()]
    assert page.run("document.title") == "Evidence of 2 models"  # no script but the page's own has run


@needs_browser
def test_keys_and_fingers(browser, path, result):
    page = Page(browser, path, width=400)
    page.run("document.querySelector('.rung').focus()")
    for key, rung in (
        ("ArrowRight", 1),
        ("ArrowRight", 2),
        ("ArrowLeft", 1),
        ("End", 10),
        ("ArrowRight", 10),
        ("Home", 0),
    ):
        page.press(key)
        assert readout(page)["rung"] == str(rung)
    page.call("Emulation.setTouchEmulationEnabled", enabled=True)
    page.tap(".rung[data-rung='7'] .dot")
    assert expected(result, 7).items() <= readout(page).items()
    assert page.problems == []


@needs_browser
def test_one_tab_stop_for_all_rungs(browser, path):
    page = Page(browser, path)
    assert page.run("document.querySelectorAll('#model-0 .rung[tabindex=\"0\"]').length") == 1
    page.hover(".rung[data-rung='4'] .dot")
    assert page.run("document.querySelectorAll('#model-0 .rung[tabindex=\"0\"]').length") == 1


CONTRAST = """
(() => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const linear = (c) => (c <= 10 ? c / 3294 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const c = parts(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  let worst = 21;
  for (const e of document.querySelectorAll("p, li, th, td, h1, h2, h3, a, figcaption, code, dt, dd, svg text")) {
    const style = getComputedStyle(e);
    const own = light(parts(e.closest("svg") ? style.fill : style.color)), under = light(ground(e));
    worst = Math.min(worst, (Math.max(own, under) + 0.05) / (Math.min(own, under) + 0.05));
  }
  return worst;
})()
"""


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_its_ground(browser, path, dark):
    page = Page(browser, path, dark=dark)
    assert page.run("getComputedStyle(document.body).backgroundColor") == (
        "rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)"
    )
    assert page.run(CONTRAST) > 4.5


@needs_browser
@pytest.mark.parametrize("width", [320, 400, 1000])
def test_no_part_is_wider_than_the_screen(browser, path, width):
    page = Page(browser, path, width=width)
    assert page.run("document.documentElement.scrollWidth") <= width


@needs_browser
def test_it_prints(browser, path):
    page = Page(browser, path, dark=True)
    page.emulate(dark=True, media="print")
    assert page.run("getComputedStyle(document.querySelector('.readout')).display") == "none"
    assert page.run("getComputedStyle(document.querySelector('.tall')).overflow") == "visible"  # no rung is left out
    assert page.run("getComputedStyle(document.querySelector('p')).color") == "rgb(27, 31, 36)"  # on white paper
    page.emulate(dark=True)
    pdf = page.pdf()
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 50_000
    assert page.problems == []


@needs_browser
def test_without_script_the_numbers_are_there(browser, path, result):
    page = Page(browser, path, script=False)
    assert page.run("document.querySelectorAll('#rungs-0 tbody tr').length") == len(result.rungs)
    title = page.run("document.querySelector('.rung[data-rung=\"3\"] title').textContent")
    assert f"t {result.rungs.t[3]:.4g}," in title
    assert page.run("document.querySelector('.readout').offsetHeight") == 0  # nothing would ever be in it
