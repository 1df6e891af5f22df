// Steps that are under way: asked for again and again, and drawn where something has changed. Names are untrusted: text nodes only.

const SLOTS = 5; // colours of classes
const PATIENT = 15000; // milliseconds for an answer
const HEIGHT = 190;
const MARGIN = { left: 46, right: 22, top: 12, bottom: 34 };

const every = 1000 * Number(byId("live").dataset.every);
const cards = new Map(); // by step: what is on the page of it

// ---- Charts, as SVG

function drawn(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// At most so many round values within an interval.
function ticks([low, high], most = 4) {
  const rough = (high - low) / most || 1,
    power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) found.push(Number(at.toPrecision(12)));
  return found;
}

// An empty chart and where its values are: [svg, x, y].
function frame(width, [left, right], [low, high], across, whole) {
  const inner = { right: width - MARGIN.right, bottom: HEIGHT - MARGIN.bottom };
  const x = (value) => MARGIN.left + ((value - left) / (right - left || 1)) * (inner.right - MARGIN.left);
  const y = (value) => inner.bottom - ((value - low) / (high - low || 1)) * (inner.bottom - MARGIN.top);
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, height: HEIGHT, "aria-hidden": "true" });
  for (const value of ticks([low, high])) {
    svg.append(drawn("line", { class: "grid", x1: MARGIN.left, x2: inner.right, y1: y(value), y2: y(value) }));
    svg.append(drawn("text", { x: MARGIN.left - 6, y: y(value) + 4, "text-anchor": "end" }, significant(value)));
  }
  for (const value of ticks([left, right], 5).filter((one) => !whole || Number.isInteger(one)))
    svg.append(drawn("text", { x: x(value), y: inner.bottom + 15, "text-anchor": "middle" }, significant(value)));
  svg.append(drawn("text", { x: inner.right, y: HEIGHT - 3, "text-anchor": "end" }, across));
  return [svg, x, y];
}

const room = (values) => {
  const [low, high] = span([...values, 0]);
  return [Math.min(low, 0), high];
};

// Of curves: [{ values, slot, id, dashed }], each a value or null per place; a gap where there is none.
function grow(box, places, curves, across) {
  const values = known(curves.flatMap((one) => one.values));
  if (!values.length) return leaveEmpty(box, "Unknown so far.");
  const [svg, x, y] = frame(box.clientWidth || 320, extent(places), room(values), across, true),
    marks = [];
  for (const { values: own, slot, id, dashed, mark } of curves) {
    const points = own.map((value, i) => (value === null ? null : [x(places[i]), y(value)]));
    const path = points
      .map((point, i) => (point ? `${i && points[i - 1] ? "L" : "M"}${point.map((at) => at.toFixed(1))}` : ""))
      .join("");
    svg.append(drawn("path", { class: `curve slot-${slot}${dashed ? " kept" : ""}`, d: path, "data-class": id }));
    const last = points.findLast(Boolean);
    if (!last) continue;
    svg.append(drawn("circle", { class: `dot slot-${slot}`, cx: last[0], cy: last[1], r: 3, "data-class": id }));
    if (mark) marks.push({ x: last[0] + 7, y: last[1] + 4, id, mark });
  }
  marks.sort((a, b) => b.y - a.y);
  const free = marks.map((one) => one.y);
  for (let i = 1; i < free.length; i++) free[i] = Math.min(free[i], free[i - 1] - 11); // above the one below it
  const back = marks.length ? (marks.at(-1).y - free.at(-1)) / 2 : 0; // as far to either side
  for (const [i, { x: across, id, mark }] of marks.entries())
    svg.append(drawn("text", { class: "name", x: across, y: free[i] + back, "data-class": id }, mark));
  box.replaceChildren(svg);
}

// What will be forgotten against what is so far: a point per class, its interval, and the line where nothing more is lost. Where it
// is unknown of all what is forgotten so far, they stand side by side.
function scatter(box, rows, slotOf) {
  const placed = rows.filter((row) => row.so_far !== null),
    apart = !placed.length,
    shown = apart ? rows : placed;
  const reach = shown.flatMap((row) => known([row.forecast, row.forecast_low, row.forecast_high, row.so_far]));
  const ends = [Math.min(0, ...reach), Math.max(1, ...reach)];
  const across = apart ? "rank; forgotten so far is unknown" : "forgotten so far";
  const [svg, x, y] = frame(box.clientWidth || 320, apart ? [0.5, rows.length + 0.5] : ends, ends, across, apart);
  if (!apart) svg.append(drawn("line", { class: "even", x1: x(ends[0]), y1: y(ends[0]), x2: x(ends[1]), y2: y(ends[1]) }));
  for (const row of shown) {
    const own = `slot-${slotOf(row)}`,
      at = x(apart ? row.rank : row.so_far);
    if (row.forecast_low !== null && row.forecast_high !== null) {
      const line = { x1: at, x2: at, y1: y(row.forecast_low), y2: y(row.forecast_high) };
      svg.append(drawn("line", { ...line, class: `curve ${own}`, "data-class": row.class_id }));
    }
    svg.append(drawn("circle", { class: `dot ${own}`, cx: at, cy: y(row.forecast), r: 5, "data-class": row.class_id }));
    if (!apart)
      svg.append(
        drawn("text", { class: "name", x: at + 8, y: y(row.forecast) + 4, "data-class": row.class_id }, String(row.rank)),
      );
  }
  box.replaceChildren(svg);
}

const predictedOf = (row) => estimate(row.forecast, row.forecast_low, row.forecast_high);
const isPredicted = (row) => row.forecast !== null;

// ---- A step

const CHARTS = [
  ["sic", "SIC so far", "bias of a class’s own stored images, summed over the probes; at each line its rank"],
  ["nic", "NIC so far", "pull of the new classes, summed over the probes; at each line its rank"],
  ["losses", "Loss of all and of kept images", "solid: all images of a class; dashed: its rehearsed ones"],
  ["training", "Training loss", "mean over each epoch"],
  [
    "forecast",
    "Predicted against current forgetting",
    "at the end of the step, with an interval, at each its rank; on the line nothing more is lost",
  ],
];

function makeCard(key) {
  const title = element("h2", { id: `step-${key}` }),
    pace = element("p", { className: "lead" }),
    bar = element("progress", { attributes: { "aria-labelledby": title.id } }),
    said = element("p", { className: "note", hidden: true }),
    lack = element("p", { className: "lead", hidden: true }),
    table = element("table", {}),
    how = element("p", { className: "lead", hidden: true }),
    region = { tabindex: 0, role: "region", "aria-label": "Classes at risk, a table" },
    shown = element("div", { className: "card scroll", hidden: true, attributes: region }, table);
  const charts = {},
    figures = {};
  for (const [name, head, small] of CHARTS) {
    charts[name] = element("div", { className: "chart", attributes: { role: "img", "aria-label": head } });
    figures[name] = element(
      "figure",
      { className: "card" },
      element("figcaption", {}, element("strong", { textContent: head }), element("small", { textContent: small })),
      charts[name],
    );
  }
  const growing = element("div", { className: "growing" }, ...Object.values(figures));
  const parts = { title, pace, bar, said, lack, table, how, shown, charts, figures, growing };
  const place = element("section", { className: "step" }, title, pace, bar, said, lack, shown, how, growing);
  place.setAttribute("aria-labelledby", title.id);
  return { ...parts, place, slots: new Map(), chosen: null, before: "" };
}

// A class keeps its colour for as long as it is among those at risk.
function giveColours(card, rows) {
  const there = new Set(rows.map((row) => row.class_id));
  for (const id of card.slots.keys()) if (!there.has(id)) card.slots.delete(id);
  for (const row of rows) {
    if (card.slots.has(row.class_id)) continue;
    const taken = new Set(card.slots.values());
    card.slots.set(
      row.class_id,
      [...Array(SLOTS).keys()].find((slot) => !taken.has(slot)),
    );
  }
}

const swatch = (slot) =>
  drawn(
    "svg",
    { width: 14, height: 12, "aria-hidden": "true" },
    drawn("circle", { class: `dot slot-${slot}`, cx: 6, cy: 6, r: 5 }),
  );

function classButton(card, row) {
  const button = element("button", { type: "button", textContent: row.class_name, title: "Show its lines alone" });
  button.dataset.class = row.class_id;
  button.setAttribute("aria-pressed", String(card.chosen === row.class_id));
  button.onclick = () => {
    card.chosen = card.chosen === row.class_id ? null : row.class_id;
    choose(card);
  };
  return button;
}

function choose(card) {
  if (!card.slots.has(card.chosen)) card.chosen = null;
  card.place.classList.toggle("chosen", card.chosen !== null);
  for (const button of card.table.querySelectorAll("button"))
    button.setAttribute("aria-pressed", String(Number(button.dataset.class) === card.chosen));
  for (const one of card.growing.querySelectorAll("[data-class]"))
    one.classList.toggle("lit", Number(one.dataset.class) === card.chosen);
}

function fillTable(card, rows) {
  const focused = card.table.contains(document.activeElement) ? document.activeElement.dataset.class : undefined;
  const predicted = rows.some(isPredicted);
  const names = ["Class", "Rank", "Moved", "SIC", "NIC", "Loss of all", "Of kept", ...(predicted ? ["Final FG"] : []), "Why"];
  const head = tableHead(...names);
  head.querySelector("th:last-child").classList.add("text");
  const body = rows.map((row) => {
    const numbers = [row.sic, row.nic, row.loss_all, row.loss_rehearsed].map(significant);
    const forecast = predicted ? [predictedOf(row)] : [];
    const line = tableRow("", String(row.rank), row.trend, ...numbers, ...forecast, row.why);
    line.firstChild.append(swatch(card.slots.get(row.class_id)), " ", classButton(card, row));
    line.lastChild.className = "text";
    return line;
  });
  card.table.replaceChildren(head, element("tbody", {}, ...body));
  if (focused !== undefined)
    card.table.querySelector(`button[data-class="${Number(focused)}"]`)?.focus({ preventScroll: true });
}

function fillCharts(card, step) {
  const rows = step.at_risk,
    slotOf = (row) => card.slots.get(row.class_id);
  const curve = (row, name, dashed = false) => ({
    values: row.curves[name],
    slot: slotOf(row),
    id: row.class_id,
    dashed,
    mark: dashed ? "" : String(row.rank),
  });
  const say = (name, text) => card.charts[name].setAttribute("aria-label", text);
  for (const name of ["sic", "nic", "losses"]) card.figures[name].hidden = !rows.length;
  card.figures.forecast.hidden = !rows.length;
  if (rows.length) {
    for (const name of ["sic", "nic"]) {
      grow(
        card.charts[name],
        step.probed_at,
        rows.map((row) => curve(row, name)),
        step.counted,
      );
      say(
        name,
        `${name.toUpperCase()} after ${step.probes} probes: ${rows.map((row) => `${row.class_name} ${significant(row[name])}`).join(", ")}`,
      );
    }
    const both = rows.flatMap((row) => [curve(row, "loss_all"), curve(row, "loss_rehearsed", true)]);
    grow(card.charts.losses, step.probed_at, both, step.counted);
    const of = (row) => `${row.class_name} ${significant(row.loss_all)} and ${significant(row.loss_rehearsed)}`;
    say("losses", `Loss of all and of kept images: ${rows.map(of).join(", ")}`);
    fillForecasts(card, step, slotOf);
  }
  const losses = step.losses.map(([, loss]) => loss);
  if (losses.length) {
    grow(
      card.charts.training,
      step.losses.map(([epoch]) => epoch),
      [{ values: losses, slot: "none", id: -1 }],
      "epoch",
    );
    say("training", `Training loss after ${step.epoch} epochs: ${significant(losses.at(-1))}`);
  } else
    leaveEmpty(
      card.charts.training,
      step.counted === "epoch" ? "Unknown: a monitor does not see the loss." : "No epoch has ended yet.",
    );
}

function fillForecasts(card, step, slotOf) {
  const predicted = step.at_risk.filter(isPredicted),
    box = card.charts.forecast;
  if (!predicted.length) return leaveEmpty(box, step.forecasts_by ?? "No forecast.");
  scatter(box, predicted, slotOf);
  box.setAttribute(
    "aria-label",
    `Predicted forgetting: ${predicted.map((row) => `${row.class_name} ${predictedOf(row)}`).join(", ")}`,
  );
}

function fillCard(card, step) {
  const now = JSON.stringify(step);
  if (now === card.before) return;
  card.before = now;
  card.step = step;
  card.title.textContent = step.title;
  card.pace.textContent = step.pace;
  card.pace.hidden = Boolean(step.said);
  card.said.textContent = step.said;
  card.said.hidden = !step.said;
  card.bar.hidden = !step.epochs;
  if (step.epochs) Object.assign(card.bar, { max: step.epochs, value: Math.min(step.epoch, step.epochs) });
  const rows = step.at_risk;
  card.lack.textContent = rows.length ? "" : step.lack;
  card.lack.hidden = rows.length > 0;
  card.shown.hidden = !rows.length;
  card.how.hidden = !rows.length;
  card.how.textContent = `${rows.length} of ${step.past} past class${step.past === 1 ? "" : "es"}, after ${step.probes} probe${step.probes === 1 ? "" : "s"}. ${rows.some(isPredicted) ? step.forecasts_by : ""}`;
  giveColours(card, rows);
  fillTable(card, rows);
  fillCharts(card, step);
  choose(card);
}

// ---- The page

function fillSteps(steps) {
  const place = byId("running"),
    there = new Set(steps.map((step) => step.key));
  for (const [key, card] of cards)
    if (!there.has(key)) {
      card.place.remove();
      cards.delete(key);
    }
  steps.forEach((step, i) => {
    if (!cards.has(step.key)) cards.set(step.key, makeCard(step.key));
    const card = cards.get(step.key);
    if (place.children[i] !== card.place) place.insertBefore(card.place, place.children[i] ?? null);
    fillCard(card, step);
  });
}

function fillList(section, texts) {
  section.hidden = !texts.length;
  section.querySelector("ul").replaceChildren(...texts.map((textContent) => element("li", { textContent })));
}

function fillFinished(steps) {
  byId("done").hidden = !steps.length;
  const rows = steps.map((one) => {
    const name = one.step.includes("/") ? one.step : one.step.slice(0, 8);
    const link = element(
      "a",
      { href: `step?id=${encodeURIComponent(one.step)}`, target: "_blank", rel: "noopener noreferrer" },
      name,
    );
    return tableRow(link, String(one.number), decimal(one.mean_forgetting), one.committed.slice(0, 19).replace("T", " "));
  });
  byId("done")
    .querySelector("tbody")
    .replaceChildren(...rows);
}

const say = (id, text) => {
  const place = byId(id);
  if (place.textContent !== text) place.textContent = text;
  place.hidden = !text;
};

let shownLast = {};
function show(state) {
  const changed = (name) => JSON.stringify(state[name]) !== JSON.stringify(shownLast[name]);
  const silent = state.silent.length
    ? ` ${state.silent.length} ${state.silent.length === 1 ? "has" : "have"} fallen silent or stopped.`
    : "";
  say(
    "now",
    (state.alive ? `${state.alive} step${state.alive === 1 ? " is" : "s are"} running.` : "Nothing is running.") + silent,
  );
  say("lost", state.lost && `${state.lost} This page goes on looking for it.`);
  fillSteps([...state.running, ...state.silent]);
  if (changed("more")) fillList(byId("more"), state.more);
  if (changed("finished")) fillFinished(state.finished);
  if (changed("problems")) fillList(byId("problems"), state.problems);
  shownLast = state;
  document.title = `${state.alive} running · forgetscope`;
}

// ---- Asking: a question at a time, none while nobody looks; what is not answered is asked again

let tag = "",
  good = new Date(),
  asking = false,
  nextTime;

const REFUSED = "This address is no longer good: forgetscope watch was started anew. Open the address that it printed then.";
const failure = (error) =>
  error === 403 || error === 404
    ? REFUSED
    : typeof error === "number"
      ? `forgetscope watch could not look (${error}); its terminal says why. This page asks again.`
      : "forgetscope watch gives no answer: it has ended, or its machine is out of reach. This page asks again.";

async function ask() {
  if (asking) return;
  asking = true;
  clearTimeout(nextTime);
  try {
    const headers = tag ? { "If-None-Match": tag } : {};
    const answer = await fetch("state", { headers, cache: "no-store", signal: AbortSignal.timeout(PATIENT) });
    if (answer.status !== 304) {
      if (!answer.ok) throw answer.status;
      const state = await answer.json();
      tag = answer.headers.get("ETag") ?? "";
      show(state);
    }
    good = new Date();
    say("stale", "");
  } catch (error) {
    say("stale", `Not up to date since ${good.toLocaleTimeString()}. ${failure(error)}`);
    document.title = "not up to date · forgetscope";
    tag = "";
  }
  asking = false;
  if (!document.hidden) nextTime = setTimeout(ask, every);
}

document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(nextTime) : ask()));
onNewLook(() => {
  for (const card of cards.values()) {
    fillCharts(card, card.step);
    choose(card);
  }
});
ask();
