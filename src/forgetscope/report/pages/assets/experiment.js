// Draws the page of one experiment from its JSON document, with what core.js has.
(() => {
  const report = JSON.parse(byId("report").textContent);
  const classOf = (id) => report.classes[id];
  const view = { step: stepOf(readState().step), coefficient: coefficientOf(readState().curves) };
  let look;

  // The step of an address, or the last one.
  function stepOf(number) {
    return report.steps.find(({ step }) => String(step) === number) ?? report.steps[report.steps.length - 1];
  }

  function coefficientOf(name) {
    return report.coefficients.includes(name) ? name : "sic";
  }

  // ---- Words, numbers and colours

  const largest = (values) => Math.max(0, ...known(values).map(Math.abs)) || 1;
  const precision = (limit) => Math.min(5, Math.max(2, 2 - Math.floor(Math.log10(limit)))); // digits that tell such values apart
  const measured = (row, name) => decimal(row[name], precision(largest(view.step.past.map((other) => other[name]))));
  const shortName = (id, length = 16) => shorten(classOf(id).name, length);
  const label = (id, length) => plain(shortName(id, length));

  function readColours() {
    const style = getComputedStyle(document.documentElement);
    const scale = (name) =>
      style
        .getPropertyValue(`--${name}`)
        .trim()
        .split(/\s*,\s*/);
    return { ...theme(), forgetting: scale("forgetting"), interference: scale("interference"), accuracy: scale("accuracy") };
  }

  const colourscale = (colours) => colours.map((colour, i) => [i / (colours.length - 1), colour]);

  // The channels of a colour on a scale; share runs from 0 to 1.
  function mix(colours, share) {
    const position = share * (colours.length - 1),
      i = Math.min(Math.floor(position), colours.length - 2);
    const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
    const [from, to] = [channels(colours[i]), channels(colours[i + 1])];
    return from.map((c, k) => Math.round(c + (position - i) * (to[k] - c)));
  }

  function forgettingColour(fg) {
    if (fg === null) return look.unknown;
    const [low, high] = extent(known(view.step.past.map((row) => row.forgetting)));
    return `rgb(${mix(look.forgetting, high > low ? (fg - low) / (high - low) : 1)})`;
  }

  // Black or white, whichever contrasts more (relative luminance of WCAG).
  function readableOn(channels) {
    const [r, g, b] = channels.map((c) => (c / 255 <= 0.04 ? c / 3294 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#000000" : "#ffffff";
  }

  const thumbnail = (id) => (classOf(id).thumbnail ? [element("img", { src: classOf(id).thumbnail, alt: "" })] : []);

  function drawScale(name, label, colours, low, high) {
    for (const box of document.querySelectorAll(`[data-scale="${name}"]`)) {
      const bar = element("i", {});
      bar.style.background = `linear-gradient(90deg, ${colours.join(",")})`;
      box.replaceChildren(
        element("b", { textContent: label }),
        element("span", { textContent: low }),
        bar,
        element("span", { textContent: high }),
      );
    }
  }

  // ---- Charts: one look, one tooltip, and one class highlighted in all of them

  const highlighters = {}; // chart -> function that marks a class, or none

  function highlight(id) {
    for (const mark of Object.values(highlighters)) mark(id);
  }

  function unmark() {
    if (byId("tooltip").hidden) return;
    hideTooltip();
    highlight(null);
  }

  const chartAxis = (title, more) => axis(look, title, { automargin: false, zerolinewidth: 2, ...more });
  const cellAxis = (more) =>
    chartAxis("", { showgrid: false, zeroline: false, showline: false, tickmode: "array", ticklabelstandoff: 4, ...more });

  const UNSEEN = { x: [null], y: [null], type: "scatter", hoverinfo: "skip" }; // what marks a class, before one is marked
  const heatmap = (z, [zmin, zmax], colours, more = {}) => ({
    z,
    zmin,
    zmax,
    colorscale: colourscale(colours),
    type: "heatmap",
    showscale: false,
    hoverinfo: "none",
    hoverongaps: false,
    xgap: 1,
    ygap: 1,
    ...more,
  });

  // describe: what a hovered point says, as {id, title, rows, images}, or null. Images are class ids, by default the one.
  function plot(box, traces, layout, describe) {
    drawNow(box, traces, layout);
    const told = (point) => {
      const said = describe(point);
      if (!said) return null;
      highlight(said.id);
      return [said.title, said.rows, (said.images ?? [said.id]).flatMap(thumbnail)];
    };
    const opened = (point) => {
      const said = describe(point);
      if (said) openPanel(said.id);
    };
    tell(box, told, { onclick: detailed ? opened : null, onleave: unmark });
  }

  // The panel of a class, in the step that the page shows.
  const detailed = Boolean(byId("class"));
  const panelOf = (id) => ({ step: view.step.step, class: id });
  function openPanel(id) {
    unmark();
    openClass(panelOf(id));
  }
  function linkTo(id, called) {
    const link = element("a", { ...called, href: addressOf(panelOf(id)) });
    link.onclick = (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      openPanel(id);
    };
    return link;
  }

  function leaveOut(box, reason) {
    delete highlighters[box.id];
    leaveEmpty(box, reason);
  }

  const predicted = (row) => estimate(row.forecast, row.forecast_low, row.forecast_high);

  const classFacts = (row, measures) => [
    ["Forgetting", decimal(row.forgetting)],
    ...(report.calibrated ? [[`Forgetting, ${report.calibrated}`, decimal(row.calibrated_forgetting)]] : []),
    ...(report.predicted ? [["Predicted", row.forecast === null ? MISSING : predicted(row)]] : []),
    ["Accuracy when learned", percent(row.accuracy_when_learned)],
    ["Accuracy now", percent(row.accuracy)],
    ...measures.map((name) => [report.measures[name], measured(row, name)]),
  ];

  // ---- The sections

  const RANGE = ["forgetting_range", "range_floor"],
    GAP = ["forgetting_half_gap", "half_gap_floor"];

  function drawCards() {
    const { step } = view,
      whom = step.barely_learned === 1 ? "the one that was" : `those ${step.barely_learned} that were`;
    byId("barely").hidden = !step.barely_learned;
    byId("barely").textContent = step.barely_learned
      ? `Numbers and charts below are of all past classes, also ${whom} barely learned; the sentence above leaves them out.`
      : "";
    const alone = (floor) => (floor === null ? "" : `; ${decimal(floor)} by noise alone`);
    const cards = [
      ["Mean forgetting (FG)", decimal(step.mean_forgetting), "share of accuracy lost, 1 is all of it"],
      ["Range (FG-R)", decimal(step.forgetting_range), `most minus least forgotten class${alone(step.range_floor)}`, RANGE],
      [
        "Half gap (FG-HG)",
        decimal(step.forgetting_half_gap),
        `more minus less forgotten half${alone(step.half_gap_floor)}`,
        GAP,
      ],
      [
        "True spread",
        decimal(step.spread),
        `of forgetting over classes, without the noise of test images; reliability ${decimal(step.reliability)}${step.basis}`,
      ],
      ["Accuracy, all classes", percent(step.accuracy), "test images of every class so far"],
      ["Accuracy, new classes", percent(step.new_accuracy), `classes that step ${step.step} learned`],
    ];
    byId("cards").replaceChildren(
      ...cards.map(([label, value, note, floor]) =>
        element(
          "dl",
          { className: "card" },
          element("dt", { textContent: label }),
          element("dd", { textContent: value }),
          ...(floor === undefined ? [] : noiseBar(step[floor[0]], step[floor[1]])),
          element("dd", { className: "note", textContent: note }),
        ),
      ),
    );
  }

  // What was measured as a dot, and as a band how much of it noise alone would show, from 0 to 1 and further only where it must.
  function noiseBar(value, floor) {
    if (value === null || floor === null) return [];
    const bar = intervalBar(value, 0, floor, [0, Math.max(1, value, floor)]);
    bar.classList.add("noise");
    return [element("dd", { className: "bracket", attributes: { "aria-hidden": "true" } }, bar)];
  }

  function drawPanel(name) {
    const box = byId(`panel-${name}`);
    const rho = view.step.correlations[name];
    byId(`rho-${name}`).textContent =
      rho === null ? "" : `ρ = ${decimal(rho)}${view.step.ceiling === null ? "" : ` (at most ${decimal(view.step.ceiling)})`}`;
    const rows = view.step.past.filter((row) => row.forgetting !== null && row[name] !== null);
    const measured = view.step.past.some((row) => row[name] !== null);
    if (!rows.length)
      return leaveOut(
        box,
        measured
          ? "Measured, but of no class whose forgetting is known: the table has the values."
          : "Not measured in this step.",
      );
    const [x, y] = [rows.map((row) => row[name]), rows.map((row) => row.forgetting)];
    const width = box.clientWidth,
      height = 270,
      margin = { l: 46, r: 12, t: 14, b: 46 };
    const ranges = [span(x, 0.1), span(y, 0.12)];
    const inside = [width - margin.l - margin.r, height - margin.t - margin.b];
    const pixels = rows.map((_, i) => [
      (inside[0] * (x[i] - ranges[0][0])) / (ranges[0][1] - ranges[0][0]),
      (inside[1] * (ranges[1][1] - y[i])) / (ranges[1][1] - ranges[1][0]),
    ]);
    const names = rows.map((row) => shortName(row.id));
    const places = placeLabels(look.font, pixels, names, inside);
    const marker = { size: rows.length > 40 ? 7 : 9, color: y.map(forgettingColour), line: { width: 1, color: look.surface } };
    const points = {
      x,
      y,
      type: "scatter",
      mode: "markers+text",
      marker,
      hoverinfo: "none",
      cliponaxis: false,
      textfont: { size: 11, color: look.muted },
      text: rows.map((row, i) => (places[i] ? label(row.id) : "")),
      textposition: places.map((place) => place || "middle right"),
    };
    const around = { size: 17, color: "transparent", line: { width: 2.5, color: look.accent } };
    const ring = { ...UNSEEN, mode: "markers", cliponaxis: false, marker: around };
    const layout = {
      width,
      height,
      margin,
      xaxis: chartAxis(report.measures[name], { range: ranges[0], nticks: 5 }),
      yaxis: chartAxis("Forgetting", { range: ranges[1], nticks: 5 }),
    };
    plot(box, [points, ring], layout, ({ curveNumber, pointNumber }) => {
      const row = rows[pointNumber];
      return curveNumber === 0 ? { id: row.id, title: classOf(row.id).name, rows: classFacts(row, [name]) } : null;
    });
    highlighters[box.id] = (id) => {
      const row = rows.find((candidate) => candidate.id === id);
      Plotly.restyle(box, { x: [[row ? row[name] : null]], y: [[row ? row.forgetting : null]] }, [1]);
    };
  }

  function drawTable() {
    const body = byId("table").tBodies[0];
    const shown = (value, text, reason) => (value === null ? element("abbr", { textContent: MISSING, title: reason }) : text);
    const lines = view.step.past.map((row) => {
      const unlearned = row.accuracy_when_learned === 0 ? "never learned: its accuracy was 0" : "no test images";
      const fg = [shown(row.forgetting, decimal(row.forgetting), unlearned)];
      if (row.forgetting !== null) {
        const fill = element("i", {});
        fill.style.width = `${100 * Math.min(1, Math.max(0, row.forgetting))}%`;
        fill.style.background = forgettingColour(row.forgetting);
        fg.unshift(element("span", { className: "fg-bar" }, fill));
      }
      const called = { textContent: classOf(row.id).name, title: classOf(row.id).name };
      const name = detailed ? linkTo(row.id, called) : element("span", called);
      const line = tableRow(
        element("div", {}, name, ...thumbnail(row.id)),
        shown(row.accuracy_when_learned, percent(row.accuracy_when_learned), "no test images"),
        shown(row.accuracy, percent(row.accuracy), "no test images"),
        fg,
        ...(report.calibrated ? [shown(row.calibrated_forgetting, decimal(row.calibrated_forgetting), unlearned)] : []),
        ...(report.predicted ? [shown(row.forecast, predicted(row), "nothing is known of it, or it was never learned")] : []),
        ...Object.keys(report.measures).map((one) => shown(row[one], measured(row, one), row.missing ?? "not measured")),
      );
      line.onmouseenter = () => highlight(row.id);
      line.onmouseleave = () => highlight(null);
      return line;
    });
    body.replaceChildren(...lines);
    highlighters.table = (id) => lines.forEach((line, i) => line.classList.toggle("lit", view.step.past[i].id === id));
  }

  function drawBeside() {
    const section = byId("beside"),
      { beside } = view.step;
    if (!section) return;
    section.hidden = !beside;
    if (!beside) return;
    const lines = Object.entries(beside.rows).map(([name, cells]) => tableRow(name, ...cells));
    section.querySelector("tbody").replaceChildren(...lines);
    section.querySelector(".said").replaceChildren(...beside.said.map((text) => element("li", { textContent: text })));
  }

  function drawOwn() {
    const section = byId("own"),
      { own } = view.step;
    if (!section) return;
    section.hidden = !own;
    if (!own) return;
    section.querySelector("tbody").replaceChildren(...own.rows.map((cells) => tableRow(...cells)));
    section.querySelector(".said").textContent = own.said;
  }

  function drawCurves() {
    const box = byId("curves"),
      { past, curves } = view.step,
      measure = report.measures[view.coefficient];
    if (!curves) return leaveOut(box, "Interference was not measured in this step.");
    const values = curves[view.coefficient],
      phone = box.clientWidth < 560;
    const height = phone ? 320 : 440,
      margin = { l: phone ? 44 : 58, r: phone ? 84 : 110, t: 12, b: 48 };
    const lines = past.map((row, i) => ({
      x: curves.iterations,
      y: values[i],
      type: "scatter",
      mode: "lines",
      hoverinfo: "none",
      opacity: past.length > 40 ? 0.75 : 0.95,
      line: {
        width: past.length > 40 ? 1.3 : 2,
        color: forgettingColour(row.forgetting),
        dash: row.forgetting === null ? "dot" : "solid",
      },
    }));
    const mark = { ...UNSEEN, mode: "lines", line: { width: 5, color: look.accent } };
    const drawn = known(values.flat());
    const range = span(drawn.length ? drawn : [0, 1], 0.05);
    const pixel = (height - margin.t - margin.b) / (range[1] - range[0]);
    const ends = [];
    past.forEach((row, i) => {
      const end = values[i][values[i].length - 1];
      if (end !== null && ends.every((other) => Math.abs(other.end - end) * pixel > 14)) ends.push({ row, end });
    });
    const annotations = ends.map(({ row, end }) => ({
      x: 1,
      xref: "paper",
      xanchor: "left",
      xshift: 8,
      y: end,
      showarrow: false,
      text: label(row.id, phone ? 11 : 15),
      font: { size: 11.5, color: look.muted },
    }));
    const layout = {
      width: box.clientWidth,
      height,
      margin,
      annotations,
      hoverdistance: 30,
      xaxis: chartAxis(`${report.counted} of the step`, {
        range: extent(curves.iterations),
        showgrid: false,
        nticks: phone ? 4 : 8,
      }),
      yaxis: chartAxis(`${measure} so far`, { range, nticks: 6 }),
    };
    plot(box, [...lines, mark], layout, ({ curveNumber, x, y }) => {
      const row = past[curveNumber];
      return row
        ? {
            id: row.id,
            title: classOf(row.id).name,
            rows: [
              [`${measure} at ${report.counted.toLowerCase()} ${x}`, decimal(y, precision(largest(drawn)))],
              ...classFacts(row, []),
            ],
          }
        : null;
    });
    highlighters[box.id] = (id) => {
      const i = past.findIndex((row) => row.id === id);
      Plotly.restyle(box, { x: [i < 0 ? [null] : curves.iterations], y: [i < 0 ? [null] : values[i]] }, [past.length]);
    };
  }

  // Labels of a row of cells: every one where there is room, else every second, third, ...
  const thinned = (ids, cell, first = 0) => {
    const every = Math.max(1, Math.ceil(13 / cell));
    const shown = ids.map((_, i) => i).filter((i) => i % every === 0);
    return { tickvals: shown.map((i) => i + first), ticktext: shown.map((i) => label(ids[i], 13)) };
  };
  const labelRoom = (ids) => 16 + 6.6 * Math.max(...ids.map((id) => shortName(id, 13).length));

  function drawMatrix() {
    const box = byId("matrix"),
      { matrix } = view.step;
    if (!matrix) return leaveOut(box, "Interference was not measured in this step.");
    const sources = [...matrix.past, ...matrix.new],
      P = matrix.past.length,
      gap = 0.6;
    const left = labelRoom(matrix.past),
      top = labelRoom(sources) + 26;
    const room = box.parentElement.clientWidth - left - 8;
    const least = paper.printing ? 2 : room < 560 ? 14 : 10; // a sheet cannot be scrolled
    const cell = Math.min(40, Math.max(least, room / (sources.length + gap)));
    const at = sources.map((_, i) => (i < P ? i : i + gap));
    const blocks = [
      ["sic", "SIC: itself (diagonal)", 0, P, (r, c) => r === c],
      ["cic", "CIC: other past classes", 0, P, (r, c) => r !== c],
      ["nic", "NIC: new classes", P, sources.length, () => true],
    ];
    const traces = blocks.map(([name, label, from, to, belongs]) => {
      const z = matrix.terms.map((row, r) => row.slice(from, to).map((term, c) => (belongs(r, c) ? term : null)));
      const limit = largest(z.flat()),
        digits = precision(limit);
      drawScale(name, label, look.interference, decimal(-limit, digits), decimal(limit, digits, true));
      return heatmap(z, [-limit, limit], look.interference, { x: at.slice(from, to), y: matrix.past.map((_, i) => i) });
    });
    const title = (text, x) => ({
      text,
      x,
      y: 1,
      yref: "paper",
      yshift: top - 12,
      xanchor: "left",
      showarrow: false,
      font: { size: 12, color: look.muted },
    });
    const past = thinned(matrix.past, cell),
      fresh = thinned(matrix.new, cell, P + gap);
    const ticks = { tickvals: [...past.tickvals, ...fresh.tickvals], ticktext: [...past.ticktext, ...fresh.ticktext] };
    const columns = sources.length + gap,
      right = Math.max(8, 100 - cell * matrix.new.length); // room for the title of few columns
    const layout = {
      width: left + right + cell * columns,
      height: top + 8 + cell * P,
      margin: { l: left, r: right, t: top, b: 8 },
      annotations: [title("from past classes", -0.5), title("from new classes", P + gap - 0.5)],
      xaxis: cellAxis({ range: [-0.5, columns - 0.5], side: "top", tickangle: -90, ...ticks }),
      yaxis: cellAxis({ range: [P - 0.5, -0.5], ...past }),
    };
    plot(box, traces, layout, ({ x, y, z, curveNumber }) => {
      const source = sources[at.indexOf(x)],
        target = matrix.past[y],
        isNew = x > P - 0.5,
        self = source === target;
      const effect = z >= 0 ? "interfered with" : "helped";
      const title = self
        ? `${classOf(target).name} ${effect} itself`
        : `${classOf(source).name} (${isNew ? "new" : "past"}) ${effect} ${classOf(target).name}`;
      const name = self ? "SIC" : isNew ? "NIC" : "CIC";
      return {
        id: target,
        title: `${title}: ${decimal(z, Math.max(3, precision(traces[curveNumber].zmax)), true)} (${name})`,
        rows: [],
        images: self ? [target] : [source, target],
      };
    });
  }

  function drawAccuracies() {
    const box = byId("accuracy"),
      { classes, steps, values } = report.accuracies;
    const space = box.parentElement.clientWidth,
      tall = space < 640; // on a phone classes run down the page
    const names = labelRoom(classes),
      stepRoom = tall ? 26 : 58;
    const cell = tall ? 22 : Math.min(36, Math.max(10, (space - stepRoom - 8) / classes.length));
    const stepSize = tall ? Math.max(30, (space - names - 8) / steps.length) : 34;
    const printed = Math.min(cell, stepSize) >= 21;
    const z = tall ? values : steps.map((_, s) => values.map((row) => row[s]));
    const classAxis = cellAxis({ ...thinned(classes, cell), range: [-0.5, classes.length - 0.5] });
    const stepAxis = cellAxis({
      tickvals: steps.map((_, i) => i),
      ticktext: steps.map((step) => `Step ${step}`),
      range: [-0.5, steps.length - 0.5],
    });
    const reversed = (one) => ({ ...one, range: [...one.range].reverse() });
    const across = { ...(tall ? stepAxis : classAxis), side: "top", tickangle: tall ? 0 : -90 };
    if (tall && stepSize < 48) across.ticktext = steps.map(String);
    const layout = {
      width: tall ? names + 8 + stepSize * steps.length : stepRoom + 8 + cell * classes.length,
      height: tall ? stepRoom + 8 + cell * classes.length : names + 8 + stepSize * steps.length,
      margin: { l: tall ? names : stepRoom, r: 8, t: tall ? stepRoom : names, b: 8 },
      xaxis: across,
      yaxis: reversed(tall ? classAxis : stepAxis),
    };
    const cells = heatmap(z, [0, 1], look.accuracy);
    const filled = printed
      ? z.flatMap((row, y) => row.map((value, x) => ({ x, y, value }))).filter(({ value }) => value !== null)
      : [];
    const text = {
      x: filled.map(({ x }) => x),
      y: filled.map(({ y }) => y),
      text: filled.map(({ value }) => String(Math.round(100 * value))),
      type: "scatter",
      mode: "text",
      hoverinfo: "skip",
      textfont: { size: 11, color: filled.map(({ value }) => readableOn(mix(look.accuracy, value))) },
    };
    plot(box, [cells, text], layout, ({ x, y, z: value }) => {
      const id = classes[tall ? y : x],
        step = steps[tall ? x : y];
      return {
        id,
        title: classOf(id).name,
        rows: [
          [`Accuracy after step ${step}`, percent(value)],
          ["Introduced in", `step ${classOf(id).introduced}`],
        ],
      };
    });
    drawScale("accuracy", "Test accuracy", look.accuracy, "0\u202f%", "100\u202f%");
  }

  // ---- Steps, coefficients, colour scheme and size

  function drawAll() {
    look = readColours();
    unmark();
    drawAccuracies();
    if (!view.step) return;
    byId("finding").textContent = view.step.finding;
    const fg = known(view.step.past.map((row) => row.forgetting));
    const [low, high] = fg.length ? extent(fg) : [null, null];
    drawScale("forgetting", "Forgetting", look.forgetting, decimal(low), decimal(high));
    drawCards();
    Object.keys(report.measures).forEach(drawPanel);
    drawTable();
    drawBeside();
    drawOwn();
    drawCurves();
    drawMatrix();
  }

  function press(button) {
    for (const other of button.parentElement.children) other.setAttribute("aria-pressed", String(other === button));
  }

  // The one choice of a step: its bar, the charts and the panel of a class all follow it.
  function setStep(step) {
    for (const button of byId("steps").children)
      button.setAttribute("aria-pressed", String(report.steps[button.dataset.step] === step));
    if (step === view.step) return;
    view.step = step;
    drawAll();
    document.dispatchEvent(new CustomEvent("step", { detail: { step: step.step } }));
  }

  if (view.step) {
    setStep(view.step);
    for (const button of byId("steps").children) {
      button.onclick = () => {
        setStep(report.steps[button.dataset.step]);
        writeState({ step: view.step.step });
      };
    }
    const buttons = {};
    const setCoefficient = (name) => {
      press(buttons[name]);
      if (name === view.coefficient) return;
      view.coefficient = name;
      drawCurves();
    };
    for (const name of report.coefficients) {
      const button = (buttons[name] = element("button", { type: "button", textContent: report.measures[name] }));
      button.setAttribute("aria-pressed", String(name === view.coefficient));
      button.onclick = () => {
        setCoefficient(name);
        writeState({ curves: name });
      };
      byId("coefficients").append(button);
    }
    addEventListener("hashchange", () => {
      setStep(stepOf(readState().step));
      setCoefficient(coefficientOf(readState().curves));
    });
  }
  // ---- To take away, and to print

  // By column, of rows that are objects.
  const columnsOf = (rows, names) => Object.fromEntries(names.map((name) => [name, rows.map((row) => row[name])]));
  const named = (id) => ({ class_id: id, class_name: classOf(id).name });
  const FILES = {
    ...Object.fromEntries(
      Object.keys(report.measures).map((one) => [
        `panel-${one}`,
        () => view.step.past.map((row) => ({ ...named(row.id), [one]: row[one], forgetting: row.forgetting })),
      ]),
    ),
    table: () => view.step.past.map(({ id, missing, ...values }) => ({ ...named(id), ...values, missing })),
    curves: () =>
      view.step.past.flatMap((row, i) =>
        (view.step.curves?.iterations ?? []).map((at, k) => ({
          ...named(row.id),
          [report.counted.toLowerCase()]: at,
          ...Object.fromEntries(report.coefficients.map((one) => [one, view.step.curves[one][i][k]])),
        })),
      ),
    matrix: () => {
      const { past = [], new: fresh = [], terms = [] } = view.step.matrix ?? {};
      return past.flatMap((id, r) =>
        [...past, ...fresh].map((source, c) => ({
          ...named(id),
          source_class_id: source,
          source_class_name: classOf(source).name,
          source_is_new: c >= past.length ? 1 : 0,
          term: terms[r][c],
        })),
      );
    },
    accuracy: () =>
      report.accuracies.classes.flatMap((id, r) =>
        report.accuracies.steps.map((step, k) => ({ ...named(id), step, accuracy: report.accuracies.values[r][k] })),
      ),
  };

  function addTools() {
    for (const [id, rows] of Object.entries(FILES)) {
      const box = byId(id);
      if (!box) continue;
      const title = box.getAttribute("aria-label") ?? box.closest("section").querySelector("h2").textContent;
      const columns = async () => {
        const found = rows();
        return columnsOf(found, Object.keys(found[0] ?? {}));
      };
      const name = () => `${id}${id === "accuracy" ? "" : `-step-${view.step.step}`}`;
      const tools = chartTools(box, { name, title, columns });
      if (id !== "table") box.closest(".card").append(tools);
      else {
        tools.replaceChildren(tools.lastChild); // a table is no picture
        box.closest(".card").before(tools);
      }
    }
  }

  function preparePaper(printing) {
    paper.printing = printing;
    document.documentElement.classList.toggle("printing", printing);
    for (const folded of document.querySelectorAll("details")) folded.open = printing;
    drawAll();
    for (const [box, redraw] of redraws) if (box.isConnected) redraw();
  }
  addEventListener("beforeprint", () => preparePaper(true));
  addEventListener("afterprint", () => preparePaper(false));
  byId("print").onclick = () => print();

  addTools();
  onNewLook(() => {
    drawAll();
    for (const [box, redraw] of redraws) if (box.isConnected) redraw();
  });
  addEventListener("scroll", unmark, { passive: true });
  drawAll();
})();
