// The explorer: classes as points, and everything about the one that is chosen.

const LISTED = 400; // classes in the list beside the points, at most

const sheets = {};
// The images of a data set, decoded once; null where the page has none.
function sheetOf(position) {
  sheets[position] ??= (async () => {
    const source = byId(`sheet-${position}`);
    if (!source) return null;
    const image = new Image();
    image.src = `data:image/webp;base64,${source.textContent}`;
    await image.decode();
    return image;
  })();
  return sheets[position];
}

// Draws one image of a sheet once it is decoded; `place` counts line by line.
function picture(data, position, place, label, size = 48) {
  const canvas = element("canvas", {
    width: data.side,
    height: data.side,
    attributes: label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" },
  });
  canvas.style.width = canvas.style.height = `${size}px`;
  sheetOf(position).then((image) => {
    const left = (place % data.columns) * data.side,
      top = Math.floor(place / data.columns) * data.side;
    if (image) canvas.getContext("2d").drawImage(image, left, top, data.side, data.side, 0, 0, data.side, data.side);
  });
  return canvas;
}

// A list of bars: [name, value, text]; lengths relative to the largest.
function bars(rows) {
  const most = Math.max(...rows.map(([, value]) => Math.abs(value ?? 0)), 1e-12);
  return element(
    "dl",
    { className: "bars" },
    ...rows.flatMap(([name, value, text]) => {
      const fill = element("i", { className: value < 0 ? "minus" : "" });
      fill.style.width = `${(100 * Math.abs(value ?? 0)) / most}%`;
      return [
        element("dt", { textContent: name, title: name }),
        element("dd", {}, element("span", { className: "track" }, fill), element("span", { textContent: text })),
      ];
    }),
  );
}

// The image that stands for a class, or null where the page has none.
function thumbnail(data, position, id) {
  const own = data[position];
  return own?.thumbnails && id in own.thumbnails ? picture(own, position, own.thumbnails[id], null, 64) : null;
}

async function startExplorer() {
  const { groups, data, measures } = await pack("explorer");
  const view = { group: 0, cell: 0, run: "0", measure: "sic", chosen: null };
  let runs = []; // of the partition in view
  const nameOf = (one, id) => data[one.data].names[id] ?? `class ${id}`;
  const cellName = (cell) =>
    `step ${cell.step}` + (cell.retention ? `, ${share(cell.retention)} kept, +${share(cell.increment)} new` : "");
  const members = () => (view.run === "all" ? runs : [runs[Number(view.run)]]);
  // [run, position of the class in it], most forgotten first
  const points = () =>
    members()
      .flatMap((one) => one.classes.map((_, i) => [one, i]))
      .sort(([a, i], [b, k]) => (b.forgetting[k] ?? -9) - (a.forgetting[i] ?? -9));

  const group = chooser(
    "Benchmark",
    groups.map((one, i) => [i, policyOf(one) || "this experiment"]),
    (value) => open(Number(value), 0),
  );
  const part = chooser(groups.some((one) => one.benchmark) ? "Partition" : "Step", [], (value) =>
    open(view.group, Number(value)),
  );
  const run = chooser("Experiment", [], (value) => {
    view.run = value;
    show();
  });
  const measure = chooser("Coefficient", Object.entries(measures), (value) => {
    view.measure = value;
    show();
  });

  // Reads the steps of a partition, then shows the first.
  async function open(at, number) {
    Object.assign(view, { group: at, cell: number, run: "0" });
    const { cells } = groups[at],
      found = await pack(`runs-${cells[number].runs}`);
    if (view.group !== at || view.cell !== number) return; // another was chosen meanwhile
    runs = found;
    part.list.fill(cells.map((one, i) => [i, cellName(one)]));
    part.list.value = number;
    run.list.fill([
      ...runs.map((one, i) => [i, `${one.id.slice(0, 8)}${one.detail ? ", in detail" : ""}`]),
      ...(runs.length > 1 ? [["all", "all together"]] : []),
    ]);
    show();
  }

  function show() {
    view.chosen = null;
    byId("class").replaceChildren(element("p", { className: "empty", textContent: "No class is chosen yet." }));
    drawList(); // before the points, which may wait for Plotly
    drawPoints();
  }

  async function drawPoints() {
    const box = byId("scatter"),
      look = theme(),
      shown = points().filter(([one, i]) => one.forgetting[i] !== null && one[view.measure][i] !== null);
    if (!shown.length) return leaveEmpty(box, "Nothing was measured here.");
    const chosen = ([one, i]) => view.chosen && view.chosen[0] === one && view.chosen[1] === i;
    const few = shown.length <= 24;
    const trace = {
      x: shown.map(([one, i]) => one[view.measure][i]),
      y: shown.map(([one, i]) => one.forgetting[i]),
      type: "scatter",
      mode: few ? "markers+text" : "markers",
      hoverinfo: "none",
      text: shown.map(([one, i]) => plain(shorten(nameOf(one, one.classes[i]), 12))),
      textposition: "top center",
      textfont: { size: 10.5, color: look.muted },
      cliponaxis: false,
      marker: {
        size: shown.map((one) => (chosen(one) ? 15 : shown.length > 200 ? 5 : 9)),
        color: look.one,
        opacity: 0.8,
        line: {
          color: shown.map((one) => (chosen(one) ? look.ink : look.surface)),
          width: shown.map((one) => (chosen(one) ? 3 : 1)),
        },
      },
    };
    await draw(box, [trace], {
      width: box.clientWidth,
      height: 440,
      xaxis: axis(look, measures[view.measure]),
      yaxis: axis(look, "Forgetting"),
    });
    tell(
      box,
      ({ pointNumber }) => {
        const [one, i] = shown[pointNumber],
          id = one.classes[i];
        const rows = [
          ["Forgetting", decimal(one.forgetting[i])],
          [measures[view.measure], significant(one[view.measure][i])],
          ["Accuracy", `${percent(one.accuracy_when_learned[i])} \u2192 ${percent(one.accuracy[i])}`],
        ];
        return [nameOf(one, id), rows, thumbnail(data, one.data, id)];
      },
      { onclick: ({ pointNumber }) => choose(...shown[pointNumber]) },
    );
  }

  function drawList() {
    const heads = ["Class", "Forgetting", "Learned", "Now", measures[view.measure]];
    const all = points(),
      lines = all.slice(0, LISTED).map(([one, i]) => {
        const name = nameOf(one, one.classes[i]),
          line = tableRow(
            element("button", { type: "button", textContent: name, title: name, onclick: () => choose(one, i) }),
            decimal(one.forgetting[i]),
            percent(one.accuracy_when_learned[i]),
            percent(one.accuracy[i]),
            significant(one[view.measure][i]),
          );
        line.shows = [one, i];
        return line;
      });
    const cut = `The ${LISTED} most forgotten of ${all.length}; choose an experiment to see all of its classes.`;
    const foot = element("tfoot", {}, element("tr", {}, element("td", { colSpan: heads.length, textContent: cut })));
    byId("classes").replaceChildren(
      tableHead(...heads),
      element("tbody", {}, ...lines),
      ...(all.length > LISTED ? [foot] : []),
    );
  }

  function choose(one, i) {
    hideTooltip();
    view.chosen = [one, i];
    for (const line of byId("classes").tBodies[0].rows)
      line.classList.toggle("lit", line.shows[0] === one && line.shows[1] === i);
    drawPoints();
    drawClass(one, i);
    const box = byId("class"),
      calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (box.getBoundingClientRect().top > innerHeight - 120) box.scrollIntoView({ behavior: calm ? "auto" : "smooth" });
  }

  function drawClass(one, i) {
    const id = one.classes[i],
      name = nameOf(one, id),
      image = thumbnail(data, one.data, id),
      box = byId("class");
    const facts = [
      ["Forgetting", one.forgetting[i], decimal],
      ["Accuracy when learned", one.accuracy_when_learned[i], percent],
      ["Accuracy now", one.accuracy[i], percent],
      ...Object.entries(measures).map(([key, label]) => [label, one[key][i], significant]),
    ];
    const cards = element(
      "dl",
      { className: "facts" },
      ...facts.map(([label, value, text]) =>
        element("div", {}, element("dt", { textContent: label }), element("dd", { textContent: text(value) })),
      ),
    );
    const heading = element("div", { className: "chosen" }, ...(image ? [image] : []), element("h3", { textContent: name }));
    const reason = one.missing?.[i] ? [element("p", { className: "how", textContent: one.missing[i] })] : [];
    box.replaceChildren(heading, cards, ...reason);
    if (!one.detail) {
      const command = element("code", { textContent: `forgetscope report STORE --experiment ${one.id.slice(0, 12)}` });
      const why = "This page has trajectories and images of five experiments per partition; for this one: ";
      box.append(element("p", { className: "how" }, why, command));
      return;
    }
    const detail = one.detail,
      part = (title, ...content) => element("div", {}, element("h4", { textContent: title }), ...content),
      none = (text) => element("p", { className: "how", textContent: text }),
      listed = (rows, otherwise) => (rows.length ? bars(rows) : none(otherwise));
    const curves = element("div", {
      className: "chart",
      attributes: { role: "img", "aria-label": `Coefficients of ${name} along training` },
    });
    const kind = (source) => (source === id ? "SIC, itself" : detail.new.includes(source) ? "NIC, new" : "CIC, past");
    const signed = (term) => (term > 0 ? "+" : "") + significant(term);
    const steps = detail.accuracies[i].map((value, step) => [`step ${step + 1}`, value, percent(value)]);
    const shown = detail.rehearsal[i] ?? [],
      images = shown.map((place, k) => picture(data[one.data], one.data, place, `rehearsal image ${k + 1} of ${name}`));
    box.append(
      element(
        "div",
        { className: "columns" },
        part("Accuracy after every step", bars(steps.filter(([, value]) => value !== null))),
        part(
          "Who interfered with it most",
          listed(
            detail.sources[i].map(([source, term]) => [`${nameOf(one, source)} (${kind(source)})`, term, signed(term)]),
            "Interference was not measured.",
          ),
        ),
        part(
          "Now taken for",
          listed(
            detail.confusions[i].map(([other, value]) => [nameOf(one, other), value, percent(value)]),
            "None of its test images is taken for another class.",
          ),
        ),
      ),
      part(
        `Rehearsal images: ${detail.rehearsed[i]} kept${shown.length ? `, the first ${shown.length} in order of selection` : ""}`,
        shown.length
          ? element("div", { className: "images" }, ...images)
          : none("The data set is not at hand, or was only simulated, so there are no images."),
      ),
      part(
        "Coefficients summed so far, by iteration",
        detail.iterations.length ? curves : none("Interference was not measured."),
      ),
    );
    redraws.set(box, () => drawCurves(curves, detail, i));
    if (detail.iterations.length) drawCurves(curves, detail, i);
  }

  function drawCurves(box, detail, i) {
    const look = theme(),
      names = ["sic", "cic", "nic", "all_nic"],
      wide = box.clientWidth > 700,
      n = names.length;
    const layout = {
      width: box.clientWidth,
      height: wide ? 250 : 560,
      margin: { l: 50, r: 12, t: 26, b: 44 },
      annotations: [],
    };
    const traces = names.map((name, k) => {
      const across = wide ? [k / n + (k ? 0.045 : 0), (k + 1) / n] : [k % 2 ? 0.56 : 0, k % 2 ? 1 : 0.46],
        up = wide ? [0, 1] : k < 2 ? [0.58, 1] : [0, 0.42],
        { colour, dash } = series(look, k);
      const [x, y] = [axisOf("x", k), axisOf("y", k)];
      layout[axisName("x", k)] = axis(look, "", { domain: across, anchor: y, nticks: 4 });
      layout[axisName("y", k)] = axis(look, "", { domain: up, anchor: x, nticks: 5, zeroline: true, automargin: false });
      layout.annotations.push(panelTitle(look, measures[name], across[0], up[1]));
      return {
        x: detail.iterations,
        y: detail[name][i],
        type: "scatter",
        mode: "lines",
        line: { color: colour, dash, width: 2.2 },
        xaxis: x,
        yaxis: y,
        hovertemplate: `${measures[name]} %{y:.3g} at iteration %{x}<extra></extra>`,
      };
    });
    return draw(box, traces, layout);
  }

  const first = groups.findIndex((one) => one.cells.length);
  if (first < 0) return leaveEmpty(byId("scatter"), "No step has past classes.");
  byId("explorer-controls").append(
    ...(groups.length > 1 ? [group.box] : []),
    part.box,
    ...(groups.some((one) => one.benchmark) ? [run.box] : []),
    measure.box,
  );
  group.list.value = first;
  await open(first, 0);
  redraws.set(byId("scatter"), drawPoints);
}
