// The page: tabs, links to exhibits, downloads, colour scheme, size and print.

const tabs = [...document.querySelectorAll('[role="tab"]')];
const panels = tabs.map((tab) => byId(tab.getAttribute("aria-controls")));
const started = new Set();
const titleOf = (article) => article.querySelector("h3").firstChild.textContent.trim();
const onScreen = new IntersectionObserver(
  (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => showExhibit(entry.target)),
  { rootMargin: "600px" },
);

async function showExhibit(article) {
  if (started.has(article)) return;
  started.add(article);
  onScreen.unobserve(article);
  const data = (await pack("exhibits"))[article.dataset.exhibit],
    box = article.querySelector(".body");
  await (data.kind ? drawFigure : drawTable)(box, data, titleOf(article));
  box.removeAttribute("aria-busy");
  box.style.minHeight = ""; // it kept the place, so that links lead where they say
}

function start(panel) {
  if (started.has(panel)) return;
  started.add(panel);
  if (panel.id === "explorer") startExplorer();
  if (panel.id === "warning") startWarning();
  panel.querySelectorAll("[data-compared]").forEach(startCompared);
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
  filterTables(readState().tables ?? "");
  const target = openedId() ? byId(openedId()) : panels[0]; // Back to where no section was named yet
  const panel = target?.closest('[role="tabpanel"]');
  if (!panel) return;
  const turned = panel.hidden;
  select(tabs[panels.indexOf(panel)]);
  const folded = target.closest("details");
  if (folded) folded.open = true;
  if (target.dataset.exhibit) showExhibit(target).then(() => target.scrollIntoView());
  else if (target !== panel) target.scrollIntoView();
  else if (turned) scrollTo(0, 0);
}

function turnTo(i, options) {
  writeState({}, panels[i].id);
  select(tabs[i], options);
  if (panels[i].id === "explorer") explore?.catchUp();
  if (panels[i].id === "warning") followWarning?.();
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

for (const article of document.querySelectorAll("[data-exhibit]")) {
  const exhibit = async () => {
      await showExhibit(article);
      return (await pack("exhibits"))[article.id];
    },
    choices = {
      columns: async () => {
        const { frame, paper: printed } = await exhibit();
        return { ...unpacked(frame), ...(printed ? unpacked(printed) : {}) };
      },
      latex: async () => (await exhibit()).latex,
      chart: () => article.querySelector(".chart.drawn"),
    };
  for (const button of article.querySelectorAll("[data-download]")) {
    button.setAttribute("aria-label", `Download ${button.textContent}`);
    button.onclick = () => exhibit().then(() => DOWNLOADS[button.dataset.download](article.id, choices));
  }
  const larger = article.querySelector("[data-enlarge]");
  if (larger) larger.onclick = () => exhibit().then(() => choices.chart() && enlarge(choices.chart(), titleOf(article)));
}

// The first screen is painted without its images, which are decoded for it then.
async function showImages() {
  await painted();
  const places = [...document.querySelectorAll("[data-image]")];
  if (!places.length) return;
  const { data, data_of } = await pack("explorer");
  for (const place of places) {
    const image = thumbnail(data, data_of[place.dataset.benchmark], place.dataset.image);
    if (image) image.removeAttribute("style"); // as large as its place
    place.replaceChildren(...(image ? [image] : []));
    place.hidden = !image;
  }
}
showImages();

for (const bar of document.querySelectorAll("[data-interval]")) {
  const [value, low, high] = bar.dataset.interval.split(" ").map((text) => (text === "nan" ? null : Number(text)));
  bar.replaceWith(intervalBar(value, low, high, [-0.2, 1]));
}

// Tables whose title, explanation or label has all these words; groups without any are hidden.
function filterTables(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean),
    all = [...byId("tables").querySelectorAll("[data-table]")];
  for (const table of all) {
    const own = ["h3", ".how", ".label"].map((part) => table.querySelector(part).textContent).join(" ");
    const group = table.closest(".group").querySelector("h2").firstChild.textContent;
    const told = `${own} ${group}`.toLowerCase();
    table.hidden = !words.every((word) => told.includes(word));
  }
  const left = all.filter((table) => !table.hidden);
  for (const part of byId("tables").querySelectorAll(".group, .blank")) {
    const own = left.filter((table) => part.contains(table));
    part.hidden = !own.length;
    if (part.matches(".blank") && words.length) part.open = true;
  }
  byId("filter").value = text;
  byId("filtered").textContent = words.length ? `${left.length} of ${all.length} tables` : "";
}
byId("filter").oninput = ({ target }) => {
  filterTables(target.value);
  writeState({ tables: target.value.trim() }, undefined, { ongoing: "filter" });
};

// Everything is drawn before it is printed, in light colours and as wide as a sheet; then as it was.
async function prepareToPrint() {
  paper.printing = true;
  document.documentElement.classList.add("printing");
  for (const panel of panels) if (panel.id !== "explorer") start(panel);
  for (const place of document.querySelectorAll("[data-compared]")) await startCompared(place);
  for (const article of document.querySelectorAll("[data-exhibit]")) await showExhibit(article);
  for (const [box, redraw] of redraws) if (box.isConnected && !box.closest("#explorer")) await redraw();
}

let preparing; // while it is printed, and before
const prepareOnce = () => (preparing ??= prepareToPrint());

async function printAll() {
  await prepareOnce();
  print();
}

// The browser does not wait: what is in memory by then is drawn, because nothing of it waits for more than a promise that was
// kept already. Before that, print.css says what is missing.
addEventListener("beforeprint", prepareOnce);
addEventListener("afterprint", async () => {
  await prepareOnce();
  preparing = null;
  paper.printing = false;
  document.documentElement.classList.remove("printing");
  redrawAll();
});

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
start(panels[0]);
follow();
// While the headline is read, so that neither the first chart nor a printer need wait for it.
async function readAhead() {
  await loadPlotly();
  for (const name of ["exhibits", "compared", "warning", "explorer"]) {
    await pack(name);
    await painted();
  }
}
addEventListener("load", () => setTimeout(readAhead, 800));
