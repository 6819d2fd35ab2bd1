"use strict";
// Draws the figures of a page. Their specs and tables stand in the page itself; nothing is fetched.

const figures = JSON.parse(document.getElementById("figures").textContent);

const palettes = {
  light: {
    ink: "#1c2227", soft: "#5b6670", line: "#dfe4e8",
    category: ["#1f6fb4", "#d1641b", "#2a8c5a", "#8a4fb5", "#b0890a", "#c2406b", "#4a6670", "#7a5a3a"],
    diverging: ["#1f5fa8", "#8fbbe0", "#f1f2f2", "#f0b183", "#b6501a"],
    heatmap: ["#eef2f5", "#8fbbe0", "#1f6fb4", "#0b2d57"],
  },
  dark: {
    ink: "#e4e8eb", soft: "#9aa6b0", line: "#343b43",
    category: ["#6cb2f0", "#f2995c", "#66c795", "#c39be8", "#e3c75a", "#f080a4", "#a9bdc6", "#c9a784"],
    diverging: ["#6cb2f0", "#2f5f8a", "#23282e", "#8a5426", "#f2995c"],
    heatmap: ["#23282e", "#2f5f8a", "#6cb2f0", "#d7ebff"],
  },
};

// Debian's Vega comes in parts that find one another by name.
function assembleVega() {
  if (typeof vegaParts === "undefined") return null;
  const loaded = {};
  const part = (name) => {
    if (!loaded[name]) {
      const module = {exports: (loaded[name] = {})};
      vegaParts[name](module.exports, module, part);
    }
    return loaded[name];
  };
  Object.assign(part("vega-dataflow").transforms, part("vega-transforms"),
                part("vega-view-transforms"), part("vega-encode"));
  return {
    parse: part("vega-parser").parse,
    View: part("vega-view").View,
    interpreter: part("vega-interpreter").expressionInterpreter,
  };
}

const vega = assembleVega();
const printing = matchMedia("print"), darkness = matchMedia("(prefers-color-scheme: dark)");
// What tests and curious readers may look into: name of a figure → its views.
const views = (window.raptViews = {});
const chosen = {};  // figure and signal → index of the slider

function element(tag, content, attributes = {}) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...[content].flat());
  return made;
}

function numberText(value) {
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return String(Number(value.toPrecision(5)));
}

// Tables are stored by column names and rows of values, as that is shorter.
function rowsOf(table) {
  return table.rows.map((row) => Object.fromEntries(row.map((value, i) => [table.fields[i], value])));
}

function configOf(colors) {
  const font = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";
  return {
    background: null,
    axis: {
      domainColor: colors.soft, tickColor: colors.line, gridColor: colors.line, labelColor: colors.soft,
      titleColor: colors.soft, labelFont: font, titleFont: font, labelFontSize: 12, titleFontSize: 12,
      titleFontWeight: "normal", titlePadding: 8,
    },
    legend: {
      labelColor: colors.soft, titleColor: colors.soft, labelFont: font, titleFont: font,
      labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal",
    },
    title: {color: colors.soft, font, fontSize: 12, fontWeight: "normal"},
    range: {
      category: colors.category, diverging: {scheme: colors.diverging}, heatmap: {scheme: colors.heatmap},
    },
    style: {
      reference: {stroke: colors.soft, strokeWidth: 1.5, strokeDash: [2, 3]},
      bar: {fill: colors.category[0]},
    },
  };
}

const tip = element("div", [], {class: "tip", hidden: ""});

function tellRow(handler, event, item, row) {
  tip.hidden = row == null || typeof row !== "object";
  if (tip.hidden) return;
  tip.replaceChildren(element("table", Object.entries(row).map(([name, value]) =>
    element("tr", [element("td", name), element("td", numberText(value))]))));
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + "px";
  const below = event.clientY + 16;
  tip.style.top = (below + box.height > innerHeight ? event.clientY - box.height - 10 : below) + "px";
}

function distinct(tables, field) {
  const values = new Set();
  for (const rows of Object.values(tables))
    for (const row of rows) if (row[field] !== undefined) values.add(row[field]);
  return [...values];
}

function sizeOf(spec, tables, room) {
  const {kind, x, y} = spec.usermeta;
  if (kind === "plane") return [Math.min(room, 400), Math.min(room, 400) + 30];
  if (kind !== "heat") return [room, room < 480 ? 260 : 300];
  // Cells as square as the page allows, and the axes next to them.
  const columns = distinct(tables, x).length, rows = distinct(tables, y).length;
  const cell = Math.min((room - 50) / columns, 30);
  return [columns * cell + 50, Math.max(120, Math.min(rows * cell, 420)) + 110];
}

// Names below narrow bars would hide one another.
function slantNames(spec, tables) {
  const {kind, x} = spec.usermeta;
  if (kind !== "bars" || spec.width > 480 || !distinct(tables, x).some((value) => isNaN(value))) return;
  Object.assign(spec.axes[0], {labelAngle: -35, labelAlign: "right", labelOverlap: false});
}

function draw(name, spec, tables, chart, colors, panel) {
  const copy = structuredClone(spec);
  for (const table of copy.data) if (tables[table.name]) table.values = structuredClone(tables[table.name]);
  [copy.width, copy.height] = sizeOf(spec, tables, chart.clientWidth);
  slantNames(copy, tables);
  const canvas = element("div", []);
  chart.append(canvas);
  const view = new vega.View(vega.parse(copy, configOf(colors), {ast: true}), {
    expr: vega.interpreter, renderer: spec.usermeta.kind === "heat" ? "canvas" : "svg",
    container: canvas, hover: true, tooltip: tellRow,
  });
  if (panel !== undefined) view.signal("panel", panel);
  views[name].push(view);
  return view;
}

const samples = {
  line: '<path d="M0 6H24" stroke="currentColor" stroke-width="2.5"/>',
  dashes: '<path d="M0 6H24" stroke="currentColor" stroke-width="2" stroke-dasharray="5 4"/>',
  points: '<circle cx="12" cy="6" r="4.5" fill="currentColor"/>',
  band: '<path d="M0 6H24" stroke="currentColor" stroke-width="10" opacity=".3"/>',
  rule: '<path d="M0 6H24" stroke="currentColor" stroke-width="2" stroke-dasharray="2 3"/>',
  upright: '<path d="M12 0V12" stroke="currentColor" stroke-width="2" stroke-dasharray="2 3"/>',
};

function showLegend(figure, spec, view) {
  const place = figure.querySelector(".legend");
  place.replaceChildren();
  if (spec.scales.some((scale) => scale.name === "color")) {
    const color = view.scale("color");
    for (const name of color.domain()) {
      if (name === "") continue;
      place.append(element("span", [element("i", [], {style: `background:${color(name)}`}), String(name)]));
    }
  }
  for (const {label, mark} of spec.usermeta.layers) {
    const entry = element("span", label);
    entry.insertAdjacentHTML("afterbegin", `<svg viewBox="0 0 24 12" aria-hidden="true">${samples[mark]}</svg>`);
    place.append(entry);
  }
}

function nearest(values, wanted) {
  let best = 0;
  values.forEach((value, i) => {
    if (Math.abs(value - wanted) < Math.abs(values[best] - wanted)) best = i;
  });
  return best;
}

function showSliders(figure, name, spec, tables) {
  const place = figure.querySelector(".sliders");
  place.replaceChildren();
  for (const {signal, field, title, start} of spec.usermeta.sliders) {
    const values = distinct(tables, field).sort((a, b) => a - b), key = `${name} ${signal}`;
    chosen[key] ??= nearest(values, start);
    const output = element("output", ""), input = element("input", [], {
      type: "range", min: 0, max: values.length - 1, step: 1, value: chosen[key], "aria-label": title,
    });
    const move = () => {
      chosen[key] = Number(input.value);
      output.value = numberText(values[chosen[key]]);
      input.setAttribute("aria-valuetext", output.value);
      for (const view of views[name]) view.signal(signal, values[chosen[key]]).run();
    };
    input.addEventListener("input", move);
    place.append(element("label", [title, input, output], {class: "slider"}));
    move();
  }
}

function drawFigure(name, {spec, data}, colors) {
  const figure = document.getElementById(name), place = figure.querySelector(".charts");
  const tables = Object.fromEntries(Object.entries(data).map(([table, rows]) => [table, rowsOf(rows)]));
  for (const view of views[name] ?? []) view.finalize();
  views[name] = [];
  place.replaceChildren();
  const facet = spec.usermeta.facet, panels = facet ? distinct(tables, facet) : [undefined];
  // All places first: how wide one is depends on the others.
  const charts = panels.map((panel) => element(
    "div", panel === undefined ? [] : element("h4", String(panel)), {class: "chart", role: "img"}));
  place.append(...charts);
  charts.forEach((chart, i) => draw(name, spec, tables, chart, colors, panels[i]));
  showSliders(figure, name, spec, tables);
  for (const view of views[name]) view.run();
  showLegend(figure, spec, views[name][0]);
}

function drawAll() {
  const colors = palettes[darkness.matches && !printing.matches ? "dark" : "light"];
  tip.hidden = true;
  for (const [name, figure] of Object.entries(figures)) if (figure.spec) drawFigure(name, figure, colors);
  document.documentElement.dataset.drawn = document.body.clientWidth;
}

const mostRows = 300;

function csvOf({fields, rows}) {
  const cell = (value) => (/[",\n]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : value);
  return [fields, ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

function saveButton(name, table) {
  const button = element("button", "Save as CSV", {type: "button"});
  button.addEventListener("click", () => {
    const link = element("a", "", {download: `${name}.csv`});
    link.href = URL.createObjectURL(new Blob([csvOf(table)], {type: "text/csv"}));
    link.click();
    URL.revokeObjectURL(link.href);
  });
  return button;
}

function tableOf({fields, rows}) {
  const line = (cells, tag) => element("tr", cells.map((cell) => element(tag, numberText(cell))));
  return element("table", [line(fields, "th"), ...rows.slice(0, mostRows).map((row) => line(row, "td"))]);
}

// Tables are long: they are made when they are opened.
function showNumbers(details, name) {
  if (!details.open || details.childElementCount > 1) return;
  for (const [table, content] of Object.entries(figures[name].data)) {
    const count = content.rows.length;
    const note = count > mostRows ? `, the first ${mostRows} of ${numberText(count)} rows` : "";
    details.append(element("p", [`${table}${note} `, saveButton(`${name}-${table}`, content)]),
                   element("div", tableOf(content), {class: "rows"}));
  }
}

document.body.append(tip);
for (const details of document.querySelectorAll("figure details"))
  details.addEventListener("toggle", () => showNumbers(details, details.closest("figure").id));

if (vega) {
  drawAll();
  let width = document.body.clientWidth, pending;
  addEventListener("resize", () => {
    clearTimeout(pending);
    pending = setTimeout(() => {
      if (document.body.clientWidth !== width) drawAll();
      width = document.body.clientWidth;
    }, 150);
  });
  darkness.addEventListener("change", drawAll);
  printing.addEventListener("change", drawAll);
} else {
  for (const details of document.querySelectorAll("figure details")) details.open = true;
}
