// Words that have a definition: underlined where they stand first in a section, and explained on focus, pointing and tapping.
// Texts may hold class names, so that only text nodes are split, never markup.

// Of `words/definitions.toml`, by term; what is an everyday word as well is only taken where it means the term.
const definitionOf = new Map(
  [...document.querySelectorAll("#definitions dt")].map((term) => [term.textContent, term.nextElementSibling]),
);
const EVERYDAY = new Set(["at most", "experiment", "forecast", "matched", "by noise"]);
const SPELLED = {
  steps: "step",
  partitions: "partition",
  forgetting: "FG",
  "rank correlation": "ρ",
  "retained %": "retention",
  "increment %": "increment",
};
const meant = new Map([
  ...[...definitionOf.keys()].filter((term) => !EVERYDAY.has(term)).map((term) => [term, term]),
  ...Object.entries(SPELLED).filter(([, term]) => definitionOf.has(term)),
]);
const written = [...meant.keys()].sort((a, b) => b.length - a.length).join("|");
const TERMS = new RegExp(`(?<![\\p{L}\\p{N}_-])(?:${written})(?![\\p{L}\\p{N}_-])`, "giu");
const SECTIONS = ".lead, .how, .finding, .sentences, [data-terms], thead th, .cards dt, figcaption strong, #class .facts dt";
const UNMARKED = "a, button, summary, select, label, code, pre, svg, .term";

// SIC is not sic, but Step is step.
const termOf = (text) => meant.get(text) ?? (text === text.toUpperCase() ? undefined : meant.get(text.toLowerCase()));

function underlined(text, term) {
  const described = { role: "button", tabindex: 0, "aria-describedby": definitionOf.get(term).id };
  return element("span", { className: "term", textContent: text, attributes: described });
}

// Underlines what occurs for the first time in a section; a head that sorts is a button already, which then also explains.
function markTerms(section) {
  const sorter = section.tagName === "TH" ? section.querySelector("button") : null;
  if (sorter) {
    const term = [...sorter.textContent.matchAll(TERMS)].map(([text]) => termOf(text)).find(Boolean);
    if (term) sorter.setAttribute("aria-describedby", definitionOf.get(term).id);
    sorter.classList.toggle("term", Boolean(term));
    return;
  }
  const seen = new Set([...section.querySelectorAll(".term")].map((node) => node.getAttribute("aria-describedby"))),
    walker = document.createTreeWalker(section, NodeFilter.SHOW_TEXT),
    texts = [];
  while (walker.nextNode()) if (!walker.currentNode.parentElement.closest(UNMARKED)) texts.push(walker.currentNode);
  for (const node of texts) {
    const parts = [];
    let end = 0;
    for (const found of node.data.matchAll(TERMS)) {
      const term = termOf(found[0]),
        id = term && definitionOf.get(term).id;
      if (!term || seen.has(id)) continue;
      seen.add(id);
      parts.push(node.data.slice(end, found.index), underlined(found[0], term));
      end = found.index + found[0].length;
    }
    if (parts.length) node.replaceWith(...parts, node.data.slice(end));
  }
}

const explained = element("div", { id: "definition", hidden: true, attributes: { role: "tooltip" } });
let explaining = null;

function explain(node) {
  const meaning = byId(node.getAttribute("aria-describedby"));
  explaining = node;
  explained.replaceChildren(
    element("strong", { textContent: meaning.previousElementSibling.textContent }),
    ` ${meaning.textContent}`,
  );
  explained.hidden = false;
  const at = node.getBoundingClientRect(),
    below = at.bottom + explained.offsetHeight + 8 < innerHeight;
  explained.style.left = `${Math.max(8, Math.min(at.left, document.documentElement.clientWidth - explained.offsetWidth - 8))}px`;
  explained.style.top = `${below ? at.bottom : Math.max(8, at.top - explained.offsetHeight)}px`; // no gap, so that it can be pointed at
}

function stopExplaining() {
  explaining = null;
  explained.hidden = true;
}

const termAt = (event) => (event.target instanceof Element ? event.target.closest(".term") : null);
const within = (node) => node instanceof Node && (explained.contains(node) || explaining?.contains(node));

function startTerms() {
  document.body.append(explained);
  for (const section of document.querySelectorAll(SECTIONS)) markTerms(section);
  new MutationObserver((changes) => {
    const sections = new Set();
    for (const { target, addedNodes } of changes) {
      if (!(target instanceof HTMLElement)) continue; // charts, which change most
      const around = target.closest(SECTIONS);
      if (around) sections.add(around);
      for (const node of addedNodes)
        if (node instanceof HTMLElement)
          for (const one of [node, ...node.querySelectorAll(SECTIONS)]) if (one.matches(SECTIONS)) sections.add(one);
    }
    sections.forEach(markTerms);
  }).observe(document.body, { childList: true, subtree: true });
  document.addEventListener("pointerover", (event) => {
    const node = termAt(event);
    if (node && event.pointerType !== "touch") explain(node);
  });
  document.addEventListener("pointerout", (event) => {
    // from a word to its explanation and back it stays, for whoever enlarges the page or selects the text
    if (explaining && !within(event.relatedTarget) && !explaining.matches(":focus-visible")) stopExplaining();
  });
  document.addEventListener("focusin", (event) => {
    const node = termAt(event);
    if (node?.matches(":focus-visible")) explain(node);
  });
  document.addEventListener("focusout", stopExplaining);
  document.addEventListener("click", (event) => {
    const node = termAt(event);
    if (node) explain(node);
    else if (!within(event.target)) stopExplaining();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") stopExplaining();
    const node = termAt(event);
    if (!node || node.tagName === "BUTTON" || (event.key !== "Enter" && event.key !== " ")) return;
    event.preventDefault();
    explain(node);
  });
  addEventListener("scroll", () => explaining && explain(explaining), { passive: true, capture: true });
}

startTerms();
