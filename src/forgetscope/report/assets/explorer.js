// The explorer: classes as points, and everything about the one that is chosen.

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
  const canvas = element("canvas", { width: data.side, height: data.side, attributes: label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" } });
  canvas.style.width = canvas.style.height = `${size}px`;
  sheetOf(position).then((image) => {
    const left = (place % data.columns) * data.side, top = Math.floor(place / data.columns) * data.side;
    if (image) canvas.getContext("2d").drawImage(image, left, top, data.side, data.side, 0, 0, data.side, data.side);
  });
  return canvas;
}

// A list of bars: [name, value, text]; lengths relative to the largest.
function bars(rows) {
  const most = Math.max(...rows.map(([, value]) => Math.abs(value ?? 0)), 1e-12);
  return element("dl", { className: "bars" }, ...rows.flatMap(([name, value, text]) => {
    const fill = element("i", { className: value < 0 ? "minus" : "" });
    fill.style.width = `${(100 * Math.abs(value ?? 0)) / most}%`;
    return [element("dt", { textContent: name, title: name }), element("dd", {}, element("span", { className: "track" }, fill), element("span", { textContent: text }))];
  }));
}

function tooltip(event, title, rows, image) {
  const facts = rows.flatMap(([label, value]) => [element("dt", { textContent: label }), element("dd", { textContent: value })]), box = byId("tooltip");
  box.replaceChildren(element("strong", { textContent: title }), ...(image ? [image] : []), element("dl", {}, ...facts));
  box.hidden = false;
  const at = event.touches?.[0] ?? event.changedTouches?.[0] ?? event;
  const left = at.clientX + 16 + box.offsetWidth > innerWidth ? at.clientX - 16 - box.offsetWidth : at.clientX + 16;
  box.style.transform = `translate(${Math.max(8, left)}px, ${Math.max(8, Math.min(at.clientY + 14, innerHeight - box.offsetHeight - 8))}px)`;
}

const hideTooltip = () => { byId("tooltip").hidden = true; };

async function startExplorer() {
  const explorer = await pack("explorer"), { groups, runs, data, measures } = explorer;
  const view = { group: 0, cell: 0, run: "0", measure: "sic", chosen: null };
  const nameOf = (run, id) => data[run.data].names[id] ?? `class ${id}`;
  const thumbnail = (run, id, size) => { const own = data[run.data]; return own.thumbnails && id in own.thumbnails ? picture(own, run.data, own.thumbnails[id], null, size) : null; };
  const cellName = (cell) => `step ${cell.step}` + (cell.retention ? `, ${share(cell.retention)} kept, +${share(cell.increment)} new` : "");
  const cell = () => groups[view.group].cells[view.cell];
  const members = () => (view.run === "all" ? cell().runs : [cell().runs[Number(view.run)]]);
  // [run, position of the class in it], most forgotten first
  const points = () => members().flatMap((r) => runs[r].classes.map((_, i) => [runs[r], i])).sort(([a, i], [b, k]) => (b.forgetting[k] ?? -9) - (a.forgetting[i] ?? -9));

  const group = chooser("Benchmark", groups.map((one, i) => [i, policyOf(one) || "this experiment"]), (value) => { view.group = Number(value); view.cell = 0; view.run = "0"; refill(); show(); });
  const part = chooser(groups.some((one) => one.benchmark) ? "Partition" : "Step", [], (value) => { view.cell = Number(value); view.run = "0"; refill(); show(); });
  const run = chooser("Experiment", [], (value) => { view.run = value; show(); });
  const measure = chooser("Coefficient", Object.entries(measures), (value) => { view.measure = value; show(); });
  const controls = byId("explorer-controls");
  controls.append(...(groups.length > 1 ? [group.box] : []), part.box, ...(groups.some((one) => one.cells.some((cell) => cell.runs.length > 1)) ? [run.box] : []), measure.box);

  function refill() {
    part.list.fill(groups[view.group].cells.map((one, i) => [i, cellName(one)]));
    part.list.value = view.cell;
    run.list.fill([...cell().runs.map((r, i) => [i, `${runs[r].id.slice(0, 8)}${runs[r].detail ? ", in detail" : ""}`]), ...(cell().runs.length > 1 ? [["all", "all together"]] : [])]);
    run.list.value = view.run;
  }

  function show() {
    view.chosen = null;
    byId("class").replaceChildren(element("p", { className: "empty", textContent: "No class is chosen yet." }));
    drawPoints();
    drawList();
  }

  async function drawPoints() {
    const box = byId("scatter"), look = theme(), shown = points().filter(([one, i]) => one.forgetting[i] !== null && one[view.measure][i] !== null);
    if (!shown.length) { if (box.listens) Plotly.purge(box); box.listens = false; box.classList.remove("drawn"); box.replaceChildren(element("p", { className: "empty", textContent: "Nothing was measured here." })); return; }
    box.querySelector(".empty")?.remove();
    const chosen = ([one, i]) => view.chosen && view.chosen[0] === one && view.chosen[1] === i;
    const few = shown.length <= 24;
    const trace = { x: shown.map(([one, i]) => one[view.measure][i]), y: shown.map(([one, i]) => one.forgetting[i]), type: "scatter", mode: few ? "markers+text" : "markers", hoverinfo: "none",
      text: shown.map(([one, i]) => plain(shorten(nameOf(one, one.classes[i]), 12))), textposition: "top center", textfont: { size: 10.5, color: look.muted }, cliponaxis: false,
      marker: { size: shown.map((one) => (chosen(one) ? 15 : shown.length > 200 ? 5 : 9)), color: look.one, opacity: 0.8, line: { color: shown.map((one) => (chosen(one) ? look.ink : look.surface)), width: shown.map((one) => (chosen(one) ? 3 : 1)) } } };
    await draw(box, [trace], { width: box.clientWidth, height: 440, xaxis: axis(look, measures[view.measure]), yaxis: axis(look, "Forgetting") });
    box.points = shown;
    if (box.listens) return;
    box.listens = true;
    const at = ({ points: [found] }) => box.points[found.pointNumber];
    box.on("plotly_hover", (event) => {
      const [one, i] = at(event), id = one.classes[i];
      tooltip(event.event, nameOf(one, id), [["Forgetting", decimal(one.forgetting[i])], [measures[view.measure], significant(one[view.measure][i])], ["Accuracy", `${percent(one.accuracy_when_learned[i])} \u2192 ${percent(one.accuracy[i])}`]], thumbnail(one, id, 64));
    });
    box.on("plotly_unhover", hideTooltip);
    box.on("plotly_click", (event) => choose(...at(event)));
  }

  function drawList() {
    const heads = ["Class", "Forgetting", "Learned", "Now", measures[view.measure]];
    const lines = points().slice(0, 400).map(([one, i]) => {
      const name = nameOf(one, one.classes[i]), line = element("tr", {},
        element("th", { scope: "row" }, element("button", { type: "button", textContent: name, title: name, onclick: () => choose(one, i) })),
        ...[decimal(one.forgetting[i]), percent(one.accuracy_when_learned[i]), percent(one.accuracy[i]), significant(one[view.measure][i])].map((text) => element("td", { textContent: text })));
      line.shows = [one, i];
      return line;
    });
    byId("classes").replaceChildren(element("thead", {}, element("tr", {}, ...heads.map((text) => element("th", { scope: "col", textContent: text })))), element("tbody", {}, ...lines));
  }

  function choose(one, i) {
    hideTooltip();
    view.chosen = [one, i];
    for (const line of byId("classes").tBodies[0].rows) line.classList.toggle("lit", line.shows[0] === one && line.shows[1] === i);
    drawPoints();
    drawClass(one, i);
  }

  function drawClass(one, i) {
    const id = one.classes[i], name = nameOf(one, id), image = thumbnail(one, id, 64), box = byId("class");
    const facts = [["Forgetting", one.forgetting[i], decimal], ["Accuracy when learned", one.accuracy_when_learned[i], percent], ["Accuracy now", one.accuracy[i], percent], ...Object.entries(measures).map(([key, label]) => [label, one[key][i], significant])];
    const cards = element("dl", { className: "facts" }, ...facts.map(([label, value, text]) => element("div", {}, element("dt", { textContent: label }), element("dd", { textContent: text(value) }))));
    const heading = element("div", { className: "chosen" }, ...(image ? [image] : []), element("h3", { textContent: name }));
    const reason = one.missing?.[i] ? [element("p", { className: "how", textContent: one.missing[i] })] : [];
    if (!one.detail) {
      const command = `forgetscope report STORE --experiment ${one.id.slice(0, 12)}`;
      box.replaceChildren(heading, cards, ...reason, element("p", { className: "how" }, "This page has trajectories and images of five experiments per partition; for this one: ", element("code", { textContent: command })));
      return;
    }
    const detail = one.detail, part = (title, ...content) => element("div", {}, element("h4", { textContent: title }), ...content), none = (text) => element("p", { className: "how", textContent: text });
    const curves = element("div", { className: "chart", attributes: { role: "img", "aria-label": `Coefficients of ${name} along training` } });
    const kind = (source) => (source === id ? "SIC, itself" : detail.new.includes(source) ? "NIC, new" : "CIC, past");
    const shown = detail.rehearsal[i] ?? [];
    box.replaceChildren(heading, cards, ...reason, element("div", { className: "columns" },
      part("Accuracy after every step", bars(detail.accuracies[i].map((value, step) => [`step ${step + 1}`, value, percent(value)]).filter(([, value]) => value !== null))),
      part("Who interfered with it most", detail.sources[i].length ? bars(detail.sources[i].map(([source, term]) => [`${nameOf(one, source)} (${kind(source)})`, term, (term > 0 ? "+" : "") + significant(term)])) : none("Interference was not measured.")),
      part("Now taken for", detail.confusions[i].length ? bars(detail.confusions[i].map(([other, value]) => [nameOf(one, other), value, percent(value)])) : none("None of its test images is taken for another class.")),
    ), part(`Rehearsal images: ${detail.rehearsed[i]} kept${shown.length ? `, the first ${shown.length} in order of selection` : ""}`,
      shown.length ? element("div", { className: "images" }, ...shown.map((place, k) => picture(data[one.data], one.data, place, `rehearsal image ${k + 1} of ${name}`))) : none("The data set is not at hand, or was only simulated, so there are no images.")),
    part("Coefficients along training, summed so far", detail.iterations.length ? curves : none("Interference was not measured.")));
    redraws.set(box, () => drawCurves(curves, detail, i));
    if (detail.iterations.length) drawCurves(curves, detail, i);
  }

  function drawCurves(box, detail, i) {
    const look = theme(), names = ["sic", "cic", "nic", "all_nic"], wide = box.clientWidth > 700, n = names.length;
    const layout = { width: box.clientWidth, height: wide ? 250 : 560, margin: { l: 50, r: 12, t: 26, b: 44 }, annotations: [] };
    const traces = names.map((name, k) => {
      const across = wide ? [k / n + (k ? 0.03 : 0), (k + 1) / n] : [k % 2 ? 0.56 : 0, k % 2 ? 1 : 0.46], up = wide ? [0, 1] : k < 2 ? [0.58, 1] : [0, 0.42], { colour, dash } = series(look, k);
      layout[axisName("x", k)] = axis(look, "", { domain: across, anchor: `y${k ? k + 1 : ""}`, nticks: 4 });
      layout[axisName("y", k)] = axis(look, "", { domain: up, anchor: `x${k ? k + 1 : ""}`, nticks: 5, zeroline: true, automargin: false });
      layout.annotations.push({ text: measures[name], x: across[0], y: up[1], xref: "paper", yref: "paper", xanchor: "left", yanchor: "bottom", showarrow: false, font: { size: 12.5, color: look.ink } });
      return { x: detail.iterations, y: detail[name][i], type: "scatter", mode: "lines", line: { color: colour, dash, width: 2.2 }, xaxis: `x${k ? k + 1 : ""}`, yaxis: `y${k ? k + 1 : ""}`, hovertemplate: `${measures[name]} %{y:.3g} at iteration %{x}<extra></extra>` };
    });
    return draw(box, traces, layout);
  }

  if (!groups.some((one) => one.cells.length)) return byId("scatter").replaceChildren(element("p", { className: "empty", textContent: "No step has past classes." }));
  view.group = groups.findIndex((one) => one.cells.length);
  group.list.value = view.group;
  redraws.set(byId("scatter"), drawPoints);
  refill();
  show();
}
