"use strict";
(() => {
  const tip = document.getElementById("tip");
  const grids = new WeakMap(); // of each picture, what its cells say
  let marked = null; // the point that is told now

  function gridOf(box) {
    if (!grids.has(box)) grids.set(box, JSON.parse(box.querySelector("script").textContent));
    return grids.get(box);
  }

  // Tables that are wider than their box say so.
  function showHints() {
    for (const box of document.querySelectorAll(".scroll")) {
      box.previousElementSibling.hidden = box.scrollWidth <= box.clientWidth + 1;
    }
  }

  function place(x, y) {
    const gap = 14;
    const box = tip.getBoundingClientRect();
    const wide = document.documentElement.clientWidth;
    const high = window.innerHeight;
    let left = x + gap;
    let top = y + gap;
    if (left + box.width > wide - 4) left = x - gap - box.width;
    if (top + box.height > high - 4) top = y - gap - box.height;
    tip.style.left = Math.max(4, Math.min(left, wide - box.width - 4)) + "px";
    tip.style.top = Math.max(4, top) + "px";
  }

  function show(text, x, y) {
    if (tip.textContent !== text) tip.textContent = text;
    tip.hidden = false;
    place(x, y);
  }

  function unmark() {
    if (marked) marked.classList.remove("on");
    marked = null;
  }

  function hide() {
    tip.hidden = true;
    unmark();
    for (const spot of document.querySelectorAll(".spot")) spot.hidden = true;
  }

  function mark(element) {
    if (marked === element) return;
    unmark();
    marked = element;
    element.classList.add("on");
  }

  // A picture of many cells: which one is it, and what does it say?
  function tell(box, row, column, x, y) {
    const grid = gridOf(box);
    const lines = [
      grid.kinds[0] + " " + grid.rows[row],
      grid.kinds[1] + " " + grid.columns[column],
    ];
    for (const layer of grid.layers) {
      const value = layer.values[row][column];
      const digits = grid.scale > 1 ? 1 : 0;
      const shown = value === null ? "–" : (value / grid.scale).toFixed(digits) + grid.unit;
      lines.push(layer.label + ": " + shown);
    }
    const spot = box.querySelector(".spot");
    spot.hidden = false;
    spot.style.left = (100 * column) / grid.columns.length + "%";
    spot.style.width = 100 / grid.columns.length + "%";
    spot.style.top = (100 * row) / grid.rows.length + "%";
    spot.style.height = 100 / grid.rows.length + "%";
    box.dataset.row = row;
    box.dataset.column = column;
    show(lines.join("\n"), x, y);
  }

  function point(event) {
    const box = event.target.closest(".grid");
    if (box) {
      const grid = gridOf(box);
      const area = box.getBoundingClientRect();
      const inside = (value, count) => Math.max(0, Math.min(count - 1, Math.floor(value * count)));
      const row = inside((event.clientY - area.top) / area.height, grid.rows.length);
      const column = inside((event.clientX - area.left) / area.width, grid.columns.length);
      unmark();
      tell(box, row, column, event.clientX, event.clientY);
      return;
    }
    const element = event.target.closest("[data-tip]");
    if (!element) {
      hide();
      return;
    }
    if (element.classList.contains("pt")) mark(element);
    else unmark();
    show(element.dataset.tip, event.clientX, event.clientY);
  }

  function step(event, at, count, wide) {
    const moves = {
      ArrowRight: 1, ArrowLeft: -1, ArrowDown: wide, ArrowUp: -wide,
    };
    if (event.key === "Home") return 0;
    if (event.key === "End") return count - 1;
    if (!(event.key in moves)) return null;
    const next = at + moves[event.key];
    return next < 0 || next >= count ? at : next;
  }

  function key(event) {
    if (event.key === "Escape") return hide();
    const chart = event.target.closest(".chart");
    if (!chart || event.target !== chart || event.ctrlKey || event.metaKey || event.altKey) return;
    if (chart.classList.contains("grid")) {
      const grid = gridOf(chart);
      const wide = grid.columns.length;
      const at = Number(chart.dataset.row || 0) * wide + Number(chart.dataset.column || 0);
      const next = step(event, at, wide * grid.rows.length, wide);
      if (next === null) return;
      event.preventDefault();
      const area = chart.getBoundingClientRect();
      const row = Math.floor(next / wide);
      const column = next % wide;
      const x = area.left + (area.width * (column + 0.5)) / wide;
      const y = area.top + (area.height * (row + 0.5)) / grid.rows.length;
      tell(chart, row, column, x, y);
      return;
    }
    const points = [...chart.querySelectorAll(".pt")];
    if (!points.length) return;
    const at = points.indexOf(marked);
    const wide = Number(chart.dataset.wide || 1);
    const next = at < 0 ? (event.key.startsWith("Arrow") ? 0 : null)
      : step(event, at, points.length, wide);
    if (next === null) return;
    event.preventDefault();
    const target = points[next];
    mark(target);
    if (chart.classList.contains("scroll")) {
      target.scrollIntoView({ block: "nearest", inline: "nearest" });
    }
    const area = target.getBoundingClientRect();
    show(target.dataset.tip, area.left + area.width / 2, area.top + area.height / 2);
  }

  document.addEventListener("pointermove", (event) => {
    if (event.pointerType !== "touch") point(event);
  });
  document.addEventListener("click", point); // a tap
  document.addEventListener("keydown", key);
  document.addEventListener("focusout", hide);
  document.addEventListener("pointerleave", hide);
  document.addEventListener("toggle", showHints, true);
  window.addEventListener("resize", showHints);
  window.addEventListener("beforeprint", hide);
  showHints();
})();
