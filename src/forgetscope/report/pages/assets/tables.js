// Tables: a row per estimate, sortable, with intervals drawn and the paper's values beside ours.

const KEYS = {
  benchmark: "Benchmark",
  policy: "Policy",
  subset: "Step",
  rehearsal_pct: "Retained %",
  class_pct: "Increment %",
  quantity: "Quantity",
  statistic: "Statistic",
  factor: "Factor",
  response: "Response",
};
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

function span(columns, names, least = []) {
  const values = known([...names.flatMap((name) => columns[name] ?? []), ...least]);
  const [low, high] = [Math.min(...values), Math.max(...values)],
    pad = 0.04 * (high - low || 1);
  return [low - pad, high + pad];
}

// What a table shows: {name, text: row -> text or node, value: row -> what it is sorted by, left: whether it is text}.
function shownColumns(columns, data, paper) {
  const column = (name, value, text, left = false) => ({ name, value, text, left });
  const keys = Object.keys(KEYS).filter(
    (key) =>
      columns[key] && columns[key].some((value) => value !== "") && (key === "benchmark" || distinct(columns[key]).length > 1),
  );
  const shown = keys.map((key) =>
    column(
      KEYS[key],
      (i) => columns[key][i],
      (i) => word(columns[key][i]),
      true,
    ),
  );
  const bar = (name, range) =>
    column(
      "95\u202f% interval",
      (i) => columns[name][i],
      (i) =>
        intervalBar(
          columns[name][i],
          columns[`${name}_lo`]?.[i] ?? null,
          columns[`${name}_hi`]?.[i] ?? null,
          range,
          paper?.paper[i] ?? null,
        ),
    );
  const between = (value, low, high) =>
    element(
      "span",
      { textContent: decimal(value) },
      ...(low === null ? [] : [element("small", { textContent: ` ${interval(low, high)}` })]),
    );
  const number = (title, name, text = decimal) =>
    column(
      title,
      (i) => columns[name][i],
      (i) => text(columns[name][i]),
    );
  if (data.layout === "anova") {
    shown.push(
      number("F", "F"),
      number("p", "p", probability),
      number("p, Holm", "p_holm", probability),
      number("Partial η²", "eta2p"),
      { ...bar("eta2p", [0, 1]), name: "0 to 1" },
    );
  } else if (data.layout === "policies") {
    shown.push(
      number("Mean", "mean", (value) => decimal(value, 3)),
      number("Difference", "difference", (value) => decimal(value, 3)),
    );
    const ranges = Object.fromEntries(
      distinct(columns.quantity).map((quantity) => {
        const own = columns.quantity.map((other, i) => (other === quantity ? i : -1)).filter((i) => i >= 0);
        return [
          quantity,
          span(
            { d: own.flatMap((i) => [columns.difference[i], columns.difference_lo[i], columns.difference_hi[i]]) },
            ["d"],
            [0],
          ),
        ];
      }),
    );
    shown.push(
      column(
        "Difference, 95\u202f% interval",
        (i) => columns.difference[i],
        (i) =>
          intervalBar(columns.difference[i], columns.difference_lo[i], columns.difference_hi[i], ranges[columns.quantity[i]]),
      ),
      number("Pairs", "n", String),
    );
  } else if (data.layout === "noise") {
    const estimate = (title, name) =>
      column(
        title,
        (i) => columns[name][i],
        (i) => between(columns[name][i], columns[`${name}_lo`][i], columns[`${name}_hi`][i]),
      );
    shown.push(
      ...["FG-R", "FG-HG"].flatMap((name) => [number(name, name), number(`${name} by noise`, `${name}_floor`)]),
      estimate("Spread", "spread"),
      estimate("Reliability", "reliability"),
      number("ρ SIC", "SIC_rho"),
      estimate("Ceiling of ρ", "ceiling"),
    );
    if (known(columns.between_runs).length) shown.push(estimate("ρ between runs", "between_runs"));
    shown.push(
      number("n", "n", String),
      column(
        "Noise from",
        (i) => columns.basis[i],
        (i) => columns.basis[i],
        true,
      ),
    );
    return shown;
  } else if (data.layout === "plain") {
    for (const name of Object.keys(columns).filter((name) => !KEYS[name] && name !== "simulated")) {
      const texts = columns[name].some((value) => typeof value === "string");
      shown.push({
        ...column(
          name.replace(/_/g, " "),
          (i) => columns[name][i],
          (i) => (texts ? (columns[name][i] ?? "") : significant(columns[name][i])),
          texts,
        ),
        wrap: WIDE.has(name),
      });
    }
    return shown;
  } else {
    const range = span({ ...columns, paper: paper?.paper ?? [] }, ["mean", "mean_lo", "mean_hi", "paper"], [0]);
    shown.push(
      column(
        "Mean",
        (i) => columns.mean[i],
        (i) => between(columns.mean[i], columns.mean_lo[i], columns.mean_hi[i]),
      ),
      bar("mean", range),
    );
    if (known(columns.sd).length)
      shown.push(
        column(
          "SD",
          (i) => columns.sd[i],
          (i) => between(columns.sd[i], columns.sd_lo[i], columns.sd_hi[i]),
        ),
      );
  }
  if (data.layout !== "policies") shown.push(number("n", "n", String));
  if (paper) {
    shown.push(
      column(
        "Paper",
        (i) => paper.paper[i],
        (i) => between(paper.paper[i], paper.paper_lo[i], paper.paper_hi[i]),
      ),
      column(
        "Ours \u2212 paper",
        (i) => paper.difference[i],
        (i) => decimal(paper.difference[i], 2, true),
      ),
    );
    if (paper.overlap.some((value) => value))
      shown.push(
        column(
          "Overlap",
          (i) => paper.overlap[i],
          (i) => element("span", { className: paper.overlap[i], textContent: paper.overlap[i] || MISSING }),
        ),
      );
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
  const shown = shownColumns(columns, data, paper);
  const body = element("tbody", {});
  const lines = Array.from({ length: lengthOf(columns) }, (_, i) =>
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
