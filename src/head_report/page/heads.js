"use strict";
const D = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const EACH = D.heads_per_layer;

// ---- numbers as text
const grouped = (n) => n.toLocaleString("en-US");
const percent = (p) => p === null ? "–" : p === 0 || p === 1 ? 100 * p + " %" : (p > 0 && p < 0.0095 ? (100 * p).toFixed(2)
  : p > 0.9905 && p < 1 ? Math.min(99.99, 100 * p).toFixed(2) : (100 * p).toFixed(p < 0.0995 ? 1 : 0)) + " %";
const short = (x) => x === null ? "–" : x === 0 ? "0" : Number(x.toPrecision(3)).toString();
const megabytes = (b) => short(b / 1e6) + " MB";

function make(tag, text, attributes) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const name in attributes || {}) made.setAttribute(name, attributes[name]);
  return made;
}

// ---- colours, from the style sheet: they follow light and dark
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const triple = (name) => style(name).split(",").map(Number);
function colour(share) {
  const cold = triple("--cold"), warm = triple("--warm");
  return cold.map((c, i) => Math.round(c + (warm[i] - c) * Math.min(1, Math.max(0, share))));
}
const css = (rgb) => `rgb(${rgb.join(",")})`;
const ink = (rgb) => 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2] > 140 ? "#111" : "#fff";

// ---- measures
const KINDS = {
  first: ["rests on the first token", [230, 159, 0], "has over a quarter of its probability on the first token"],
  one: ["rests on one other token", [213, 94, 0], "has over a quarter of its probability on one token"],
  self: ["looks at its own token", [204, 121, 167], "has over half of its probability on the query itself"],
  neighbour: ["looks at the token beside", [0, 158, 115], "has over half of its probability on tokens next to the query"],
  near: ["90 % within 16 tokens", [86, 180, 233], "has 90 % of its probability within 16 tokens"],
  even: ["looks at everything alike", [150, 150, 150], "spreads its probability almost evenly"],
  mixed: ["none of these", [90, 100, 190], "has no habit that has a name here"],
};
// The letters of the command.
const letterOf = (kind) => ({neighbour: "b", mixed: "-"})[kind] ?? kind[0];
const closest = (h) => h.similarity.reduce((most, x, i) => i === h.head || x === null ? most : Math.max(most, x), 0);
const windowPlace = () => Number($("window").value);
const MEASURES = [
  {name: "kind", title: "Kind of head", meaning: "What a head does with most of its probability. The first rule that fits gives the kind."},
  {name: "normalized_entropy", title: "Entropy, as a share of the largest", text: percent, range: [0, 1],
    meaning: "0: every query looks at one key. 100 %: at all it may see, alike."},
  {name: "largest", title: "Largest probability", text: percent, range: [0, 1],
    meaning: "Mean over queries of the probability of their favourite key."},
  {name: "saturated", title: "Saturated queries", text: percent, range: [0, 1],
    meaning: "Share of the queries with more than 99 % on one key: no gradient passes their softmax."},
  {name: "logit_std", title: "Spread of logits", text: short,
    meaning: "Standard deviation of a query's logits, mean over queries. Far above 1 softmax gets hard."},
  {name: "jacobian_norm", title: "Jacobian norm of softmax", text: short,
    meaning: "How much probabilities move with logits: 0 when saturated or spread over very many keys."},
  {name: "sink_mass", title: "Probability of the first token", text: percent, range: [0, 1],
    meaning: "Attention sinks: heads that park their probability on a token without meaning."},
  {name: "favourite_mass", title: "Probability of the favourite token", text: percent, range: [0, 1],
    meaning: "The token that all queries together look at most, whichever it is: [SEP] in many encoders."},
  {name: "reach50", title: "Reach of 50 %", text: grouped, log: true, meaning: "Distance that holds half of the probability, in tokens."},
  {name: "reach90", title: "Reach of 90 %", text: grouped, log: true, meaning: "Distance that holds 90 % of the probability, in tokens."},
  {name: "reach99", title: "Reach of 99 %", text: grouped, log: true, meaning: "Distance that holds 99 % of the probability, in tokens."},
  {name: "window", title: "Kept by a window", text: percent, range: [0, 1],
    of: (h) => ($("pinned").checked ? h.within_pinned : h.within)[windowPlace()],
    meaning: "Probability that a sliding window leaves to a head. Move the slider."},
  {name: "closest", title: "Similarity to another head", text: percent, range: [0, 1], of: closest,
    meaning: "Cosine of its probabilities and those of the head of its layer that is most like it: 100 % does the same work twice."},
  {name: "hashed_mass", title: "Found by hashing", text: percent, range: [0, 1],
    meaning: "Probability of the keys that LSH attention would find."},
].filter((m) => m.of || D.heads.some((h) => h[m.name] !== null && h[m.name] !== undefined));
const value = (m, h) => m.of ? m.of(h) : h[m.name];

function rangeOf(m) {
  if (m.range) return m.range;
  const all = D.heads.map((h) => value(m, h)).filter((x) => x !== null);
  return [Math.min(...all), Math.max(...all)];
}
function shareOf(m, x, [from, to]) {
  if (x === null) return 0;
  const f = m.log ? (y) => Math.log2(1 + y) : (y) => y;
  return to > from ? (f(x) - f(from)) / (f(to) - f(from)) : 0;
}

// ---- the map of heads
let measure = MEASURES[0], chosen = 0, query = null, cells = [];

function buildGrid() {
  const grid = $("grid");
  const side = EACH <= 16 && innerWidth >= 1000;  // the heads stay visible next to the one that is shown
  document.body.classList.toggle("side", side);
  const space = Math.max(260, Math.min(1240, document.body.clientWidth - 24) - 40);
  const width = side ? 32 : Math.max(14, Math.min(64, Math.floor(space / EACH) - 2));
  grid.style.gridTemplateColumns = `max-content repeat(${EACH}, ${width}px)`;
  grid.dataset.numbers = width >= 24;
  grid.replaceChildren(make("div", "layer", {class: "name"}));
  for (let h = 0; h < EACH; ++h) grid.append(make("div", h, {class: "name top"}));
  cells = [];
  D.layers.forEach((layer, l) => {
    const coder = D.sources > 0 ? (layer.name.startsWith("encoder") ? "enc " : "dec ") : "";
    grid.append(make("div", coder + layer.name.split(".").pop(), {class: "name", title: layer.name + ": " + layer.pattern}));
    for (let h = 0; h < EACH; ++h) {
      const index = l * EACH + h;
      const cell = make("button", "", {type: "button", role: "gridcell"});
      cell.addEventListener("click", () => choose(index));
      cell.addEventListener("keydown", (event) => {
        const step = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -EACH, ArrowDown: EACH}[event.key];
        if (!step || !cells[index + step]) return;
        event.preventDefault();
        choose(index + step);
        cells[chosen].focus();
      });
      cells.push(cell);
      grid.append(cell);
    }
  });
}

function cellText(m, x) {
  if (m.name === "kind") return letterOf(x);
  if (x === null) return "";
  return m.range ? (100 * x).toFixed(0) : m.log ? (x > 999 ? (x / 1000).toFixed(1) + "k" : x) : Number(x.toPrecision(2));
}

function paintGrid() {
  const range = measure.name === "kind" ? null : rangeOf(measure);
  const numbers = $("grid").dataset.numbers === "true";
  D.heads.forEach((h, i) => {
    const x = value(measure, h);
    const rgb = range ? colour(shareOf(measure, x, range)) : KINDS[x][1];
    const cell = cells[i];
    cell.style.background = css(rgb);
    cell.style.color = ink(rgb);
    cell.textContent = numbers ? cellText(measure, x) : "";
    const shown = range ? measure.text(x) : KINDS[x][0];
    cell.title = `layer ${h.layer}, head ${h.head}: ${shown}`;
    cell.setAttribute("aria-label", cell.title);
    cell.setAttribute("aria-selected", i === chosen);
    cell.tabIndex = i === chosen ? 0 : -1;
  });
  $("meaning").textContent = measure.meaning;
  $("window-control").hidden = $("pinned-control").hidden = measure.name !== "window";
  $("window-value").textContent = grouped(D.distances[windowPlace()]);
  const legend = $("legend");
  legend.replaceChildren();
  if (!range) {
    for (const kind in KINDS) {
      const count = D.heads.filter((h) => h.kind === kind).length;
      if (count === 0) continue;
      const entry = make("span");
      entry.append(make("span", "", {class: "box", style: `background:${css(KINDS[kind][1])}`}),
        `${letterOf(kind)} ${KINDS[kind][0]} (${count})`);
      legend.append(entry);
    }
    return;
  }
  const bar = make("span", "", {class: "bar"});
  bar.style.background = `linear-gradient(90deg, ${css(colour(0))}, ${css(colour(1))})`;
  legend.append(measure.text(range[0]), bar, measure.text(range[1]));
}

// ---- one head
const RUNS = {" ": 1, "!": 2, "#": 4, "$": 16, "%": 64, "&": 256};
const LEVELS = Object.fromEntries([...D.levels].map((c, i) =>
  [c, Math.pow(D.smallest, 1 - i / (D.levels.length - 1))]));
function mapOf(index) {
  const text = D.maps.texts[index], side = sideOf(index), map = new Float32Array(side * side);
  let at = 0;
  for (const c of text) c in RUNS ? at += RUNS[c] : map[at++] = LEVELS[c];
  return map;
}
const isSource = (index) => D.sources > 0 && D.layers[D.heads[index].layer].name.startsWith("encoder");
const tileOf = (index) => (isSource(index) ? D.source_map_tile : D.map_tile) * D.maps.join;
const textsOf = (index) => isSource(index) ? D.source_texts : D.texts;
const sideOf = (index) => {
  const tokens = isSource(index) ? D.sources : D.tokens, tile = isSource(index) ? D.source_map_tile : D.map_tile;
  return Math.ceil(Math.ceil(tokens / tile) / D.maps.join);
};
const hasMaps = D.maps.texts.length > 0;
let map = null;

const visible = (text) => text.replace(/\n/g, "⏎\n").replace(/\t/g, "⇥");
function tileText(index, tile) {
  const size = tileOf(index);
  return textsOf(index).slice(tile * size, (tile + 1) * size).join("");
}
function tokenName(index, tile) {
  const text = tileText(index, tile).replace(/\n/g, "⏎").replace(/\t/g, "⇥");
  return text.length > 40 ? text.slice(0, 19) + "…" + text.slice(-19) : text;
}

function paintMap() {
  if (!hasMaps) return;
  const side = sideOf(chosen), canvas = $("map"), scale = Math.max(1, Math.floor(512 / side));
  canvas.width = canvas.height = side * scale;
  const small = new OffscreenCanvas(side, side), context = small.getContext("2d");
  const image = context.createImageData(side, side), floor = Math.log(D.smallest);
  const ramp = Array.from({length: 101}, (_, i) => colour(i / 100));
  for (let i = 0; i < side * side; ++i) {
    const p = map[i], share = p > 0 ? 1 - Math.log(p) / floor : 0;
    const rgb = ramp[Math.round(100 * (p > 0 ? 0.12 + 0.88 * share : 0))];
    image.data.set([rgb[0], rgb[1], rgb[2], 255], 4 * i);
  }
  context.putImageData(image, 0, 0);
  const to = canvas.getContext("2d");
  to.imageSmoothingEnabled = false;
  to.drawImage(small, 0, 0, side * scale, side * scale);
  if (query !== null) {
    to.strokeStyle = style("--mark");
    to.lineWidth = 1;
    to.strokeRect(0.5, query * scale - 1.5, side * scale - 1, scale + 3);
  }
}

function showPair(row, column) {
  const pair = $("pair"), side = sideOf(chosen), size = tileOf(chosen);
  pair.replaceChildren();
  if (row === null) {
    pair.textContent = "Hover over the map, or tap it: which query looks at which key.";
    return;
  }
  const name = (tile) => make("code", tokenName(chosen, tile));
  const place = (tile) => size === 1 ? ` (${tile})` : ` (${tile * size}–${Math.min((tile + 1) * size, textsOf(chosen).length) - 1})`;
  if (column !== null) {
    const p = map[row * side + column];
    pair.append(name(row), place(row) + " → ", name(column), place(column) + ": ",
      make("b", p > 0 ? "≈ " + percent(p) : "below " + percent(D.smallest)), make("br"));
  }
  const top = [...map.slice(row * side, (row + 1) * side).keys()].sort((a, b) => map[row * side + b] - map[row * side + a]).slice(0, 5)
    .filter((k) => map[row * side + k] > 0);
  pair.append(column === null ? "" : "Most of all ", ...(column === null ? [name(row), place(row) + " looks at "] : ["it looks at "]));
  top.forEach((k, i) => pair.append(i ? ", " : "", name(k), " " + percent(map[row * side + k])));
}

function showTokens() {
  const box = $("tokens"), side = sideOf(chosen);
  box.replaceChildren();
  for (let tile = 0; tile < side; ++tile) {
    const token = make("span", visible(tileText(chosen, tile)) || "▫");
    token.addEventListener("mouseenter", () => { if (query === null) shadeTokens(tile); });
    token.addEventListener("click", () => pin(query === tile ? null : tile));
    box.append(token);
  }
  box.onmouseleave = () => { if (query === null) shadeTokens(null); };
}

function shadeTokens(row) {
  const side = sideOf(chosen), spans = $("tokens").children, warm = triple("--warm");
  let most = 0;
  for (let k = 0; row !== null && k < side; ++k) most = Math.max(most, map[row * side + k]);
  for (let k = 0; k < side; ++k) {
    const share = row === null || most === 0 ? 0 : Math.sqrt(map[row * side + k] / most);
    spans[k].style.background = share > 0.05 ? `rgba(${warm.join(",")},${(0.55 * share).toFixed(2)})` : "";
    spans[k].className = k === row ? "from" : "";
  }
  showPair(row, null);
}

function pin(row) {
  query = row;
  paintMap();
  shadeTokens(row);
}

function showNumbers() {
  const h = D.heads[chosen], rows = [["Kind", h.kind]];
  for (const m of MEASURES) if (!["kind", "window"].includes(m.name)) rows.push([m.title, m.text(value(m, h))]);
  rows.push(["Mean distance", short(h.distance)]);
  const twin = h.similarity.map((x, i) => [x, i]).filter(([x, i]) => x !== null && i !== h.head).sort((a, b) => b[0] - a[0])[0];
  $("numbers").replaceChildren(...rows.map(([title, text]) => {
    if (title === "Similarity to another head" && twin) text = `${text} (head ${twin[1]})`;
    if (title === "Probability of the favourite token") text = `${text} (token ${h.favourite}, ${(textsOf(chosen)[h.favourite] || "").trim()})`;
    const row = make("tr");
    row.append(make("td", title), make("td", text, {class: "number"}));
    return row;
  }));
}

function showCurve() {
  const h = D.heads[chosen], svg = $("curve"), last = Math.log2(1 + D.distances[D.distances.length - 1]);
  const x = (d) => 38 + 272 * Math.log2(1 + d) / last, y = (p) => 130 - 120 * p;
  const shape = (tag, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const name in attributes) made.setAttribute(name, attributes[name]);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const path = (all, kind) => shape("path", {class: kind, d: all.map((p, i) => `${i ? "L" : "M"}${x(D.distances[i]).toFixed(1)} ${y(p).toFixed(1)}`).join("")});
  svg.replaceChildren(shape("rect", {class: "frame", x: 38, y: 10, width: 272, height: 120}));
  for (const p of [0, 0.5, 1]) svg.append(shape("text", {x: 34, y: y(p) + 3, "text-anchor": "end"}, 100 * p + " %"));
  for (let d = 1; Math.log2(1 + d) <= last + 0.01; d *= last > 8 ? 4 : 2) svg.append(shape("text", {x: x(d), y: 143, "text-anchor": "middle"}, d));
  svg.append(path(h.within_pinned, "pinned"), path(h.within, "all"));
  $("curve-text").textContent = `Probability within so many tokens; dashed: with the first ${D.pinned} tokens. 50 % within ${grouped(h.reach50)}, 90 % within ${grouped(h.reach90)}, 99 % within ${grouped(h.reach99)}.`;
}

function choose(index) {
  chosen = index;
  const h = D.heads[index], size = hasMaps ? tileOf(index) : 1;
  if (hasMaps) map = mapOf(index);
  if (query !== null && query >= sideOf(index)) query = null;
  $("one-title").textContent = `Layer ${h.layer}, head ${h.head}`;
  $("one-text").textContent = `It ${KINDS[h.kind][2]}. ${D.layers[h.layer].name}, pattern ${D.layers[h.layer].pattern}. ` +
    (size > 1 ? `A cell is ${size} × ${size} tokens: what its queries give to its keys, on average. ` : "") +
    "Darkness grows with the logarithm of the probability.".replace("Darkness", matchMedia("(prefers-color-scheme: dark)").matches ? "Brightness" : "Darkness");
  paintGrid();
  showNumbers();
  showCurve();
  if (!hasMaps) return;
  paintMap();
  showTokens();
  shadeTokens(query);
}

// ---- trials
function showTrials() {
  $("trials-section").hidden = D.trials.length === 0;
  const writes = D.loss !== null;
  $("trials-text").textContent = "The model was run again with these patterns in its layers. " +
    (writes ? `With its own patterns the loss on this text is ${D.loss.toFixed(3)} nats a token.`
      : "Rows of the last layer are compared with those of the untouched model.");
  const head = ["Pattern", "Heads that keep " + percent(D.enough), "Probability kept", "Worst head", "Pairs", writes ? "Loss" : "Cosine of rows"];
  if (D.cache_bytes > 0) head.push("Keys and values");
  const line = (tag, texts) => {
    const row = make("tr");
    texts.forEach((text, i) => row.append(make(tag, text, i ? {class: "number"} : {})));
    return row;
  };
  const own = ["own patterns", `${D.heads.length} of ${D.heads.length}`, "100 %", "100 %", "100 %", writes ? D.loss.toFixed(3) : "1"];
  if (D.cache_bytes > 0) own.push(megabytes(D.cache_bytes));
  $("trials").replaceChildren(line("th", head), line("td", own), ...D.trials.map((t) => {
    const change = writes ? ` (${t.loss >= D.loss ? "+" : "−"}${short(Math.abs(100 * (t.loss / D.loss - 1)))} %)` : "";
    const texts = [t.name, `${t.served} of ${D.heads.length}`, percent(t.mass), percent(t.worst), percent(t.pairs),
      writes ? (t.loss === null ? "–" : t.loss.toFixed(3) + change) : short(t.cosine)];
    if (D.cache_bytes > 0) texts.push(megabytes(t.cache_bytes));
    return line("td", texts);
  }));
}

// ---- the page
function start() {
  $("title").textContent = `What the heads of ${D.model} do`;
  document.title = $("title").textContent;
  const tokens = D.sources > 0 ? `${grouped(D.sources)} tokens in, ${grouped(D.tokens)} out` : `${grouped(D.tokens)} tokens`;
  $("facts").textContent = `${D.layers.length} layers of ${EACH} heads, ${grouped(D.parameters)} parameters, measured on ${tokens}. rapt ${D.version}.`;
  $("advice").replaceChildren(...D.advice.map((text) => make("li", text)));
  $("warnings").textContent = D.warnings.join(". ");
  MEASURES.forEach((m, i) => $("measure").append(make("option", m.title, {value: i})));
  $("measure").addEventListener("change", () => { measure = MEASURES[Number($("measure").value)]; paintGrid(); });
  $("window").max = D.distances.length - 1;
  $("window").value = D.distances.findIndex((d) => d >= Math.min(64, D.tokens / 4));
  $("pinned-label").textContent = `and the first ${D.pinned} tokens`;
  for (const id of ["window", "pinned"]) $(id).addEventListener("input", paintGrid);
  $("map-figure").hidden = $("tokens").hidden = $("tokens-title").hidden = !hasMaps;
  $("tokens-help").textContent = hasMaps ? "Point at a token to see what it looks at; click to hold it while you choose other heads." : "";
  const place = (event) => {
    const box = $("map").getBoundingClientRect(), side = sideOf(chosen);
    const at = (x, size) => Math.max(0, Math.min(side - 1, Math.floor(side * x / size)));
    return [at(event.clientY - box.top, box.height), at(event.clientX - box.left, box.width)];
  };
  $("map").addEventListener("mousemove", (event) => showPair(...place(event)));
  $("map").addEventListener("mouseleave", () => showPair(query, null));
  $("map").addEventListener("click", (event) => { const [row, column] = place(event); pin(row); showPair(row, column); });
  buildGrid();
  showTrials();
  showPair(null, null);
  // A head with something to see: one that makes up its mind, and not about the first token.
  const clear = D.heads.map((h) => h.kind === "first" ? 0 : h.largest);
  choose(clear.indexOf(Math.max(...clear)));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => choose(chosen));
  addEventListener("resize", () => { buildGrid(); paintGrid(); });
}
start();
