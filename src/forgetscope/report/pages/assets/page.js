// The page: tabs, links to exhibits, downloads, colour scheme, size and print.

const tabs = [...document.querySelectorAll('[role="tab"]')];
const panels = tabs.map((tab) => byId(tab.getAttribute("aria-controls")));
const started = new Set();
const onScreen = new IntersectionObserver(
  (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => showExhibit(entry.target)),
  { rootMargin: "600px" },
);

async function showExhibit(article) {
  if (started.has(article)) return;
  started.add(article);
  onScreen.unobserve(article);
  const data = (await pack("exhibits"))[article.dataset.exhibit],
    box = article.querySelector(".body"),
    title = article.querySelector("h3").firstChild.textContent.trim();
  await (data.kind ? drawFigure : drawTable)(box, data, title);
  box.removeAttribute("aria-busy");
  box.style.minHeight = ""; // it kept the place, so that links lead where they say
}

function start(panel) {
  if (started.has(panel)) return;
  started.add(panel);
  if (panel.id === "explorer") startExplorer();
  if (panel.id === "warning") startWarning();
  for (const article of panel.querySelectorAll("[data-exhibit]")) onScreen.observe(article);
}

function select(chosen, { focus = false } = {}) {
  tabs.forEach((tab, i) => {
    tab.setAttribute("aria-selected", String(tab === chosen));
    tab.tabIndex = tab === chosen ? 0 : -1;
    panels[i].hidden = tab !== chosen;
  });
  chosen.scrollIntoView({ block: "nearest", inline: "nearest" });
  if (focus) chosen.focus();
  start(panels[tabs.indexOf(chosen)]);
  refresh();
}

// Another section starts at its top, not where the one before was left; the header stays out of sight if it was.
function toTop() {
  const above = document.querySelector("header").offsetHeight;
  if (scrollY > above) scrollTo(0, above);
}

// Opens the tab that an address names, or the one that holds the exhibit which it names.
function follow() {
  const target = byId(openedId());
  const panel = target?.closest('[role="tabpanel"]');
  if (!panel) return;
  select(tabs[panels.indexOf(panel)]);
  if (target !== panel) showExhibit(target).then(() => target.scrollIntoView());
  else scrollTo(0, 0);
}

function turnTo(i, options) {
  writeState({}, panels[i].id);
  select(tabs[i], options);
  toTop();
}

for (const [i, tab] of tabs.entries()) {
  tab.onclick = () => turnTo(i);
  tab.onkeydown = (event) => {
    const move = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (move === undefined) return;
    event.preventDefault();
    turnTo((move + tabs.length) % tabs.length, { focus: true });
  };
}

for (const button of document.querySelectorAll("[data-download]")) {
  button.setAttribute("aria-label", `Download ${button.textContent}`);
  button.onclick = async () => {
    const article = button.closest("[data-exhibit]"),
      name = article.id;
    await showExhibit(article);
    const data = (await pack("exhibits"))[name];
    if (button.dataset.download === "csv")
      return save(`${name}.csv`, csv({ ...unpacked(data.frame), ...(data.paper ? unpacked(data.paper) : {}) }), "text/csv");
    if (button.dataset.download === "latex") return save(`${name}.tex`, data.latex, "application/x-tex");
    const chart = article.querySelector(".chart.drawn"),
      image = await Plotly.toImage(chart, { format: "svg", width: chart.layout.width, height: chart.layout.height });
    save(`${name}.svg`, decodeURIComponent(image.slice(image.indexOf(",") + 1)), "image/svg+xml");
  };
}

for (const bar of document.querySelectorAll("[data-interval]")) {
  const [value, low, high] = bar.dataset.interval.split(" ").map((text) => (text === "nan" ? null : Number(text)));
  bar.replaceWith(intervalBar(value, low, high, [-0.2, 1]));
}

// Everything is drawn before it is printed, in light colours and as wide as a sheet; then as it was.
async function prepareToPrint() {
  paper.printing = true;
  document.documentElement.classList.add("printing");
  start(byId("warning"));
  for (const article of document.querySelectorAll("[data-exhibit]")) await showExhibit(article);
  for (const [box, redraw] of redraws) if (box.isConnected && !box.closest("#explorer")) await redraw();
}

async function printAll() {
  await prepareToPrint();
  print();
  paper.printing = false;
  document.documentElement.classList.remove("printing");
  redrawAll();
}

const outdated = new Set(); // charts for another size or colour scheme; those out of sight wait
function refresh() {
  for (const box of [...outdated].filter((one) => one.offsetParent)) {
    outdated.delete(box);
    redraws.get(box)();
  }
}
function redrawAll() {
  for (const box of redraws.keys()) if (box.isConnected) outdated.add(box);
  refresh();
}
onNewLook(redrawAll);
addEventListener("scroll", hideTooltip, { passive: true });
addEventListener("hashchange", follow);
addEventListener("keydown", (event) => {
  if (event.key !== "p" || !(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey) return;
  event.preventDefault();
  printAll();
});
byId("print").onclick = printAll;
byId("contents").open = innerWidth > 640;
start(panels[0]);
follow();
addEventListener("load", () => setTimeout(loadPlotly, 800)); // while the headline is read, so that the first chart need not wait for it
