"use strict";
// What every part of the page uses. Class names are untrusted: they go through textContent, or through plain() for Plotly.
const byId = (id) => document.getElementById(id);

// ---- Data: compressed in the page, inflated when first asked for

async function inflate(id) {
  const letters = atob(byId(id).textContent),
    bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i); // Uint8Array.from takes thirty times as long
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

const packs = {};
const pack = (name) => (packs[name] ??= inflate(`data-${name}`).then(JSON.parse));

const painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));

let plotly;
function loadPlotly() {
  plotly ??= globalThis.Plotly
    ? Promise.resolve()
    : (async () => {
        const code = await inflate("plotly");
        await painted(); // what is there already is shown first: starting Plotly is most of what a chart takes
        document.head.append(element("script", { textContent: code }));
      })();
  return plotly;
}

// A frame as arrays by column; texts were codes of their distinct values.
function unpacked(frame) {
  const columns = {};
  for (const [name, column] of Object.entries(frame)) {
    columns[name] = Array.isArray(column) ? column : column.codes.map((code) => column.levels[code]);
  }
  return columns;
}

const lengthOf = (columns) => Object.values(columns)[0]?.length ?? 0;
const rowsOf = (columns) =>
  Array.from({ length: lengthOf(columns) }, (_, i) =>
    Object.fromEntries(Object.keys(columns).map((name) => [name, columns[name][i]])),
  );
const distinct = (values) => [...new Set(values)];

// ---- Address: `#explorer?step=2&class=7` is what is open, and what was chosen on the page; a name without a value is left out

function openedId() {
  const written = location.hash.slice(1).split("?")[0];
  try {
    return decodeURIComponent(written);
  } catch {
    return written; // no text in UTF-8: nothing here has such a name
  }
}
const readState = () => Object.fromEntries(new URLSearchParams(location.hash.split("?")[1] ?? ""));
// With what was chosen so far and `changes` to it: for links, which are followed as any other address is.
function addressOf(changes, id = openedId()) {
  const chosen = new URLSearchParams();
  for (const [name, value] of Object.entries({ ...readState(), ...changes }))
    if (value !== null && value !== undefined && value !== "") chosen.set(name, value);
  return `#${encodeURIComponent(id)}${chosen.size ? `?${chosen}` : ""}`;
}
// Told of a choice, which needs no following: the page shows it already. Back undoes it. settled: nobody chose it now, it
// completes what an address left open. ongoing: what is being typed or slid, of which Back undoes all at once.
let underway = "";
function writeState(changes, id, { settled = false, ongoing = "" } = {}) {
  const address = addressOf(changes, id);
  if (address === (location.hash || "#")) return;
  history[settled || (ongoing && ongoing === underway) ? "replaceState" : "pushState"](null, "", address);
  if (!settled) underway = ongoing;
}
addEventListener("hashchange", () => {
  underway = "";
});

// ---- Words and numbers, written as report/words/notation.py writes them

const MISSING = "\u2013";
const minus = (text) => text.replace(/-/g, "\u2212");
// As Python rounds: what lies exactly half-way, which in binary an odd multiple of a power of two does, to the even digit.
function fixed(value, digits) {
  const text = value.toFixed(digits),
    odd = Math.abs(value * 2 ** (digits + 1)) % 2 === 1;
  return odd && /[13579]$/.test(text) ? (value - Math.sign(value) * 0.25 * 10 ** -digits).toFixed(digits) : text;
}
function decimal(value, digits = 2, signed = false) {
  if (value === null || value === undefined) return MISSING;
  const text = fixed(value, digits);
  if (Number(text) === 0) return text.replace("-", "");
  return signed && value > 0 ? `+${text}` : minus(text);
}
const interval = (low, high) => (low === null || high === null || low === high ? "" : `(${decimal(low)}, ${decimal(high)})`);
const estimate = (value, low, high) => `${decimal(value)} ${interval(low, high)}`.trimEnd();
const percent = (value) =>
  value === null || value === undefined ? MISSING : `${minus(fixed(100 * value, 0).replace(/^-0$/, "0"))}\u202f%`;
const known = (values) => values.filter((value) => value !== null);
const extent = (values) => [Math.min(...values), Math.max(...values)];
// Of an axis that shows all values, with a little room.
function span(values, room = 0.04) {
  const [low, high] = extent(known(values)),
    pad = room * (high - low || 1);
  return [low - pad, high + pad];
}
const significant = (value) =>
  value === null
    ? MISSING
    : minus(Math.abs(value) >= 0.001 || value === 0 ? String(Number(value.toPrecision(3))) : value.toExponential(1));
const share = (level) => (/^[\d.]+$/.test(level) ? `${level}\u202f%` : level);
const policyOf = (row) => (row.policy && row.policy !== "uniform" ? `${row.benchmark}, ${row.policy}` : row.benchmark);
const shorten = (name, length = 18) => (name.length > length ? `${name.slice(0, length - 1)}\u2026` : name);
// Plotly reads <a>, <b>, entities, line breaks and $..$ in labels: this is only characters.
const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/\$/g, "&#36;");

function element(tag, properties, ...children) {
  const { attributes = {}, ...own } = properties ?? {};
  const node = Object.assign(document.createElement(tag), own);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// Cells are texts or nodes, or several of them; the first names the row.
const tableRow = (name, ...cells) =>
  element(
    "tr",
    {},
    element("th", { scope: "row", className: "text" }, name),
    ...cells.map((cell) => element("td", {}, ...[cell].flat())),
  );
const tableHead = (...names) => {
  const cells = names.map((name, i) => element("th", { scope: "col", className: i ? "" : "text", textContent: name }));
  return element("thead", {}, element("tr", {}, ...cells));
};

// A labelled list to choose from; options are texts, or [value, text].
function chooser(label, options, onchange) {
  const list = element("select", { onchange: () => onchange(list.value) });
  list.fill = (offered) =>
    list.replaceChildren(
      ...offered.map((one) => {
        const [value, text = value] = [one].flat();
        return element("option", { value, textContent: text });
      }),
    );
  list.fill(options);
  return { list, box: element("label", {}, label, list) };
}

// An interval as a dot on a line: [value, low, high] within [from, to]; `paper` is a value to set beside it, `floor` how much of it
// noise alone would show. What lies beyond an end is at the end, and marked there.
function intervalBar(value, low, high, [from, to], paper = null, floor = null) {
  const at = (x) => `${Math.min(100, Math.max(0, (100 * (x - from)) / (to - from || 1)))}%`;
  const bar = element("span", { className: "interval" });
  const mark = (tag, x) => {
    const node = element(tag, {});
    node.style.left = at(x);
    bar.append(node);
    return node;
  };
  if (floor !== null) mark("q", Math.max(0, from)).style.width = `calc(${at(floor)} - ${at(Math.max(0, from))})`;
  if (from < 0 && to > 0) mark("s", 0);
  if (low !== null && high !== null) mark("i", low).style.width = `calc(${at(high)} - ${at(low)})`;
  if (value !== null) mark("b", value);
  if (paper !== null) mark("u", paper);
  const beyond = [known([value, low]).some((x) => x < from), known([value, high]).some((x) => x > to)];
  for (const side of ["left", "right"].filter((_, i) => beyond[i])) {
    const arrow = { className: `clipped ${side}`, textContent: side === "left" ? "\u25c2" : "\u25b8" };
    bar.append(element("em", { ...arrow, attributes: { "aria-hidden": "true" } }));
  }
  if (beyond.some(Boolean)) {
    bar.title = "Clipped: it reaches beyond what the bar can show.";
    bar.append(element("span", { className: "unseen", textContent: "clipped" }));
  }
  return bar;
}

function save(name, text, type) {
  const link = element("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// A text that a spreadsheet would take for a formula begins with an apostrophe; numbers stay numbers.
const inert = (text) => (/^[=+\-@\t\r]/.test(text) && !/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) ? `'${text}` : text);

function csv(columns) {
  const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);
  const cell = (value) => (value === null ? "" : quoted(typeof value === "string" ? inert(value) : String(value)));
  const names = Object.keys(columns);
  const lines = Array.from({ length: lengthOf(columns) }, (_, i) => names.map((name) => cell(columns[name][i])).join(","));
  return `${names.join(",")}\n${lines.join("\n")}${lines.length ? "\n" : ""}`;
}

// ---- Charts: one look

function theme() {
  const style = getComputedStyle(document.documentElement);
  const look = { font: getComputedStyle(document.body).fontFamily };
  for (const name of ["ink", "muted", "line", "accent", "surface", "one", "two", "three", "four", "unknown"])
    look[name] = style.getPropertyValue(`--${name}`).trim();
  return look;
}

// Colours that people with any colour vision tell apart; dashes and symbols differ too.
const SERIES = [
  ["one", "solid", "circle"],
  ["two", "dash", "square"],
  ["three", "dot", "diamond"],
  ["four", "dashdot", "cross"],
];
const series = (look, i) => {
  const [colour, dash, symbol] = SERIES[i % SERIES.length];
  return { colour: look[colour], dash, symbol };
};

const axis = (look, title, more) => ({
  fixedrange: true,
  gridcolor: look.line,
  zerolinecolor: look.line,
  linecolor: look.line,
  ticks: "",
  automargin: true,
  tickfont: { size: 11.5, color: look.muted },
  title: { text: title, font: { size: 12.5, color: look.muted }, standoff: 8 },
  ...more,
});

// Of the panels of a chart: how an axis is called in the layout, and by traces and other axes; and a title above a panel.
const axisName = (letter, i) => `${letter}axis${i ? i + 1 : ""}`;
const axisOf = (letter, i) => letter + (i ? i + 1 : "");
const panelTitle = (look, text, x, y) => ({
  text,
  x,
  y,
  xref: "paper",
  yref: "paper",
  xanchor: "left",
  yanchor: "bottom",
  showarrow: false,
  font: { size: 12.5, color: look.ink },
});

// Where each label of points, all in pixels, fits without touching a point or another label; the extremes come first, null where
// there is no room.
function placeLabels(font, points, names, [width, height]) {
  const brush = document.createElement("canvas").getContext("2d");
  brush.font = `11px ${font}`;
  const taken = points.map(([x, y]) => [x - 6, y - 6, x + 6, y + 6]);
  const places = points.map(() => null);
  const order = points.map((_, i) => (i % 2 ? points.length - (i + 1) / 2 : i / 2));
  for (const i of order) {
    const [x, y] = points[i],
      w = brush.measureText(names[i]).width + 4;
    const candidates = {
      "middle right": [x + 6, y - 7, x + 10 + w, y + 7],
      "middle left": [x - 10 - w, y - 7, x - 6, y + 7],
      "top center": [x - w / 2, y - 21, x + w / 2, y - 6],
      "bottom center": [x - w / 2, y + 6, x + w / 2, y + 21],
    };
    for (const [place, box] of Object.entries(candidates)) {
      const free = taken.every(
        (other, k) => k === i || box[2] < other[0] || other[2] < box[0] || box[3] < other[1] || other[3] < box[1],
      );
      if (!free || box[0] < 0 || box[2] > width + 8 || box[1] < -8 || box[3] > height) continue;
      places[i] = place;
      taken.push(box);
      break;
    }
  }
  return places;
}

async function draw(box, traces, layout) {
  await loadPlotly();
  await drawNow(box, traces, layout);
}

function drawNow(box, traces, layout) {
  // where Plotly is there already
  const look = theme();
  box.querySelector(":scope > .empty")?.remove();
  box.classList.add("drawn");
  return Plotly.react(
    box,
    traces,
    {
      paper_bgcolor: "transparent",
      plot_bgcolor: "transparent",
      font: { family: look.font, color: look.ink, size: 12 },
      hovermode: "closest",
      dragmode: false,
      showlegend: false,
      hoverlabel: { bgcolor: look.surface, bordercolor: look.line, font: { color: look.ink } },
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { color: look.ink } },
      margin: { l: 56, r: 12, t: 16, b: 48 },
      ...layout,
    },
    { displayModeBar: false, doubleClick: false, showTips: false },
  );
}

// Beside the pointer: a title, [label, value] rows, and an image, several or none.
function tooltip(event, title, rows, images) {
  const facts = rows.flatMap(([label, value]) => [
      element("dt", { textContent: label }),
      element("dd", { textContent: value }),
    ]),
    box = byId("tooltip");
  box.replaceChildren(element("strong", { textContent: title }), ...[images ?? []].flat(), element("dl", {}, ...facts));
  box.hidden = false;
  const at = event.touches?.[0] ?? event.changedTouches?.[0] ?? event;
  const left = at.clientX + 16 + box.offsetWidth > innerWidth ? at.clientX - 16 - box.offsetWidth : at.clientX + 16;
  box.style.transform = `translate(${Math.max(8, left)}px, ${Math.max(8, Math.min(at.clientY + 14, innerHeight - box.offsetHeight - 8))}px)`;
}

const hideTooltip = () => {
  byId("tooltip").hidden = true;
};

// told: what a point of a drawn chart says, as [title, rows, images] of a tooltip, or null. onclick: what a click on it does, if
// not the same. onleave: what follows when no point is pointed at any more.
function tell(box, told, { onclick = null, onleave = hideTooltip } = {}) {
  Object.assign(box, { told, chosen: onclick });
  if (box.listens) return;
  box.listens = true;
  const say = ({ points: [point], event }) => {
    const said = box.told(point);
    if (said) tooltip(event, ...said);
  };
  box.on("plotly_hover", say);
  box.on("plotly_click", (found) => (box.chosen ? box.chosen(found.points[0]) : say(found)));
  box.on("plotly_unhover", onleave);
}

function leaveEmpty(box, reason) {
  if (box.classList.contains("drawn")) Plotly.purge(box);
  box.classList.remove("drawn");
  box.listens = false;
  box.replaceChildren(element("p", { className: "empty", textContent: reason }));
}

// redraw: is called when the window has another width, or the page another colour scheme.
function onNewLook(redraw) {
  let width = innerWidth,
    waiting;
  addEventListener("resize", () => {
    if (innerWidth === width) return; // a phone's address bar changes the height only
    width = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(redraw, 120);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}

// Charts that are on the page, each with the function that draws it again, for another size or colour scheme.
const redraws = new Map();
const paper = { printing: false, width: 680 };
