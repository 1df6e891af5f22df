// The panel of one class, and the confusion matrix of its step. `one` is an experiment's step, `i` the position of a class in it.

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

// The image that stands for a class, or null where the page has none.
function thumbnail(data, position, id) {
  const own = data[position];
  return own?.thumbnails && id in own.thumbnails ? picture(own, position, own.thumbnails[id], null, 64) : null;
}

// A line along training as `details.trace` packed it: a unit, and differences in it.
function untraced([unit, ...differences]) {
  let sum = 0;
  return differences.map((one) => (one === null ? null : unit * (sum += one)));
}

// A list of bars: [name, value, text, what a click on the name does, if anything]; `most` is what a whole bar stands for.
function bars(rows, most = Math.max(...rows.map(([, value]) => Math.abs(value ?? 0)), 1e-12)) {
  return element(
    "dl",
    { className: "bars" },
    ...rows.flatMap(([name, value, text, onclick]) => {
      const share = Math.abs(value ?? 0) / most,
        fill = element("i", { className: `${value < 0 ? "minus" : ""}${share > 1 ? " clipped" : ""}` });
      fill.style.width = `${100 * Math.min(1, share)}%`;
      return [
        element("dt", { title: name }, onclick ? element("button", { type: "button", textContent: name, onclick }) : name),
        element("dd", {}, element("span", { className: "track" }, fill), element("span", { textContent: text })),
      ];
    }),
  );
}

const part = (title, ...content) => element("div", {}, element("h4", { textContent: title }), ...content);
const note = (text) => element("p", { className: "how", textContent: text });
const chartBox = (label) => element("div", { className: "chart", attributes: { role: "img", "aria-label": label } });

// Test images by true class and by what they are taken for, as shares of the true class.
function matrixOf({ classes, further, images }) {
  const n = classes.length,
    counts = classes.map(() => classes.map(() => 0));
  let at = -1;
  further.forEach((cells, k) => {
    at += cells;
    counts[Math.floor(at / n)][at % n] = images[k];
  });
  const totals = counts.map((row) => row.reduce((sum, count) => sum + count, 0));
  return {
    classes,
    counts,
    totals,
    shares: counts.map((row, t) => row.map((count) => (totals[t] ? count / totals[t] : null))),
  };
}

// What one class is taken for, itself left out: [class, share], the largest first.
function confusionsOf(matrix, id, most = 5) {
  const row = matrix.shares[matrix.classes.indexOf(id)] ?? [];
  return row
    .map((value, k) => [matrix.classes[k], value])
    .filter(([other, value]) => value && other !== id)
    .sort((a, b) => b[1] - a[1])
    .slice(0, most);
}

// ---- The panel. seen: {data, measures, counted, nameOf, go, told, marks}: `go(id)` opens another class of the step, `told(one)` says which
// experiment it is.

function headOf(seen, one, id, text) {
  const image = thumbnail(seen.data, one.data, id),
    title = element("div", {}, element("h3", { textContent: seen.nameOf(one, id) }), note(text));
  return element("div", { className: "chosen" }, ...(image ? [image] : []), title);
}

function factsOf(facts) {
  return element(
    "dl",
    { className: "facts" },
    ...facts.map(([label, value, text]) =>
      element("div", {}, element("dt", { textContent: label }), element("dd", { textContent: text(value) })),
    ),
  );
}

const takenFor = (seen, one, matrix, id) => {
  const found = confusionsOf(matrix, id);
  return part(
    "Now taken for",
    found.length
      ? bars(
          found.map(([other, value]) => [seen.nameOf(one, other), value, percent(value), () => seen.go(other)]),
          1,
        )
      : note("None of its test images is taken for another class."),
  );
};

function fillPanel(box, seen, one, i) {
  const id = one.classes[i],
    name = seen.nameOf(one, id),
    { detail } = one;
  const facts = [
    ["Forgetting", one.forgetting[i], decimal],
    ["Accuracy when learned", one.accuracy_when_learned[i], percent],
    ["Accuracy now", one.accuracy[i], percent],
    ...Object.entries(seen.measures).map(([key, label]) => [label, one[key][i], significant]),
  ];
  const reason = one.missing?.[i] ? [note(one.missing[i])] : [];
  box.replaceChildren(headOf(seen, one, id, seen.told(one)), factsOf(facts), ...reason);
  if (!detail) {
    const command = element("code", { textContent: `forgetscope report STORE --experiment ${one.id.slice(0, 12)}` });
    const why = "This page has trajectories and images of five experiments per partition; for this one: ";
    box.append(element("p", { className: "how" }, why, command));
    return;
  }
  const losses = chartBox(
      `Loss of ${name} along training, on all its images and on its rehearsed ones; the text has the last values`,
    ),
    curves = chartBox(`Coefficients of ${name} along training; the numbers above are where they end`);
  const file = (what) => () => `${what}-class-${id}-step-${one.cell.step}`,
    lines = (columns) => async () => ({ [seen.counted]: detail.iterations, ...columns });
  if (detail.loss_full) {
    const [loss_all, loss_rehearsed] = lossesOf(detail, i);
    const columns = lines({ loss_all, loss_rehearsed });
    losses.tools = chartTools(losses, { name: file("losses"), title: `Losses of ${name}`, columns });
  }
  if (detail.iterations.length) {
    const columns = lines(Object.fromEntries(COURSES.map((one) => [one, untraced(detail[one][i])])));
    curves.tools = chartTools(curves, { name: file("coefficients"), title: `Coefficients of ${name}`, columns });
  }
  box.append(
    lossPart(detail, i, losses),
    element(
      "div",
      { className: "columns" },
      accuracyPart(detail, i),
      sourcePart(seen, one, i),
      takenFor(seen, one, one.matrix, id),
    ),
    imagePart(seen, one, i),
    part(
      `Coefficients summed so far, by ${seen.counted}`,
      ...(detail.iterations.length ? [curves, curves.tools] : [note("Interference was not measured.")]),
    ),
  );
  const redraw = () => {
    if (losses.isConnected) drawLosses(losses, seen.counted, detail, i);
    if (curves.isConnected) drawCurves(curves, seen, detail, i);
  };
  redraws.set(box, redraw);
  redraw();
}

// A class that the step introduced: nothing of it can be forgotten yet.
function fillNewPanel(box, seen, one, id) {
  const matrix = one.matrix,
    at = matrix.classes.indexOf(id),
    own = matrix.totals[at] ? matrix.shares[at][at] : null;
  const hit = one.detail.sources
    .map((sources, k) => [one.classes[k], (sources.find(([source]) => source === id) ?? [])[1]])
    .filter(([, term]) => term !== undefined)
    .sort((a, b) => b[1] - a[1]);
  redraws.delete(box);
  box.replaceChildren(
    headOf(seen, one, id, `${seen.told(one)}. It is new in this step, so nothing of it can be forgotten yet.`),
    factsOf([["Accuracy now", own, percent]]),
    element(
      "div",
      { className: "columns" },
      takenFor(seen, one, matrix, id),
      part(
        "Whom it interfered with, or helped, where it is among the strongest sources",
        hit.length
          ? bars(hit.map(([other, term]) => [seen.nameOf(one, other), term, signed(term), () => seen.go(other)]))
          : note("It is among the strongest sources of no class."),
      ),
    ),
  );
}

// A term of interference: a negative one helped.
const signed = (term) => (term > 0 ? "+" : "") + significant(term) + (term < 0 ? ", helped" : "");

function accuracyPart(detail, i) {
  const steps = detail.accuracies[i].map((value, step) => [`step ${step + 1}`, value, percent(value)]);
  return part(
    "Accuracy after every step",
    bars(
      steps.filter(([, value]) => value !== null),
      1,
    ),
  );
}

function sourcePart(seen, one, i) {
  const { detail } = one,
    id = one.classes[i];
  const kind = (source) => (source === id ? "SIC, itself" : detail.new.includes(source) ? "NIC, new" : "CIC, past");
  const rows = detail.sources[i].map(([source, term]) => [
    `${seen.nameOf(one, source)} (${kind(source)})`,
    term,
    signed(term),
    source === id ? null : () => seen.go(source),
  ]);
  return part("Who interfered with it most, or helped it", rows.length ? bars(rows) : note("Interference was not measured."));
}

function imagePart(seen, one, i) {
  const { detail } = one,
    shown = detail.rehearsal[i] ?? [],
    name = seen.nameOf(one, one.classes[i]);
  const title = `Rehearsal images: ${detail.rehearsed[i]} kept`,
    first =
      shown.length < detail.rehearsed[i] ? `, the first ${shown.length} in order of selection` : ", in order of selection";
  return part(
    title + (shown.length ? first : ""),
    shown.length
      ? element(
          "div",
          { className: "images" },
          ...shown.map((place, k) => picture(seen.data[one.data], one.data, place, `rehearsal image ${k + 1} of ${name}`)),
        )
      : note("The data set is not at hand, or was only simulated, so there are no images."),
  );
}

const lossesOf = (detail, i) => [untraced(detail.loss_full[i]), untraced(detail.loss_rehearsal[i])];

function lossPart(detail, i, chart) {
  const title = "Loss during training: all its images against its rehearsed ones";
  if (!detail.loss_full) return part(title, note(detail.no_losses));
  const [full, kept] = lossesOf(detail, i),
    unknown = known(full).length ? "No image of it is rehearsed, so there is nothing to compare." : NO_IMAGES;
  if (!known(full).length || !known(kept).length) return part(title, note(unknown));
  const [all, own] = [full, kept].map(known),
    end = (line) => line[line.length - 1];
  const mechanism =
    "The shaded gap is the mechanism of SIC: what is rehearsed is learned by heart and no longer speaks for the class. ";
  const text =
    (end(own) < own[0] && end(all) > all[0] ? mechanism : "") +
    `In the end the loss is ${decimal(end(all))} on all its images (at first ${decimal(all[0])}) and ${decimal(end(own))} on the ` +
    `${detail.rehearsed[i]} rehearsed ones (at first ${decimal(own[0])}).`;
  return part(title, note(text), chart, chart.tools);
}

const NO_IMAGES = "Its loss on all images is unknown: none of its past images was at hand but what is in memory.";

function drawLosses(box, counted, detail, i) {
  const look = theme(),
    [full, kept] = lossesOf(detail, i),
    x = detail.iterations,
    narrow = box.clientWidth < 560;
  // Only where both are known: a polygon with holes would be filled across them.
  const both = x.map((_, k) => k).filter((k) => full[k] !== null && kept[k] !== null),
    back = [...both].reverse();
  const shade = {
    x: [...both, ...back].map((k) => x[k]),
    y: [...both.map((k) => full[k]), ...back.map((k) => kept[k])],
    type: "scatter",
    mode: "lines",
    fill: "toself",
    fillcolor: `${look.three}33`,
    line: { width: 0 },
    hoverinfo: "skip",
  };
  const line = (y, k, name) => ({
    x,
    y,
    type: "scatter",
    mode: "lines",
    line: { color: series(look, k).colour, dash: series(look, k).dash, width: 2.4 },
    hovertemplate: `%{y:.3g} on ${name}, at ${counted} %{x}<extra></extra>`,
  });
  const ends = [
    [full, "all its images", 0],
    [kept, "rehearsed ones", 1],
  ].map(([values, text, k]) => ({
    x: 1,
    xref: "paper",
    xanchor: "left",
    xshift: 6,
    y: values[values.length - 1],
    showarrow: false,
    text: narrow ? text.replace(" ", "<br>") : text,
    align: "left",
    font: { size: 11.5, color: series(look, k).colour },
  }));
  return draw(box, [shade, line(full, 0, "all its images"), line(kept, 1, "its rehearsed images")], {
    width: box.clientWidth,
    height: narrow ? 240 : 280,
    margin: { l: 50, r: narrow ? 76 : 112, t: 12, b: 46 },
    annotations: ends.filter((one) => one.y !== null),
    xaxis: axis(look, counted[0].toUpperCase() + counted.slice(1), {
      range: extent(x),
      nticks: narrow ? 4 : 8,
      automargin: false,
    }),
    yaxis: axis(look, "Mean loss", { rangemode: "tozero", nticks: 6, automargin: false }),
  });
}

const COURSES = ["sic", "cic", "nic", "all_nic"];

function drawCurves(box, { measures, counted }, detail, i) {
  const look = theme(),
    names = COURSES,
    wide = box.clientWidth > 700,
    n = names.length;
  const layout = { width: box.clientWidth, height: wide ? 250 : 560, margin: { l: 50, r: 12, t: 26, b: 44 }, annotations: [] };
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
      y: untraced(detail[name][i]),
      type: "scatter",
      mode: "lines",
      line: { color: colour, dash, width: 2.2 },
      xaxis: x,
      yaxis: y,
      hovertemplate: `${measures[name]} %{y:.3g} at ${counted} %{x}<extra></extra>`,
    };
  });
  return draw(box, traces, layout);
}

// ---- The confusion matrix of a step

const CELLS = [4, 6, 9, 13, 18, 26]; // pixels of a cell
const CONFUSED = 12; // pairs in the table
const SHARES = [0, 0.05, 0.25, 0.5, 1]; // that the scale of its colours names
const SCALE = 190; // pixels of it, at least,
const BELOW = 64; // and those that it takes below the matrix

function fillMatrix(box, seen, one) {
  redraws.delete(box);
  if (!one?.matrix) {
    box.hidden = true;
    return box.replaceChildren();
  }
  box.hidden = false;
  const { matrix } = one,
    n = matrix.classes.length;
  const chart = chartBox("Share of each class’s test images by what they are taken for; the table has the largest confusions"),
    region = { role: "region", "aria-label": "Confusion matrix" },
    scroll = element("div", { className: "scroll both", tabIndex: 0, attributes: region }, chart);
  const room = Math.min(520, box.clientWidth - 170);
  let size = CELLS.findLast((pixels) => pixels * n <= room) ?? CELLS[0];
  const show = () => drawMatrix(chart, seen, one, size);
  const zoom = (text, label, by) =>
    element("button", {
      type: "button",
      textContent: text,
      attributes: { "aria-label": label },
      onclick: () => {
        size = CELLS[Math.max(0, Math.min(CELLS.length - 1, CELLS.indexOf(size) + by))];
        show();
      },
    });
  const pairs = matrix.shares
    .flatMap((row, t) => row.map((value, p) => [t, p, value]))
    .filter(([t, p, value]) => t !== p && value)
    .sort((a, b) => b[2] - a[2])
    .slice(0, CONFUSED);
  const name = (k) =>
    element("button", {
      type: "button",
      textContent: seen.nameOf(one, matrix.classes[k]),
      onclick: () => seen.go(matrix.classes[k]),
    });
  const table = element(
    "table",
    { className: "confused" },
    tableHead("Class", "Taken for", "Its test images"),
    element("tbody", {}, ...pairs.map(([t, p, value]) => tableRow(name(t), name(p), percent(value)))),
  );
  box.replaceChildren(
    element(
      "div",
      { className: "bar" },
      element(
        "div",
        {},
        element("h3", { textContent: "What is taken for what" }),
        note(
          `Test images of all ${n} classes after this step. Rows are true classes, columns what they are taken for, new classes last.`,
        ),
      ),
      element(
        "div",
        { className: "downloads", attributes: { role: "group", "aria-label": "Size of the matrix" } },
        zoom("\u2212", "Smaller cells", -1),
        zoom("+", "Larger cells", 1),
      ),
      chartTools(chart, {
        name: () => `confusion-step-${one.cell.step}`,
        title: "What is taken for what",
        columns: async () => confusionColumns(seen, one),
      }),
    ),
    element(
      "div",
      { className: "confusion" },
      scroll,
      part(
        "Largest confusions",
        pairs.length
          ? element(
              "div",
              { className: "scroll", tabIndex: 0, attributes: { role: "region", "aria-label": "Largest confusions" } },
              table,
            )
          : note("No test image is taken for another class."),
      ),
    ),
  );
  redraws.set(box, show);
  show();
}

function confusionColumns(seen, one) {
  const { classes, counts } = one.matrix,
    cells = counts.flatMap((row, t) => row.map((count, p) => [classes[t], classes[p], count])),
    name = (id) => seen.nameOf(one, id);
  return {
    class_id: cells.map(([id]) => id),
    class_name: cells.map(([id]) => name(id)),
    taken_for: cells.map(([, other]) => other),
    taken_for_name: cells.map(([, other]) => name(other)),
    images: cells.map(([, , count]) => count),
  };
}

function drawMatrix(box, seen, one, size) {
  const look = theme(),
    { classes, shares, counts } = one.matrix,
    n = classes.length,
    names = classes.map((id) => seen.nameOf(one, id)),
    labelled = size >= 9,
    room = labelled ? 110 : 20,
    labels = {
      tickmode: "array",
      tickvals: labelled ? classes.map((_, k) => k) : [],
      ticktext: names.map((name) => plain(shorten(name, 14))),
      tickfont: { size: Math.min(11, size), color: look.muted },
      showgrid: false,
      zeroline: false,
      automargin: false,
    };
  const edge = n - one.detail.new.length - 0.5,
    across = { type: "line", line: { color: look.muted, width: 1, dash: "dot" } };
  const cells = {
    z: shares.map((row) => row.map((value) => (value ? Math.sqrt(value) : null))), // few images show too
    zmin: 0,
    zmax: 1,
    type: "heatmap",
    colorscale: [
      [0, look.surface],
      [1, look.one],
    ],
    colorbar: {
      orientation: "h",
      title: { text: "share of a class\u2019s test images", side: "top", font: { size: 11.5, color: look.muted } },
      tickvals: SHARES.map(Math.sqrt),
      ticktext: SHARES.map(percent),
      tickfont: { size: 11.5, color: look.muted },
      thickness: 12,
      len: Math.max(SCALE, Math.min(320, n * size)),
      lenmode: "pixels",
      x: 0,
      xanchor: "left",
      xpad: 0,
      y: 0,
      yanchor: "top",
      outlinecolor: look.line,
    },
    hoverinfo: "none",
    hoverongaps: false,
    xgap: size > 6 ? 1 : 0,
    ygap: size > 6 ? 1 : 0,
  };
  const drawn = draw(box, [cells], {
    width: Math.max(SCALE, n * size) + room + 16,
    height: n * size + room + BELOW,
    margin: { l: room, t: room, r: 16 + Math.max(0, SCALE - n * size), b: BELOW },
    shapes: [
      { ...across, x0: edge, x1: edge, y0: -0.5, y1: n - 0.5 },
      { ...across, y0: edge, y1: edge, x0: -0.5, x1: n - 0.5 },
    ],
    xaxis: axis(look, "", { ...labels, side: "top", tickangle: -90, range: [-0.5, n - 0.5] }),
    yaxis: axis(look, "", { ...labels, range: [n - 0.5, -0.5] }),
  });
  return drawn.then(() =>
    tell(
      box,
      ({ x, y }) => [
        x === y ? `${names[y]}, recognised` : `${names[y]}, taken for ${names[x]}`,
        [["Of its test images", `${percent(shares[y][x])} (${counts[y][x]})`]],
        [thumbnail(seen.data, one.data, classes[y]), x === y ? null : thumbnail(seen.data, one.data, classes[x])].filter(
          Boolean,
        ),
      ],
      { onclick: ({ y }) => seen.go(classes[y]) },
    ),
  );
}
