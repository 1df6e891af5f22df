// Policies and methods beside a baseline: differences with their intervals on one axis, and every class in both.

const LONGEST = 60; // classes in a picture, those that changed most

// What a comparison of this kind shows, once its tab is opened.
const comparing = new Map();
const startCompared = (place) => comparing.get(place) ?? comparing.set(place, compare(place)).get(place);
const widthFor = (box) => (paper.printing ? paper.width - 44 : box.clientWidth); // out of sight it has none

async function compare(place) {
  const { baseline, quantities, rows, classes } = (await pack("compared"))[place.dataset.compared];
  if (!rows.length) return;
  const view = { quantity: rows[0].quantity, arm: 0 };
  const offered = Object.entries(quantities).filter(([name]) => rows.some((row) => row.quantity === name));
  const arms = [...new Map(classes.map((one) => [`${one.arm}|${one.where}`, one])).values()];
  const quantity = chooser("Quantity", offered, (value) => {
    view.quantity = value;
    forest();
  });
  const arm = chooser(
    "Compared",
    arms.map((one, i) => [i, `${one.arm}, ${one.where}`]),
    (value) => {
      view.arm = Number(value);
      dumbbells();
    },
  );
  const own = () => rows.filter((row) => row.quantity === view.quantity);
  const beside = () => {
    const { arm: name, where } = arms[view.arm];
    return classes.filter((one) => one.arm === name && one.where === where);
  };

  const forestChart = chartBox("Difference of each from the baseline with its 95 % interval; the table below has the numbers");
  const forestNote = element("p", { className: "how" });
  function forest() {
    const shown = own();
    forestNote.textContent =
      `Each minus ${baseline} within pairs, with its 95\u202f% interval: one that leaves out 0 shows a difference. ` +
      (view.quantity === "accuracy" || view.quantity === "new_accuracy" ? "Right is better." : "Left is better.");
    return draw(forestChart, ...forestOf(shown, quantities[view.quantity], widthFor(forestChart)));
  }

  const classChart = chartBox("Forgetting of each class with the baseline and with what is compared");
  const classNote = element("p", { className: "how" });
  async function dumbbells() {
    const shown = beside()
      .sort((a, b) => Math.abs(b.other - b.base) - Math.abs(a.other - a.base))
      .slice(0, LONGEST)
      .sort((a, b) => b.base - a.base);
    const cut = beside().length > shown.length ? ` The ${shown.length} of ${beside().length} classes that changed most.` : "";
    const { arm: name } = arms[view.arm];
    classNote.textContent =
      `Share of its accuracy that each past class lost, mean over pairs: with ${baseline} (ring) and with ${name} (dot). ` +
      `Blue lines are less forgetting, orange ones more; solid where the 95\u202f% interval of the difference leaves out 0. ` +
      `Classes that were barely learned are left out.${cut}`;
    await draw(classChart, ...dumbbellsOf(shown, widthFor(classChart)));
    const { data, data_of } = await pack("explorer");
    tell(
      classChart,
      (point) => {
        const one = shown[point.customdata];
        return one
          ? [one.class_name, classDifference(one, baseline), thumbnail(data, Object.values(data_of)[0], one.class_id)]
          : null;
      },
      {
        onclick: (point) =>
          shown[point.customdata] && openClass({ ...shown[point.customdata], class: shown[point.customdata].class_id }),
      },
    );
  }

  const id = place.dataset.compared;
  const card = (title, note, control, chart, columns, name) =>
    element(
      "section",
      { className: "card", attributes: { "aria-label": title } },
      element("h3", { textContent: title }),
      note,
      element("div", { className: "controls" }, control.box),
      chart,
      chartTools(chart, { name: () => `${id}-${name}`, title: `${title}, ${id}`, columns }),
    );
  const columnsOf = (found) =>
    Object.fromEntries(Object.keys(found[0] ?? {}).map((key) => [key, found.map((row) => row[key])]));
  place.replaceChildren(
    card("Differences", forestNote, quantity, forestChart, async () => columnsOf(own()), "differences"),
    ...(arms.length ? [card("Class by class", classNote, arm, classChart, async () => columnsOf(beside()), "classes")] : []),
  );
  redraws.set(forestChart, forest);
  await forest();
  if (!arms.length) return;
  redraws.set(classChart, dumbbells);
  await dumbbells();
}

const classDifference = (one, baseline) => [
  [`Lost with ${baseline}`, percent(one.base)],
  [`Lost with ${one.arm}`, percent(one.other)],
  ["Difference", estimate(one.other - one.base, one.low, one.high)],
  ["Pairs", String(one.n)],
];

// A line per row: a square and its interval, names on the left and numbers on the right, or both above it where it is narrow.
function forestOf(rows, title, width) {
  const look = theme(),
    narrow = width < 640,
    line = narrow ? 60 : 30,
    named = rows.map((row) => `${row.arm}, ${row.where}`),
    room = narrow ? 8 : Math.min(420, 20 + 6.4 * Math.max(...named.map((name) => name.length))),
    told = rows.map((row) => `${estimate(row.difference, row.low, row.high)}, n = ${row.n}`);
  const height = line * rows.length + 70,
    margin = { l: room, r: narrow ? 8 : 190, t: narrow ? 24 : 10, b: 60 };
  const known = rows.map((row, i) => ({ ...row, at: i })).filter((row) => row.difference !== null);
  const trace = {
    x: known.map((row) => row.difference),
    y: known.map((row) => row.at),
    type: "scatter",
    mode: "markers",
    hoverinfo: "none",
    marker: { symbol: "square", size: 9, color: look.one },
    error_x: {
      type: "data",
      symmetric: false,
      array: known.map((row) => (row.high ?? row.difference) - row.difference),
      arrayminus: known.map((row) => row.difference - (row.low ?? row.difference)),
      color: look.one,
      thickness: 2,
      width: 4,
    },
  };
  const text = (i, of, more) => ({
    text: plain(of),
    y: i,
    xref: "paper",
    showarrow: false,
    font: { size: 12, color: look.ink },
    ...more,
  });
  const annotations = rows.flatMap((_, i) =>
    narrow
      ? [
          text(i, "", {
            text: `${plain(shorten(named[i], 44))}<br>${told[i]}`,
            x: 0,
            xanchor: "left",
            align: "left",
            yshift: 23,
          }),
        ]
      : [
          text(i, shorten(named[i], 62), { x: 0, xanchor: "right", xshift: -10 }),
          text(i, told[i], { x: 1, xanchor: "left", xshift: 10 }),
        ],
  );
  const ends = known.flatMap((row) => [row.difference, row.low, row.high]).filter((value) => value !== null);
  const layout = {
    width,
    height,
    margin,
    annotations,
    xaxis: axis(look, narrow ? "Difference from the baseline" : `Difference of ${title}`, {
      range: span([0, ...ends], 0.08),
      zeroline: true,
      zerolinecolor: look.ink,
      nticks: narrow ? 5 : 8,
    }),
    yaxis: axis(look, "", {
      range: [rows.length - 0.4, -0.6],
      showticklabels: false,
      showgrid: false,
      zeroline: false,
      automargin: false,
    }),
  };
  return [[trace], layout];
}

// A line per class from the ring of the baseline to the dot of the other.
function dumbbellsOf(rows, width) {
  const look = theme(),
    narrow = width < 640,
    at = rows.map((_, i) => i),
    colour = (row) => (row.other <= row.base ? look.one : look.three),
    clear = (row) => row.low !== null && (row.low > 0 || row.high < 0);
  const ends = (key, marker) => ({
    x: rows.map((row) => row[key]),
    y: at,
    customdata: at,
    type: "scatter",
    mode: "markers",
    hoverinfo: "none",
    cliponaxis: false,
    marker,
  });
  const layout = {
    width,
    height: 20 * rows.length + 80,
    margin: { l: narrow ? 96 : 150, r: 16, t: 34, b: 46 },
    shapes: rows.map((row, i) => ({
      type: "line",
      x0: row.base,
      x1: row.other,
      y0: i,
      y1: i,
      layer: "below",
      line: { color: colour(row), width: 2.5, dash: clear(row) ? "solid" : "dot" },
    })),
    xaxis: axis(look, "Share of its accuracy that was lost", {
      tickformat: ".0%",
      range: span([0, ...rows.flatMap((row) => [row.base, row.other])]),
      nticks: narrow ? 5 : 9,
    }),
    yaxis: axis(look, "", {
      range: [rows.length - 0.4, -0.6],
      tickmode: "array",
      tickvals: at,
      ticktext: rows.map((row) => plain(shorten(row.class_name, narrow ? 13 : 20))),
      showgrid: false,
      zeroline: false,
      automargin: false,
    }),
  };
  return [
    [
      ends("base", { symbol: "circle-open", size: 10, color: look.muted, line: { width: 2, color: look.muted } }),
      ends("other", { symbol: "circle", size: 10, color: rows.map(colour) }),
    ],
    layout,
  ];
}
