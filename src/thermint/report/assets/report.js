"use strict";
// Point at a rung, by mouse, finger or arrow keys, in the plot or in the table: its numbers are shown beside the plot.
for (const figure of document.querySelectorAll("figure.explore")) {
  const told = JSON.parse(figure.querySelector("script").textContent).rungs; // for each rung, pairs of label and text
  const svg = figure.querySelector("svg");
  const dots = [...svg.querySelectorAll(".rung")];
  const rows = [...document.querySelectorAll(`#${figure.dataset.table} tbody tr`)];
  const readout = figure.querySelector(".readout");
  readout.hidden = false;
  let current = null;

  function show(rung) {
    if (rung === current) return;
    current = rung;
    for (const dot of dots) {
      dot.classList.toggle("current", Number(dot.dataset.rung) === rung);
      dot.tabIndex = Number(dot.dataset.rung) === rung ? 0 : -1;
    }
    rows.forEach((row, i) => row.classList.toggle("current", i === rung));
    const list = document.createElement("dl");
    for (const [label, text] of told[rung]) {
      list.append(Object.assign(document.createElement("dt"), { textContent: label }));
      list.append(Object.assign(document.createElement("dd"), { textContent: text }));
    }
    readout.replaceChildren(list);
  }

  function nearest(event) {
    const distance = (dot) => {
      const box = dot.querySelector(".dot").getBoundingClientRect();
      return Math.hypot(box.x + box.width / 2 - event.clientX, (box.y + box.height / 2 - event.clientY) / 4);
    };
    return dots.reduce((best, dot) => (distance(dot) < distance(best) ? dot : best));
  }

  for (const kind of ["pointermove", "pointerdown"]) {
    svg.addEventListener(kind, (event) => show(Number(nearest(event).dataset.rung)));
  }
  dots.forEach((dot, i) => {
    dot.querySelector("title").remove(); // the browser's own tooltip; its words are the label too
    dot.addEventListener("focus", () => show(Number(dot.dataset.rung)));
    dot.addEventListener("keydown", (event) => {
      const last = dots.length - 1;
      const to = { ArrowRight: i + 1, ArrowUp: i + 1, ArrowLeft: i - 1, ArrowDown: i - 1, Home: 0, End: last }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      dots[Math.min(Math.max(to, 0), last)].focus();
    });
  });
  rows.forEach((row, i) => row.addEventListener("pointerenter", () => show(i)));
}
