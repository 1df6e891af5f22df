// What can be done with a figure: enlarge it, and take it away as PNG, SVG or CSV.

const pixelsOf = (chart) => ({ width: chart.layout.width, height: chart.layout.height });

// A drawn chart as an SVG text.
async function svgOf(chart) {
  const image = await Plotly.toImage(chart, { format: "svg", ...pixelsOf(chart) });
  return decodeURIComponent(image.slice(image.indexOf(",") + 1));
}

// The same as the bytes of a PNG with twice as many pixels, on the surface that it has on the page.
async function pngOf(chart) {
  const { width, height } = pixelsOf(chart),
    image = new Image(),
    canvas = element("canvas", { width: 2 * width, height: 2 * height }),
    brush = canvas.getContext("2d");
  image.src = `data:image/svg+xml,${encodeURIComponent(await svgOf(chart))}`; // a blob the page's policy would refuse
  await image.decode();
  brush.fillStyle = theme().surface;
  brush.fillRect(0, 0, canvas.width, canvas.height);
  brush.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

const DOWNLOADS = {
  csv: async (name, { columns }) => save(`${name}.csv`, csv(await columns()), "text/csv"),
  latex: async (name, { latex }) => save(`${name}.tex`, await latex(), "application/x-tex"),
  svg: async (name, { chart }) => save(`${name}.svg`, await svgOf(chart()), "image/svg+xml"),
  png: async (name, { chart }) => save(`${name}.png`, await pngOf(chart()), "image/png"),
};

// Full-screen, where dragging zooms; what a point says and what a click does are those of the chart.
function enlarge(chart, title) {
  const box = element("div", { className: "chart", attributes: { role: "img", "aria-label": title } }),
    room = element("div", { className: "room" }, box),
    button = (textContent, onclick) => element("button", { type: "button", textContent, onclick }),
    bar = element(
      "div",
      { className: "bar" },
      element("h2", { textContent: title }),
      element(
        "div",
        { className: "downloads", attributes: { role: "group", "aria-label": "View" } },
        button("Zoom in", () => scaleAxes(box, 0.7)),
        button("Zoom out", () => scaleAxes(box, 1 / 0.7)),
        button("Whole", () => show()),
        button("Close", () => dialog.close()),
      ),
    ),
    dialog = element("dialog", { className: "enlarged", attributes: { "aria-label": title } }, bar, room);
  const show = () => {
    const layout = { ...structuredClone(chart.layout), width: room.clientWidth, height: room.clientHeight, dragmode: "zoom" };
    for (const name of Object.keys(layout).filter((one) => /^[xy]axis/.test(one))) layout[name].fixedrange = false;
    Plotly.newPlot(
      box,
      chart.data.map((trace) => ({ ...trace })),
      layout,
      { displayModeBar: false, showTips: false, doubleClick: "reset" },
    );
    box.listens = false; // of the plot before
    if (chart.told) tell(box, chart.told, { onclick: chart.chosen ? (point) => (dialog.close(), chart.chosen(point)) : null });
  };
  const home = byId("tooltip").parentElement;
  dialog.addEventListener("close", () => {
    hideTooltip();
    home.append(byId("tooltip"));
    redraws.delete(box);
    dialog.remove();
  });
  document.body.append(dialog);
  dialog.append(byId("tooltip")); // nothing outside of an open dialog is seen above it
  dialog.showModal();
  redraws.set(box, show);
  show();
}

// Around the middle of each axis; factors below 1 show less of it.
function scaleAxes(box, factor) {
  const changes = {};
  for (const [name, own] of Object.entries(box._fullLayout)) {
    if (!/^[xy]axis\d*$/.test(name)) continue;
    const [low, high] = own.range.map(Number),
      half = (factor * (high - low)) / 2;
    changes[`${name}.range`] = [(low + high) / 2 - half, (low + high) / 2 + half];
  }
  Plotly.relayout(box, changes);
}

// The buttons of a chart that is drawn in `box` now or later. name: of its files, from nothing, for it may change with what is
// shown. columns: from nothing to arrays by column, what it shows.
function chartTools(box, { name, title, columns }) {
  const choices = { chart: () => box, columns },
    button = (text, label, onclick) =>
      element("button", { type: "button", textContent: text, onclick, attributes: { "aria-label": label } });
  return element(
    "div",
    { className: "downloads", attributes: { role: "group", "aria-label": `Downloads of: ${title}` } },
    button("Enlarge", `Enlarge: ${title}`, () => box.classList.contains("drawn") && enlarge(box, title)),
    ...["png", "svg", "csv"].map((kind) =>
      button(kind.toUpperCase(), `Download ${kind.toUpperCase()}`, () => {
        if (kind === "csv" || box.classList.contains("drawn")) DOWNLOADS[kind](name(), choices);
      }),
    ),
  );
}
