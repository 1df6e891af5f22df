// Tables: a row per estimate, sortable, with intervals drawn and the paper's values beside ours.

const KEYS = {
  benchmark: "Benchmark",
  policy: "Policy",
  subset: "Step",
  kept: "Kept",
  rehearsal_pct: "Retained %",
  class_pct: "Increment %",
  quantity: "Quantity",
  statistic: "Statistic",
  factor: "Factor",
  response: "Response",
};
const NOTHING = new Set([null, undefined, "", "nan"]);
const WIDE = new Set(["sentence", "what", "claim"]);
const NAMES = {
  all_coefficients: "all coefficients",
  rehearsal: "retention",
  classes: "increment",
  "2_10_20": "2 (10, 20\u202f%)",
};

const word = (value) =>
  NAMES[value] ?? String(value).replace(/^(\d+)_(.*)$/, (_, step, levels) => `${step} (${levels.replace(/_/g, ", ")}\u202f%)`);
const probability = (p) => (p !== null && p < 0.001 ? minus(p.toExponential(1)) : decimal(p, 3));

// What a table shows: {name, text: row -> text or node, value: row -> what it is sorted by, left: whether it is text}.
function shownColumns(columns, data, paper) {
  // show: from a value, and its row, to a text or node.
  const column = (name, values, show, left = false) => ({
    name,
    value: (i) => values[i],
    text: (i) => show(values[i], i),
    left,
  });
  const ends = (of, name, i) => [of[`${name}_lo`]?.[i] ?? null, of[`${name}_hi`]?.[i] ?? null];
  const number = (title, name, text = decimal) => column(title, columns[name], (value) => text(value));
  const estimated = (title, name, of = columns) =>
    column(title, of[name], (value, i) => {
      const [low, high] = ends(of, name, i);
      const beside = low === null ? [] : [element("small", { textContent: ` ${interval(low, high)}` })];
      return element("span", { textContent: decimal(value) }, ...beside);
    });
  const bar = (title, name, rangeOf) =>
    column(title, columns[name], (value, i) =>
      intervalBar(value, ...ends(columns, name, i), rangeOf(i), paper?.paper[i] ?? null, columns.by_noise?.[i] ?? null),
    );
  const keys = Object.keys(KEYS).filter(
    (key) => columns[key]?.some((value) => value !== "") && (key === "benchmark" || distinct(columns[key]).length > 1),
  );
  const shown = keys.map((key) => column(KEYS[key], columns[key], word, true));
  if (data.layout === "anova") {
    shown.push(
      number("F", "F"),
      number("p", "p", probability),
      number("p, Holm", "p_holm", probability),
      number("Partial η²", "eta2p"),
      bar("0 to 1", "eta2p", () => [0, 1]),
    );
  } else if (data.layout === "policies") {
    const ranges = {};
    for (const quantity of distinct(columns.quantity)) {
      const own = (name) => columns[name].filter((_, i) => columns.quantity[i] === quantity);
      ranges[quantity] = span([0, ...["difference", "difference_lo", "difference_hi"].flatMap(own)]);
    }
    shown.push(
      number("Mean", "mean", (value) => decimal(value, 3)),
      number("Difference", "difference", (value) => decimal(value, 3)),
      bar("Difference, 95\u202f% interval", "difference", (i) => ranges[columns.quantity[i]]),
      number("Pairs", "n", String),
    );
  } else if (data.layout === "noise") {
    shown.push(
      ...["FG-R", "FG-HG"].flatMap((name) => [number(name, name), number(`${name} by noise`, `${name}_floor`)]),
      estimated("Spread", "spread"),
      estimated("Reliability", "reliability"),
      number("ρ SIC", "SIC_rho"),
      estimated("Ceiling of ρ", "ceiling"),
    );
    if (known(columns.between_runs).length) shown.push(estimated("ρ between runs", "between_runs"));
    shown.push(number("n", "n", String), { ...number("Noise from", "basis", String), left: true });
    return shown;
  } else if (data.layout === "plain") {
    for (const name of Object.keys(columns).filter((name) => !KEYS[name] && name !== "simulated")) {
      const texts = columns[name].some((value) => typeof value === "string");
      const show = (value) => (texts ? (value ?? "") : significant(value));
      shown.push({ ...column(name.replace(/_/g, " "), columns[name], show, texts), wrap: WIDE.has(name) });
    }
    return shown;
  } else {
    const range = span([0, ...columns.mean, ...columns.mean_lo, ...columns.mean_hi, ...(paper?.paper ?? [])]);
    shown.push(
      estimated("Mean", "mean"),
      bar("95\u202f% interval", "mean", () => range),
    );
    if (columns.by_noise) shown.push(number("By noise", "by_noise"));
    if (known(columns.sd).length) shown.push(estimated("SD", "sd"));
  }
  if (data.layout !== "policies") shown.push(number("n", "n", String));
  if (paper) {
    shown.push(
      estimated("Paper", "paper", paper),
      column("Ours \u2212 paper", paper.difference, (value) => decimal(value, 2, true)),
    );
    const overlap = (text) => element("span", { className: text, textContent: text || MISSING });
    if (paper.overlap.some((value) => value)) shown.push(column("Overlap", paper.overlap, overlap));
  }
  return shown;
}

function order(a, b) {
  const rank = (value) => (value === null || value === "" ? 2 : value === "pooled" ? 1 : 0); // what is missing comes last, margins before it
  if (rank(a) !== rank(b)) return { last: rank(a) - rank(b) };
  const [x, y] = [Number(a), Number(b)];
  return { by: rank(a) ? 0 : Number.isNaN(x) || Number.isNaN(y) ? String(a).localeCompare(String(b)) : x - y };
}

function drawTable(box, data, title) {
  const columns = unpacked(data.frame),
    paper = data.paper ? unpacked(data.paper) : null;
  if (!lengthOf(columns))
    return box.replaceChildren(element("p", { className: "empty", textContent: "Nothing in the store belongs here." }));
  const count = lengthOf(columns),
    shown = shownColumns(columns, data, paper).filter(({ value }) =>
      Array.from({ length: count }, (_, i) => value(i)).some((one) => !NOTHING.has(one)),
    );
  const body = element("tbody", {});
  const lines = Array.from({ length: count }, (_, i) =>
    element(
      "tr",
      {},
      ...shown.map((column) =>
        element("td", { className: column.wrap ? "text wrap" : column.left ? "text" : "" }, column.text(i)),
      ),
    ),
  );
  body.append(...lines);
  const heads = shown.map((column) => {
    const head = element(
      "th",
      { scope: "col", className: column.left ? "text" : "" },
      element("button", { type: "button", textContent: column.name }),
    );
    head.firstChild.onclick = () => {
      const direction = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
      const places = lines
        .map((_, i) => i)
        .sort((i, k) => {
          const { last, by } = order(column.value(i), column.value(k));
          return last ?? direction * by;
        });
      body.append(...places.map((i) => lines[i]));
    };
    return head;
  });
  const table = element(
    "table",
    {},
    element("caption", { className: "unseen", textContent: title }),
    element("thead", {}, element("tr", {}, ...heads)),
    body,
  );
  box.replaceChildren(
    element("div", { className: "scroll tall", tabIndex: 0, attributes: { role: "region", "aria-label": title } }, table),
  );
}
