// Early warning: what would have been flagged after a share of training, and what became of it.

async function startWarning() {
  const { flagged, measured } = await pack("warning");
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
  const view = { share: 0.25 };
  const groups = distinct(rows.map(policyOf));
  const steps = () => distinct(rows.filter((row) => policyOf(row) === view.group).map((row) => row.step_id));
  const told = (id) => {
    const row = rows.find((one) => one.step_id === id);
    return `step ${row.subset}, ${share(row.rehearsal_pct)} kept, +${share(row.class_pct)} new, ${row.step_id.slice(0, 8)}`;
  };

  const slider = element("input", { type: "range", min: 0, step: 1, id: "share" }),
    output = element("output", { htmlFor: "share" });
  slider.oninput = () => {
    view.share = shares[slider.value];
    show();
  };
  const group = chooser("Benchmark", groups, (value) => {
    view.group = value;
    refill();
    show();
  });
  const step = chooser("Experiment", [], (value) => {
    view.step = value;
    refit();
    show();
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
      (missed.length ? `, which also holds ${missed.map((row) => row.class_name).join(", ")}.` : ".");
    const range = span([0, ...own.map((row) => row.forgetting)]);
    const line = (row) => {
      const hit = row.hit === "True" ? "yes" : "no";
      return tableRow(
        row.class_name,
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
    const framed = (title, text, one) =>
      element(
        "div",
        { className: "card body" },
        element("h3", { textContent: title }),
        element("p", { className: "how", textContent: text }),
        element("div", { className: "scroll", tabIndex: 0, attributes: { role: "region", "aria-label": title } }, one),
      );
    body.replaceChildren(
      framed("In this experiment", sentence, table),
      ...(over.length
        ? [
            framed(
              `Step ${first.subset} of all experiments of ${policyOf(first)}`,
              "Share of flagged classes that belong to the most forgotten quarter; chance is 0.25, or 0.5 for the area under the curve.",
              summary,
            ),
          ]
        : []),
    );
  }

  view.group = groups[0];
  refill();
  show();
}
