// The explorer: classes as points, and everything about the one that is chosen.
//
// What is shown is kept in the address and restored from it: `benchmark`, `step`, `kept` and `new` (the partition), `experiment`
// (the first eight characters of the step's id), `class` (its number in the data set), `measure`, and `all`, which is `partition`
// for the classes of all its experiments, or `class` for one class in all experiments of the benchmark.

const LISTED = 400; // classes in the list beside the points, at most
const FLOOR = -1; // of forgetting, in the picture: a class that gained more is drawn at its edge, and marked

let explore; // what the explorer does with the address, once it was started

// Opens the panel of a class, from anywhere on the page. All but `class` may be left out: with an experiment (the id of one of its
// steps, or its beginning) it is the class there, with a step alone the first experiment that has it in that step, and with
// neither all points of the class in the benchmark.
//
//   openClass({ benchmark: "C100", step: 2, experiment: "17218c84", class: 61 })
//
// It is an address like any other: a link to `addressOf({ experiment: "17218c84", class: 61 }, "explorer")` does the same.
function openClass({ benchmark = null, step = null, experiment = null, class: id }) {
  const where = { benchmark, step, kept: null, new: null, experiment: experiment?.slice(0, 8), class: id };
  const all = experiment || step ? null : "class";
  const address = addressOf({ ...where, all }, byId("tab-explorer") ? "explorer" : openedId());
  if (address !== location.hash) location.hash = address;
  else explore?.restore();
}

async function startExplorer() {
  const { groups, data, measures, counted } = await pack("explorer");
  const alone = !groups.some((one) => one.benchmark); // on the page of one experiment, whose bar of steps governs
  const view = { group: 0, cell: 0, run: 0, all: "", measure: "sic", chosen: null, sought: null };
  let runs = []; // of the partition in view
  let across = []; // of all partitions, where a class is sought in all of them
  let turn = 0; // counts what was asked for, so that what was overtaken ends
  const nameOf = (one, id) => data[one.data].names[id] ?? `class ${id}`;
  const cellName = (cell) =>
    `step ${cell.step}` + (cell.retention ? `, ${share(cell.retention)} kept, +${share(cell.increment)} new` : "");
  const groupName = (one) => policyOf(one) || "this experiment";
  const runName = ([id, name]) => [name, id].filter(Boolean).join(" \u00b7 ");
  const cellOf = () => groups[view.group].cells[view.cell];
  const members = () => (view.all === "class" ? across : view.all ? runs : runs.slice(view.run, view.run + 1));
  // [run, position of the class in it], most forgotten first
  function points() {
    const own = members().flatMap((one) => one.classes.map((id, i) => [one, i, id]));
    return (view.all === "class" ? own.filter(([, , id]) => id === view.sought) : own).sort(
      ([a, i], [b, k]) => (b.forgetting[k] ?? -Infinity) - (a.forgetting[i] ?? -Infinity),
    );
  }

  // ---- What is chosen, and the address of it

  const group = chooser(
    "Benchmark",
    groups.map((one, i) => [i, groupName(one)]),
    (value) => show({ group: Number(value), cell: 0, run: 0, all: "" }),
  );
  const partition = chooser("Partition", [], (value) =>
    show({ cell: Number(value), run: 0, all: view.all === "partition" ? view.all : "" }),
  );
  const run = chooser("Experiment", [], (value) =>
    /^\d+$/.test(value) ? show({ run: Number(value), all: "" }) : show({ all: value }),
  );
  const measure = chooser("Coefficient", Object.entries(measures), (value) => show({ measure: value }));

  // Reads the steps of a partition, each told where it is.
  async function load(cell) {
    const found = await pack(`runs-${cell.runs}`);
    found.forEach((one, k) => {
      Object.assign(one, { cell, k, name: runName(cell.experiments[k]) });
      if (one.detail) one.matrix ??= matrixOf(one.detail.matrix);
    });
    return found;
  }

  // Shows what was chosen before with these changes. The class stays where it is a class there.
  async function show(
    changes,
    { reveal = false, settled = false, keep = view.chosen && view.chosen[0].classes[view.chosen[1]] } = {},
  ) {
    const own = ++turn,
      next = { ...view, ...changes },
      { cells } = groups[next.group];
    const found = await load(cells[next.cell]),
      everywhere = next.all === "class" ? (await Promise.all(cells.map(load))).flat() : [];
    if (own !== turn) return;
    Object.assign(view, next, { chosen: null, run: Math.min(next.run, found.length - 1) });
    [runs, across] = [found, everywhere];
    fillChoosers();
    const one = runs[view.run],
      i = keep === null || keep === undefined ? -1 : one.classes.indexOf(keep);
    drawList(); // before the points, which may wait for Plotly
    if (i >= 0) choose(one, i, { reveal });
    else leavePanel(one, keep, reveal);
    tellAddress(i >= 0 || keep === null ? keep : null, settled);
  }

  function fillChoosers() {
    const { cells } = groups[view.group];
    group.list.value = view.group;
    const everywhere = view.all === "class"; // then experiments of one partition are not to be told from others
    partition.list.fill([...(everywhere ? [["class", "all"]] : []), ...cells.map((one, i) => [i, cellName(one)])]);
    partition.list.value = everywhere ? "class" : view.cell;
    run.list.fill(
      everywhere
        ? [["class", "all with the class that was sought"]]
        : [
            ...cellOf().experiments.map((one, k) => [k, runName(one) + (runs[k].detail ? ", in detail" : "")]),
            ...(runs.length > 1 ? [["partition", "all together"]] : []),
          ],
    );
    run.list.value = view.all || view.run;
    measure.list.value = view.measure;
    fillSearch();
  }

  // settled: the address was followed, and nothing chosen.
  function tellAddress(id, settled = false) {
    const cell = cellOf(),
      where = alone
        ? {}
        : { kept: cell.retention, new: cell.increment, experiment: cell.experiments[view.run][0], all: view.all };
    const benchmark = groups.length > 1 ? groupName(groups[view.group]) : null;
    if (!byId("explorer") || openedId() === "explorer" || alone)
      writeState(
        {
          ...where,
          benchmark,
          step: cell.step,
          class: id ?? (view.all === "class" ? view.sought : null),
          measure: view.measure,
        },
        undefined,
        { settled },
      );
  }

  // Where an address leads: changes to the view, and the class.
  function placeOf(state) {
    const id = /^\d+$/.test(state.class ?? "") ? Number(state.class) : null;
    const named = groups.findIndex((one) => groupName(one) === state.benchmark || one.benchmark === state.benchmark),
      at = Math.max(0, named);
    const found = {
      group: at,
      cell: view.group === at ? view.cell : 0,
      run: 0,
      all: ["partition", "class"].includes(state.all) ? state.all : "",
    };
    if (Object.hasOwn(measures, state.measure ?? "")) found.measure = state.measure;
    if (state.experiment)
      for (const [g, one] of groups.entries())
        for (const [c, cell] of one.cells.entries()) {
          const k = cell.experiments.findIndex(([known]) => state.experiment.startsWith(known));
          if (k >= 0) return [{ ...found, group: g, cell: c, run: k, sought: id }, id];
        }
    const fits = (cell) =>
      (!state.step || String(cell.step) === state.step) &&
      (!state.kept || cell.retention === state.kept) &&
      (!state.new || cell.increment === state.new);
    const cell = state.step || state.kept || state.new ? groups[at].cells.findIndex(fits) : -1;
    if (cell >= 0) found.cell = cell;
    return [{ ...found, sought: id }, id];
  }

  // named: whether the address was followed just now; who names a class in it wants to see it.
  async function restore({ named = true } = {}) {
    const state = readState(),
      [place, id] = placeOf(state),
      reveal = named && id !== null;
    if (id !== null && !state.experiment && !alone && place.all !== "partition") {
      const { cells } = groups[place.group];
      for (const [c, cell] of state.step && place.all !== "class" ? cells.entries() : []) {
        if (String(cell.step) !== state.step) continue;
        const k = (await load(cell)).findIndex((one) => one.classes.includes(id));
        if (k >= 0) return show({ ...place, cell: c, run: k }, { reveal, settled: true, keep: id });
      }
      return show({ ...place, all: "class" }, { reveal, settled: true, keep: null });
    }
    return show(place, { reveal, settled: true, keep: id });
  }

  // ---- The search for a class

  const names = element("datalist", { id: "class-names" });
  const search = element("input", {
    type: "search",
    placeholder: "its name",
    autocomplete: "off",
    attributes: { list: names.id },
  });
  const answer = element("output", { className: "how" });
  const searchBox = element("label", { className: "search" }, "Search for a class", search, names, answer);
  const idsOf = () => {
    const found = new Map(); // of the benchmark in view: name -> class
    for (const one of runs) for (const [id, name] of Object.entries(data[one.data].names)) found.set(name, Number(id));
    return found;
  };
  const fillSearch = () =>
    names.replaceChildren(...[...idsOf().keys()].sort().map((name) => element("option", { value: name })));
  function seek(finished) {
    const wanted = search.value.trim().toLowerCase(),
      all = [...idsOf()],
      same = all.filter(([name]) => name.toLowerCase() === wanted),
      alike = same.length ? same : all.filter(([name]) => name.toLowerCase().includes(wanted));
    answer.textContent = "";
    if (!wanted || (!finished && !same.length)) return;
    if (alike.length !== 1) {
      const some = alike.slice(0, 5).map(([name]) => name);
      answer.textContent = alike.length
        ? `${alike.length} classes: ${some.join(", ")}${alike.length > 5 ? ", \u2026" : ""}`
        : "No class has that name.";
      return;
    }
    const [[name, id]] = alike;
    search.value = name;
    if (alone) go(id);
    else show({ all: "class", sought: id }, { keep: id });
  }
  search.oninput = () => seek(false);
  search.onkeydown = ({ key }) => {
    if (key === "Enter") seek(true); // to return false would take every other key from the box
  };
  search.onchange = () => seek(true);

  // ---- The list and the points

  function drawList() {
    const all = points(),
      everywhere = view.all === "class",
      several = members().length > 1;
    const heads = [everywhere ? "Experiment" : "Class", "Forgetting", "Learned", "Now", measures[view.measure]];
    const lines = all.slice(0, LISTED).map(([one, i]) => {
      const name = everywhere ? `${cellName(one.cell)}, ${one.name}` : nameOf(one, one.classes[i]);
      const label = several && !everywhere ? `${name}, ${one.name}` : name;
      const button = {
        type: "button",
        textContent: name,
        title: label,
        onclick: () => choose(one, i, { reveal: true, told: true }),
      };
      const line = tableRow(
        element("button", button),
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

  async function drawPoints() {
    const box = byId("scatter"),
      look = theme(),
      everywhere = view.all === "class",
      shown = points().filter(([one, i]) => one.forgetting[i] !== null && one[view.measure][i] !== null);
    byId("clipped").textContent = "";
    if (!shown.length)
      return leaveEmpty(
        box,
        everywhere ? "It is a past class of no experiment that was measured." : "Nothing was measured here.",
      );
    const chosen = ([one, i]) => view.chosen && view.chosen[0] === one && view.chosen[1] === i;
    const low = ([one, i]) => one.forgetting[i] < FLOOR,
      clipped = shown.filter(low).length;
    if (clipped)
      byId("clipped").textContent =
        `${clipped} ${clipped > 1 ? "points lie" : "point lies"} below ${decimal(FLOOR)} (accuracy more than doubled) and ${clipped > 1 ? "are" : "is"} drawn at the edge, as \u25bd.`;
    const steps = distinct(shown.map(([one]) => one.cell.step)).sort((a, b) => a - b);
    const named = shown.length <= 24 && !everywhere,
      size = { width: box.clientWidth, height: 440 },
      margin = { l: 56, r: 12, t: everywhere ? 40 : 16, b: 48 },
      xs = shown.map(([one, i]) => one[view.measure][i]),
      ys = shown.map(([one, i]) => Math.max(FLOOR, one.forgetting[i])),
      ranges = [span(xs, 0.06), span(ys, 0.08)];
    const names = shown.map(([one, i]) => shorten(nameOf(one, one.classes[i]), 14)),
      inside = [size.width - margin.l - margin.r, size.height - margin.t - margin.b],
      pixels = shown.map((_, k) => [
        (inside[0] * (xs[k] - ranges[0][0])) / (ranges[0][1] - ranges[0][0]),
        (inside[1] * (ranges[1][1] - ys[k])) / (ranges[1][1] - ranges[1][0]),
      ]),
      places = named ? placeLabels(look.font, pixels, names, inside) : [];
    const trace = {
      x: xs,
      y: ys,
      type: "scatter",
      mode: named ? "markers+text" : "markers",
      showlegend: false,
      hoverinfo: "none",
      text: names.map((name, k) => (places[k] ? plain(name) : "")),
      textposition: names.map((_, k) => places[k] || "top center"),
      textfont: { size: 10.5, color: look.muted },
      cliponaxis: false,
      marker: {
        size: shown.map((one) => (chosen(one) ? 15 : shown.length > 200 ? 5 : 9)),
        color: everywhere ? shown.map(([one]) => series(look, steps.indexOf(one.cell.step)).colour) : look.one,
        symbol: shown.map((point) =>
          low(point) ? "triangle-down-open" : everywhere ? series(look, steps.indexOf(point[0].cell.step)).symbol : "circle",
        ),
        opacity: 0.8,
        line: {
          color: shown.map((one) => (chosen(one) ? look.ink : low(one) ? look.one : look.surface)),
          width: shown.map((one) => (chosen(one) ? 3 : low(one) ? 2 : 1)),
        },
      },
    };
    // Of several steps, what their colours and shapes mean.
    const keys = steps.map((step, k) => ({
      x: [null],
      y: [null],
      type: "scatter",
      mode: "markers",
      name: `step ${step}`,
      marker: { color: series(look, k).colour, symbol: series(look, k).symbol, size: 9 },
    }));
    await draw(box, [trace, ...(everywhere ? keys.map((one) => ({ ...one, showlegend: true })) : [])], {
      ...size,
      showlegend: everywhere,
      margin,
      xaxis: axis(look, measures[view.measure], { range: ranges[0] }),
      yaxis: axis(look, "Forgetting", { range: ranges[1] }),
    });
    tell(
      box,
      ({ curveNumber, pointNumber }) => {
        if (curveNumber) return null;
        const [one, i] = shown[pointNumber],
          id = one.classes[i];
        const rows = [
          ["Forgetting", decimal(one.forgetting[i])],
          [measures[view.measure], significant(one[view.measure][i])],
          ["Accuracy", `${percent(one.accuracy_when_learned[i])} \u2192 ${percent(one.accuracy[i])}`],
          ...(members().length > 1 ? [["Experiment", `${cellName(one.cell)}, ${one.name}`]] : []),
        ];
        return [nameOf(one, id), rows, thumbnail(data, one.data, id)];
      },
      { onclick: ({ curveNumber, pointNumber }) => curveNumber || choose(...shown[pointNumber], { reveal: true, told: true }) },
    );
  }

  // ---- The panel

  const seen = {
    data,
    measures,
    counted,
    nameOf,
    go: (id) => go(id),
    told: (one) =>
      alone
        ? `Step ${one.cell.step}`
        : `${cellName(one.cell)[0].toUpperCase()}${cellName(one.cell).slice(1)} \u00b7 ${one.name}`,
  };

  // told: whether it was chosen on the page, so that the address must be told.
  function choose(one, i, { reveal = false, told = false } = {}) {
    hideTooltip();
    view.chosen = [one, i];
    if (told) {
      view.cell = groups[view.group].cells.indexOf(one.cell);
      view.run = one.k;
      tellAddress(one.classes[i]);
    }
    for (const line of byId("classes").tBodies[0].rows)
      line.classList.toggle("lit", line.shows[0] === one && line.shows[1] === i);
    drawPoints();
    fillPanel(byId("class"), seen, one, i);
    fillMatrix(byId("confusion"), seen, one);
    if (reveal) scrollToPanel();
  }

  function leavePanel(one, id, reveal) {
    const box = byId("class");
    drawPoints();
    redraws.delete(box);
    if (id !== null && id !== undefined && one.matrix?.classes.includes(id)) fillNewPanel(box, seen, one, id);
    else {
      const where = alone ? "in this step" : `of the experiment ${one.name} in ${cellName(one.cell)}`,
        none = id === null || id === undefined;
      const further = alone ? "" : " Search for it, and all experiments with it are shown.";
      const text =
        view.all === "class"
          ? `Choose a point or a line of the list: each is ${nameOf(one, id ?? view.sought)} in one experiment.`
          : none
            ? "No class is chosen yet."
            : `${nameOf(one, id)} is no past class ${where}.${further}`;
      box.replaceChildren(element("p", { className: "empty", textContent: text }));
    }
    fillMatrix(byId("confusion"), seen, view.all === "class" ? null : one);
    if (reveal) scrollToPanel();
  }

  // Another class of the step that the panel is about.
  function go(id) {
    const one = view.chosen ? view.chosen[0] : runs[view.run],
      i = one.classes.indexOf(id);
    if (i >= 0) return choose(one, i, { reveal: true, told: true });
    view.chosen = null;
    for (const line of byId("classes").tBodies[0].rows) line.classList.remove("lit");
    leavePanel(one, id, true);
    tellAddress(id);
  }

  function scrollToPanel() {
    const box = byId("class"),
      calm = matchMedia("(prefers-reduced-motion: reduce)").matches,
      { top } = box.getBoundingClientRect();
    if (top > innerHeight - 120 || top < 0) box.scrollIntoView({ behavior: calm ? "auto" : "smooth" });
  }

  // What the points are, as a file.
  async function pointColumns() {
    const own = points(),
      column = (value) => own.map(([one, i]) => value(one, i));
    return {
      step: column((one) => one.cell.step),
      step_id: column((one) => one.id),
      class_id: column((one, i) => one.classes[i]),
      class_name: column((one, i) => nameOf(one, one.classes[i])),
      ...Object.fromEntries(
        ["forgetting", "accuracy_when_learned", "accuracy", ...Object.keys(measures)].map((name) => [
          name,
          column((one, i) => one[name][i]),
        ]),
      ),
    };
  }

  const first = groups.findIndex((one) => one.cells.length);
  if (first < 0) return leaveEmpty(byId("scatter"), "No step has past classes.");
  byId("explorer-controls").append(
    ...(groups.length > 1 ? [group.box] : []),
    ...(alone ? [] : [partition.box, run.box]),
    searchBox,
    measure.box,
  );
  byId("clipped").after(
    chartTools(byId("scatter"), {
      name: () => `classes-${view.measure}`,
      title: "Forgetting against the chosen coefficient",
      columns: pointColumns,
    }),
  );
  view.group = first;
  if (alone) view.cell = groups[first].cells.length - 1; // the last step, as the page
  // The experiment may have been chosen elsewhere on the page while the explorer was out of sight.
  const catchUp = () => {
    const { experiment } = readState(),
      [own] = cellOf().experiments[view.run];
    if (experiment && experiment !== own) restore({ named: false });
  };
  explore = { restore, catchUp };
  addEventListener("hashchange", () => {
    if (alone || openedId() === "explorer") restore();
  });
  // On the page of one experiment its bar of steps governs: experiment.js tells which is chosen.
  document.addEventListener("step", ({ detail }) => {
    const cell = groups[view.group].cells.findIndex((one) => one.step === detail.step);
    if (alone && cell >= 0 && cell !== view.cell) show({ cell, run: 0 }, { settled: true });
  });
  await restore();
  redraws.set(byId("scatter"), drawPoints);
}
