// Early warning: what would have been flagged after a share of training, and what became of it.
//
// What is chosen is kept in the address and restored from it: `experiment`, as the explorer has it, and `share`.

let followWarning; // what it does with the address, once it was started

async function startWarning() {
  const { flagged, measured } = await pack("warning"),
    { groups: places } = await pack("explorer"); // which names experiments
  const names = new Map(places.flatMap(({ cells }) => cells.flatMap(({ experiments }) => experiments)));
  const rows = rowsOf(unpacked(flagged)),
    quality = rowsOf(unpacked(measured)).filter((row) => row.group === "most forgotten quarter" && row.precision !== null);
  const body = byId("warning-body");
  if (!rows.length)
    return body.replaceChildren(
      element("p", {
        className: "lead",
        textContent: "No step was measured along training with enough past classes, so nothing could have been flagged.",
      }),
    );
  let shares = [];
  const chart = chartBox(
      "Predicted against final forgetting of every past class; the table below names those that would be flagged",
    ),
    picture = element("div", {}, chart);
  picture.append(
    chartTools(chart, {
      name: () => `early-warning-${view.step.slice(0, 8)}`,
      title: "Predicted against final forgetting",
      columns: async () => {
        const own = rows.filter((row) => row.step_id === view.step);
        return Object.fromEntries(Object.keys(own[0]).map((name) => [name, own.map((row) => row[name])]));
      },
    }),
  );
  const view = { share: 0.25 };
  const groups = distinct(rows.map(policyOf));
  const steps = () => distinct(rows.filter((row) => policyOf(row) === view.group).map((row) => row.step_id));
  const told = (id) => {
    const row = rows.find((one) => one.step_id === id);
    const own = [names.get(id.slice(0, 8)), id.slice(0, 8)].filter(Boolean).join(" \u00b7 ");
    return `step ${row.subset}, ${share(row.rehearsal_pct)} kept, +${share(row.class_pct)} new, ${own}`;
  };

  const slider = element("input", { type: "range", min: 0, step: 1, id: "share" }),
    output = element("output", { htmlFor: "share" });
  slider.oninput = () => {
    view.share = shares[slider.value];
    show();
    tellAddress({ ongoing: "share" });
  };
  const group = chooser("Benchmark", groups, (value) => {
    view.group = value;
    refill();
    show();
    tellAddress();
  });
  const step = chooser("Experiment", [], (value) => {
    view.step = value;
    refit();
    show();
    tellAddress();
  });
  byId("warning-controls").append(
    element("label", {}, "Share of training seen", slider),
    output,
    ...(groups.length > 1 ? [group.box] : []),
    step.box,
  );

  function refill() {
    step.list.fill(steps().map((id) => [id, told(id)]));
    view.step = step.list.value;
    refit();
  }

  // Where the experiment in the explorer was, is another place than where this one is.
  function tellAddress(manner) {
    const { experiment } = readState(),
      moved = experiment && view.step.startsWith(experiment) ? {} : { step: null, kept: null, new: null, all: null };
    writeState({ ...moved, experiment: view.step.slice(0, 8), share: view.share }, undefined, manner);
  }

  // An experiment that was not measured along training is none to choose: what is in view stays.
  function restore() {
    const { experiment, share: wanted } = readState(),
      found = experiment && rows.find((row) => row.step_id.startsWith(experiment));
    if (wanted && Number.isFinite(Number(wanted))) view.share = Number(wanted);
    if (found) {
      view.group = group.list.value = policyOf(found);
      step.list.fill(steps().map((id) => [id, told(id)]));
      view.step = step.list.value = found.step_id;
    }
    refit();
    show();
  }

  function refit() {
    // shares differ with how often a benchmark was probed: stay as near as possible
    shares = distinct(rows.filter((row) => row.step_id === view.step).map((row) => row.share));
    view.share = shares.reduce((near, one) => (Math.abs(one - view.share) < Math.abs(near - view.share) ? one : near));
    slider.max = shares.length - 1;
    slider.value = shares.indexOf(view.share);
  }

  function show() {
    const own = rows.filter((row) => row.step_id === view.step && row.share === view.share).sort((a, b) => b.score - a.score);
    const flags = own.filter((row) => row.flagged === "True"),
      right = flags.filter((row) => row.hit === "True"),
      missed = own.filter((row) => row.hit === "True" && row.flagged !== "True");
    const predictor =
      own[0]?.predictor === "all_coefficients"
        ? "forgetting predicted by all coefficients"
        : "SIC so far (too few steps for the joint model)";
    const { moment } = own[0];
    output.textContent = moment;
    slider.setAttribute("aria-valuetext", moment);
    const sentence =
      `${moment[0].toUpperCase()}${moment.slice(1)}, ${flags.length} of ${own.length} past classes would have been flagged; ${right.length} of them ended in the most forgotten quarter` +
      (missed.length ? `, which ${right.length ? "also " : ""}holds ${missed.map((row) => row.class_name).join(", ")}.` : ".");
    const range = span([0, ...own.map((row) => row.forgetting)]);
    const line = (row) => {
      const hit = row.hit === "True" ? "yes" : "no";
      const href = addressOf({ experiment: row.step_id.slice(0, 8), class: row.class_id }, "explorer");
      return tableRow(
        element("a", { textContent: row.class_name, href }),
        significant(row.score),
        [intervalBar(row.forgetting, null, null, range), ` ${decimal(row.forgetting)}`],
        element("span", { className: hit, textContent: hit }),
      );
    };
    const table = element(
      "table",
      {},
      tableHead("Flagged class", `Score: ${predictor}`, "Forgetting in the end", "Among the most forgotten quarter"),
      element("tbody", {}, ...flags.map(line)),
    );
    const first = rows.find((row) => row.step_id === view.step),
      over = quality.filter(
        (row) => policyOf(row) === policyOf(first) && row.subset === first.subset && row.share === view.share,
      );
    const summary = element(
      "table",
      {},
      tableHead("Ranked by", "Flagged rightly", "95\u202f% interval", "Area under the ROC curve", "Steps"),
      element(
        "tbody",
        {},
        ...over.map((row) =>
          tableRow(
            word(row.predictor),
            estimate(row.precision, row.precision_lo, row.precision_hi),
            intervalBar(row.precision, row.precision_lo, row.precision_hi, [0, 1]),
            estimate(row.auc, row.auc_lo, row.auc_hi),
            row.n,
          ),
        ),
      ),
    );
    const framed = (title, text, one, ...before) =>
      element(
        "div",
        { className: "card body" },
        element("h3", { textContent: title }),
        element("p", { className: "how", textContent: text }),
        ...before,
        element("div", { className: "scroll", tabIndex: 0, attributes: { role: "region", "aria-label": title } }, one),
      );
    body.replaceChildren(
      framed("In this experiment", sentence, table, picture),
      ...(over.length
        ? [
            framed(
              `Step ${first.subset} of all experiments of ${policyOf(first)}`,
              `Share of flagged classes that belong to the most forgotten quarter; chance is ${decimal(over[0].chance)}, or 0.5 for the area under the curve.`,
              summary,
            ),
          ]
        : []),
    );
    watch();
  }

  // Axes are those of all moments of the step, so that points move and marks do not.
  async function watch() {
    const all = rows.filter((row) => row.step_id === view.step),
      own = all.filter((row) => row.share === view.share),
      [traces, layout] = warningFigure(own, all, paper.printing ? paper.width - 44 : chart.clientWidth);
    await draw(chart, traces, layout);
    const { data, data_of } = await pack("explorer");
    tell(
      chart,
      ({ curveNumber, pointNumber }) => {
        const row = traces[curveNumber].rows[pointNumber];
        const facts = [
          ["Score so far", significant(row.score)],
          ["Forgetting in the end", decimal(row.forgetting)],
          ["Outcome", FATES.find((fate) => fate.holds(row)).name],
        ];
        return [row.class_name, facts, thumbnail(data, data_of[row.benchmark], row.class_id)];
      },
      {
        onclick: ({ curveNumber, pointNumber }) => {
          const row = traces[curveNumber].rows[pointNumber];
          openClass({ experiment: row.step_id, class: row.class_id });
        },
      },
    );
  }

  view.group = groups[0];
  refill();
  restore();
  followWarning = restore;
  addEventListener("hashchange", () => {
    if (openedId() === "warning") restore();
  });
  redraws.set(chart, watch);
}

// What becomes of a class; colours and shapes both tell.
const FATES = [
  {
    name: "flagged, and rightly",
    colour: "two",
    symbol: "circle",
    holds: (row) => row.flagged === "True" && row.hit === "True",
  },
  { name: "flagged in vain", colour: "three", symbol: "x", holds: (row) => row.flagged === "True" },
  { name: "missed", colour: "four", symbol: "triangle-up-open", holds: (row) => row.hit === "True" },
  { name: "neither", colour: "unknown", symbol: "circle-open", holds: () => true },
];

function warningFigure(own, all, width) {
  const look = theme(),
    known = own.filter((row) => row.score !== null && row.forgetting !== null),
    narrow = width < 640,
    height = narrow ? 360 : 420,
    margin = { l: 52, r: 12, t: narrow ? 64 : 40, b: 48 };
  const ranges = ["score", "forgetting"].map((name) =>
    span(
      all.map((row) => row[name]).filter((value) => value !== null),
      0.07,
    ),
  );
  const inside = [width - margin.l - margin.r, height - margin.t - margin.b],
    pixels = known.map((row) => [
      (inside[0] * (row.score - ranges[0][0])) / (ranges[0][1] - ranges[0][0]),
      (inside[1] * (ranges[1][1] - row.forgetting)) / (ranges[1][1] - ranges[1][0]),
    ]),
    names = known.map((row) => shorten(row.class_name, 14)),
    places = placeLabels(look.font, pixels, names, inside);
  const traces = FATES.map((fate) => {
    const found = known.filter((row) => FATES.find((one) => one.holds(row)) === fate),
      at = found.map((row) => known.indexOf(row));
    return {
      x: found.map((row) => row.score),
      y: found.map((row) => row.forgetting),
      rows: found,
      name: fate.name,
      type: "scatter",
      mode: "markers+text",
      hoverinfo: "none",
      cliponaxis: false,
      text: at.map((i) => (places[i] ? plain(names[i]) : "")),
      textposition: at.map((i) => places[i] || "middle right"),
      textfont: { size: 11, color: look.muted },
      marker: { size: 10, color: look[fate.colour], symbol: fate.symbol, line: { width: 2, color: look[fate.colour] } },
    };
  });
  const cuts = [
    ["flagged", "score", "y"],
    ["hit", "forgetting", "x"],
  ].flatMap(([flag, name, other]) => {
    const [inner, outer] = ["True", "False"].map((value) => known.filter((row) => row[flag] === value).map((row) => row[name]));
    if (!inner.length || !outer.length) return [];
    const cut = (Math.min(...inner) + Math.max(...outer)) / 2,
      along = other === "y" ? "x" : "y";
    const line = { color: look.muted, width: 1, dash: "dot" };
    return [
      {
        type: "line",
        [`${along}0`]: cut,
        [`${along}1`]: cut,
        [`${other}ref`]: "paper",
        [`${other}0`]: 0,
        [`${other}1`]: 1,
        line,
      },
    ];
  });
  const told = own[0]?.predictor === "all_coefficients" ? "Predicted forgetting" : "SIC so far";
  return [
    traces,
    {
      width,
      height,
      margin,
      showlegend: true,
      shapes: cuts,
      xaxis: axis(look, `${told}, ${own[0]?.moment ?? ""}`, { range: ranges[0], automargin: false }),
      yaxis: axis(look, "Forgetting in the end", { range: ranges[1], automargin: false }),
    },
  ];
}
