// Figures: swarms of classes, curves along training, boxes of controlled experiments.

const partition = (row) => `${share(row.rehearsal_pct)} kept, +${share(row.class_pct)}`;

// Points of equal height side by side: each is moved away from the middle until it touches no other. In [-1, 1].
function swarmed(values, range, height, width) {
  const size = 6,
    placed = [],
    [low, high] = range;
  return values.map((value) => {
    const y = (height * (value - low)) / (high - low || 1);
    const free = (x) => placed.every(([px, py]) => (px - x) ** 2 + (py - y) ** 2 >= size * size);
    let x = 0;
    for (let k = 0; k < 2 * width && !free(x); k++) x = ((k % 2 ? -1 : 1) * Math.ceil((k + 1) / 2) * size) / 3;
    x = Math.max(-width / 2, Math.min(width / 2, x));
    placed.push([x, y]);
    return x / width;
  });
}

function swarmFigure(rows, width, look) {
  rows = rows.filter((row) => row.forgetting !== null);
  const parts = distinct(rows.map(partition)),
    increments = distinct(rows.map((row) => row.class_pct));
  const columnOf = (row) => `${partition(row)}|${row.swarm}`;
  const columns = distinct(rows.map(columnOf));
  const height = 440,
    fg = rows.map((row) => row.forgetting),
    range = [Math.min(...fg) - 0.04, Math.max(...fg) + 0.04];
  const total = paper.printing ? width : Math.max(width, 15 * columns.length + 80),
    room = (total - 80) / (columns.length + parts.length);
  const place = Object.fromEntries(columns.map((column, i) => [column, i + parts.indexOf(column.split("|")[0])]));
  const jitter = new Map();
  for (const column of columns) {
    const own = rows.filter((row) => columnOf(row) === column);
    const values = own.map((row) => row.forgetting);
    swarmed(values, range, height - 90, room).forEach((x, i) => jitter.set(own[i], x));
  }
  const traces = increments.map((increment, k) => {
    const own = rows.filter((row) => row.class_pct === increment),
      { colour, symbol } = series(look, k);
    return {
      x: own.map((row) => place[columnOf(row)] + jitter.get(row)),
      y: own.map((row) => row.forgetting),
      type: "scatter",
      mode: "markers",
      name: `${share(increment)} of the classes are new`,
      marker: { size: 5, color: colour, symbol, opacity: 0.8 },
      hoverinfo: "none",
      rows: own,
    };
  });
  const middle = (part) => {
    const own = columns.filter((column) => column.split("|")[0] === part).map((column) => place[column]);
    return (own[0] + own[own.length - 1]) / 2;
  };
  return [
    traces,
    {
      width: total,
      height,
      showlegend: increments.length > 1,
      margin: { l: 56, r: 12, t: 36, b: 60 },
      xaxis: axis(look, "", {
        tickvals: parts.map(middle),
        ticktext: parts.map((part) => part.replace(", ", "<br>")),
        showgrid: false,
        zeroline: false,
      }),
      yaxis: axis(look, "Forgetting", { range, zeroline: true }),
    },
  ];
}

// As in the paper: a row per subset of steps, a column per coefficient.
function courseFigure(rows, width, look) {
  rows = rows.filter((row) => row.statistic in STATISTICS && COEFFICIENTS.includes(row.quantity) && row.mean !== null);
  const subsets = distinct(rows.map((row) => row.subset)),
    traces = [],
    height = 120 + (width < 700 ? 170 : 230) * subsets.length,
    part = (i, n, gap) => [(i / n) * (1 + gap), (i / n) * (1 + gap) + (1 - gap * (n - 1)) / n];
  const layout = {
    width,
    height,
    showlegend: true,
    margin: { l: 56, r: 12, t: 70, b: 48 },
    annotations: [],
    legend: { orientation: "h", y: 1, yref: "container", yanchor: "top", x: 0, font: { color: look.ink } },
  };
  subsets.forEach((subset, s) =>
    COEFFICIENTS.forEach((quantity, c) => {
      const at = s * COEFFICIENTS.length + c,
        [x, y] = [axisOf("x", at), axisOf("y", at)],
        last = s === subsets.length - 1,
        across = part(c, COEFFICIENTS.length, 0.03),
        up = part(s, subsets.length, 34 / height).map((end) => 1 - end);
      layout[axisName("x", at)] = axis(look, last && c === 1 ? "Share of training" : "", {
        domain: across,
        anchor: y,
        tickformat: ".0%",
        tickvals: [0.25, 0.5, 0.75],
        showticklabels: last,
        range: [0, 1],
      });
      layout[axisName("y", at)] = axis(look, "", {
        domain: up.reverse(),
        anchor: x,
        matches: at ? "y" : undefined,
        showticklabels: c === 0,
      });
      const title = [c ? "" : `<b>Step ${word(subset)}</b> `, s ? "" : quantity].join(" "); // names in the first row alone: a phone is narrow
      layout.annotations.push(panelTitle(look, title, across[0], up[1]));
      Object.entries(STATISTICS).forEach(([statistic, name], q) => {
        const own = rows.filter((row) => row.subset === subset && row.quantity === quantity && row.statistic === statistic),
          { colour } = series(look, 2 * q), // blue and vermilion, as in documents
          { dash } = series(look, q),
          common = { x: own.map((row) => row.share), type: "scatter", mode: "lines", xaxis: x, yaxis: y };
        // ends: from a row to [low, high], null where it is unknown.
        const band = (ends, opacity) => {
          const known = own.filter((row) => ends(row)[0] !== null),
            shares = known.map((row) => row.share);
          return {
            ...common,
            x: [...shares, ...[...shares].reverse()],
            y: [...known.map((row) => ends(row)[1]), ...known.map((row) => ends(row)[0]).reverse()],
            fill: "toself",
            fillcolor: colour + opacity,
            line: { width: 0 },
            hoverinfo: "skip",
            legendgroup: statistic, // who hides the line hides its band
            showlegend: false,
          };
        };
        traces.push(
          band((row) => (row.sd === null ? [null] : [row.mean - row.sd, row.mean + row.sd]), "1a"),
          band((row) => [row.mean_lo, row.mean_hi], "40"),
          {
            ...common,
            y: own.map((row) => row.mean),
            name,
            legendgroup: statistic,
            showlegend: at === 0,
            line: { color: colour, dash, width: 2.2 },
            hovertemplate: `${quantity}, ${name} %{y:.2f} after %{x:.0%}<extra></extra>`,
          },
        );
      });
    }),
  );
  return [traces, layout];
}

// Boxes and whiskers are the analysis'; each point is a class.
function boxFigure(rows, width, look, summaries) {
  rows = rows.filter((row) => row.rho !== null);
  const where = (row) => `step ${row.subset}, ${partition(row)}`,
    steps = distinct(rows.map((row) => row.subset));
  const total = paper.printing ? width : Math.max(width, 62 * summaries.length + 80);
  const traces = summaries.flatMap((box, i) => {
    const own = rows.filter((row) => where(row) === where(box)),
      { colour, symbol } = series(look, steps.indexOf(box.subset));
    const shape = {
      x: [i],
      q1: [box.quartile_lo],
      median: [box.median],
      q3: [box.quartile_hi],
      lowerfence: [box.whisker_lo],
      upperfence: [box.whisker_hi],
      type: "box",
      width: 0.6,
      line: { color: colour, width: 1.6 },
      fillcolor: `${colour}22`,
      hoverinfo: "skip",
    };
    const points = {
      x: own.map((_, k) => i + 0.4 * (((k * 0.618) % 1) - 0.5)),
      y: own.map((row) => row.rho),
      type: "scatter",
      mode: "markers",
      marker: { size: 4.5, color: colour, symbol, opacity: 0.75 },
      hoverinfo: "none",
      rows: own,
    };
    return [shape, points];
  });
  const ticks = { tickvals: summaries.map((_, i) => i), ticktext: summaries.map((box) => where(box).split(", ").join("<br>")) };
  return [
    traces,
    {
      width: total,
      height: 420,
      margin: { l: 56, r: 12, t: 16, b: 80 },
      xaxis: axis(look, "", { ...ticks, showgrid: false, zeroline: false }),
      yaxis: axis(look, "Rank correlation of NIC and SIC", { zeroline: true }),
    },
  ];
}

const FIGURES = { swarm: swarmFigure, course: courseFigure, boxes: boxFigure };
const COEFFICIENTS = ["SIC", "CIC", "NIC"];
const STATISTICS = { rho: "alone (ρ)", rho_p: "given the other two (ρₚ)" };

// What a figure says of a class.
const CLASS_FACTS = {
  swarm: (row) => [
    ["Forgetting", decimal(row.forgetting)],
    ["Experiment", row.step_id.slice(0, 8)],
  ],
  boxes: (row) => [["Rank correlation", decimal(row.rho)]],
};

function drawFigure(box, data, title) {
  const rows = rowsOf(unpacked(data.frame)),
    boxes = data.boxes ? rowsOf(unpacked(data.boxes)) : [],
    groups = distinct(rows.map(policyOf)),
    view = { group: groups[0] };
  const chart = element("div", { className: "chart", attributes: { role: "img", "aria-label": title } }),
    scroll = element("div", { className: "scroll", tabIndex: 0, attributes: { role: "region", "aria-label": title } }, chart);
  const controls = element("div", { className: "controls" });
  const redraw = async () => {
    const own = rows.filter((row) => policyOf(row) === view.group),
      [traces, layout] = FIGURES[data.kind](
        own,
        paper.printing ? paper.width : scroll.clientWidth,
        theme(),
        boxes.filter((box) => policyOf(box) === view.group),
      );
    if (!traces.length) return leaveEmpty(chart, "Nothing was measured here.");
    await draw(chart, traces, layout);
    if (!CLASS_FACTS[data.kind]) return;
    const { data: sets, data_of } = await pack("explorer");
    const rowOf = ({ curveNumber, pointNumber }) => traces[curveNumber].rows?.[pointNumber];
    tell(
      chart,
      (point) => {
        const row = rowOf(point);
        return row && [row.class_name, CLASS_FACTS[data.kind](row), thumbnail(sets, data_of[row.benchmark], row.class_id)];
      },
      {
        onclick: (point) => {
          const row = rowOf(point);
          if (row) openClass({ benchmark: row.benchmark, experiment: row.step_id, class: row.class_id });
        },
      },
    );
  };
  if (groups.length > 1)
    controls.append(
      chooser("Benchmark", groups, (value) => {
        view.group = value;
        redraw();
      }).box,
    );
  box.replaceChildren(...(controls.children.length ? [controls] : []), scroll);
  redraws.set(chart, redraw);
  return redraw();
}
