"use strict";
// Without it the page is complete; with it tables sort and filter, and marks of charts say what they are.

const UNITS = {M: 1e6, B: 1, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12, s: 1, min: 60, h: 3600};
const LONG = 12;

function made(tag, attributes, ...children) {
  const element = document.createElement(tag);
  Object.assign(element, attributes);
  element.append(...children);
  return element;
}

// The number that a cell begins with, in its unit; NaN where it begins with none.
function number(text) {
  const [, digits, unit] = /^[<$]*([-+]?[\d.]+(?:e[-+]?\d+)?)\s*([A-Za-z]*)/.exec(text.replaceAll(",", "")) ?? [];
  return parseFloat(digits) * (UNITS[unit] ?? 1);
}

function sortable(table) {
  const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
  const texts = new Map(rows.map(row => [row, [...row.cells].map(cell => cell.textContent.trim())]));
  heads.forEach((head, column) => {
    const known = rows.map(row => texts.get(row)[column]).filter(text => text && text !== "-");
    const numeric = known.every(text => !isNaN(number(text)));
    const order = (a, b) => numeric ? number(a) - number(b) : a.localeCompare(b, "en", {numeric: true});
    const next = {none: "ascending", ascending: "descending", descending: "none"};
    head.setAttribute("aria-sort", "none");
    const sort = () => {
      const way = next[head.getAttribute("aria-sort")], sign = way === "descending" ? -1 : 1;
      heads.forEach(other => other.setAttribute("aria-sort", other === head ? way : "none"));
      const absent = row => !texts.get(row)[column] || texts.get(row)[column] === "-";
      const sorted = way === "none" ? rows : rows.toSorted((a, b) =>
        absent(a) - absent(b) || (absent(a) ? 0 : sign * order(texts.get(a)[column], texts.get(b)[column])));
      body.append(...sorted);
    };
    head.replaceChildren(made("button", {type: "button", onclick: sort}, ...head.childNodes));
  });
  if (rows.length > LONG) filterable(table, rows);
}

function filterable(table, rows) {
  const count = made("output", {}), box = made("input", {type: "search"});
  const filter = () => {
    const words = box.value.toLowerCase().split(/\s+/);
    rows.forEach(row => { row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word)); });
    count.textContent = `${rows.filter(row => !row.hidden).length} of ${rows.length}`;
  };
  box.oninput = filter;
  table.parentElement.before(made("label", {className: "filter"}, "Filter ", box, " ", count));
  filter();
}

// One box for all charts. A chart is one stop of the keyboard; arrows go from mark to mark.
function explained(charts) {
  const tip = made("div", {id: "tip", hidden: true});
  tip.setAttribute("role", "status");
  document.body.append(tip);
  let shown = null;
  const hide = () => { shown?.classList.remove("on"); shown = null; tip.hidden = true; };
  const show = mark => {
    hide();
    shown = mark;
    mark.classList.add("on");
    tip.textContent = mark.dataset.tip;
    tip.hidden = false;
    const place = mark.getBoundingClientRect(), width = tip.offsetWidth, height = tip.offsetHeight;
    const left = place.left + place.width / 2 - width / 2, above = place.top - height - 8;
    tip.style.left = `${Math.max(4, Math.min(left, document.documentElement.clientWidth - width - 4))}px`;
    tip.style.top = `${above > 4 ? above : place.bottom + 8}px`;
  };
  for (const chart of charts) {
    const marks = [...chart.querySelectorAll(".mark")];
    if (!marks.length) continue;
    for (const mark of marks) {
      const title = mark.querySelector(":scope > title");  // the browser would show it a second time
      mark.dataset.tip = title.textContent;
      title.remove();
      mark.addEventListener("pointerenter", () => show(mark));
      mark.addEventListener("pointerleave", hide);
    }
    let at = 0;
    chart.tabIndex = 0;
    chart.addEventListener("focus", () => show(marks[at]));
    chart.addEventListener("blur", hide);
    chart.addEventListener("keydown", event => {
      const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
      if (event.key === "Escape") hide();
      if (!step) return;
      event.preventDefault();
      at = (at + step + marks.length) % marks.length;
      show(marks[at]);
    });
  }
  addEventListener("scroll", hide, {passive: true});
}

document.querySelectorAll("table.sorts").forEach(sortable);
explained(document.querySelectorAll("figure.chart"));
// What a chart above shows already is not printed a second time.
addEventListener("beforeprint", () => document.querySelectorAll("details:not(.data)").forEach(part => { part.open = true; }));
