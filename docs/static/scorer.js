// How hits of the search are ordered: headings that hold all of what was asked before pages that have its words somewhere, and
// what tells of the past after what holds now. `var`, because what follows this in Sphinx's file declares it again.
// oxlint-disable-next-line no-var
var Scorer = {
  score: ([page, , , , score, , kind]) => {
    const past = /^(decisions|project\/changelog)$/.test(page);
    return score + (kind === "title" ? 200 : 0) - (past ? 1000 : 0);
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
