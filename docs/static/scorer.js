// `var`, because what follows this in Sphinx's file declares it again.
// How hits of the search are ordered: as Sphinx does, but what tells of the past after what holds now.
var Scorer = {
  score: ([page, , , , , score]) => (/^(decisions|project\/changelog)$/.test(page) ? score - 100 : score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
