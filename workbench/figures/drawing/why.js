// Why a token has its colour: the terms of the sum, the facts about the token, and the tip that follows the pointer.
(() => {
  const H = (globalThis.WorkbenchHeatmap ??= {});
  if (H.whyTable) return; // a notebook holds one copy of this script per output
  const { el, number, signed, score, share, count, INVISIBLE } = H;

  function whyTable(data, r, why) {
    const terms = why.list ?? why.terms.flatMap(([first, last]) => r.terms.slice(first, last + 1));
    const names = [...new Set(terms.flatMap((term) => Object.keys(term.scores)))];
    const weight = (name) => terms.find((term) => name in term.weights)?.weights[name] ?? 1;
    // From the reward to what it adds, a column for each stage that some term goes through.
    const stages = [
      ["reward", "weighted sum of the reward functions' scores", (term) => score(term.reward), () => true],
      ["value", "what the scheme made of the reward and normalised", (term) => number(term.raw), (term) => term.reward === null || Math.abs(term.raw - term.reward) > 1e-9],
      ["mean", "of its pool", (term) => number(term.mean), (term) => term.mean !== null],
      ["std", "of its pool", (term) => number(term.std), (term) => term.std !== null],
      ["r̃", "normalised", (term) => signed(term.normalised, 4), () => true],
      ["×", "weight, discount or share", (term) => number(term.factor, 4), (term) => term.factor !== 1],
      ["adds", "to the token's advantage", (term) => signed(term.value, 4), (term) => term.factor !== 1],
    ].filter(([, , , needed]) => !terms.length || terms.some(needed));
    const head = el("tr", {}, el("th", { scope: "col" }, ""),
      ...names.map((name) => el("th", { scope: "col" }, ...name.split(/(?<=_)/).flatMap((part) => [part, el("wbr")]), weight(name) === 1 ? null : el("small", {}, ` × ${score(weight(name))}`))),
      ...stages.map(([name, title]) => el("th", { scope: "col", title }, name)));
    const rows = terms.map((term) => el("tr", {},
      el("th", { scope: "row" }, term.step !== null ? `step ${term.step + 1}` : term.source === "sum" ? "Σ steps" : "outcome"),
      ...names.map((name) => el("td", {}, name in term.scores ? score(term.scores[name]) : "")),
      ...stages.map(([, , text]) => el("td", {}, text(term)))));
    const foot = el("tr", {}, el("th", { scope: "row", colspan: names.length + stages.length },
      terms.length ? `sum of ${count(terms.length, "term")}` : "nothing is added to this token"), el("td", {}, signed(why.total, 4)));
    const table = el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows), el("tfoot", {}, foot));
    return el("div", { class: "terms", tabindex: 0, role: "region", "aria-label": "Terms of the advantage" }, table);
  }

  // What is known of a token, in rows [name, value, whether this is what it is coloured by].
  function facts(r, t, measure) {
    const k = r.stepOf[t];
    const step = k < 0 ? null : r.steps[k];
    const scores = step ? Object.entries(step.scores) : [];
    const end = r.offsets[t + 1];
    const astray = (r.steps ?? []).flatMap((other, j) => (j !== k && other.start >= r.offsets[t] && other.start < end && other.end > end ? [j] : []));
    const schemes = r.twin ? [[" A", r], [" B", r.twin]] : [["", r]];
    const of = (name, key, value, among = schemes) => among.map(([letter, one]) => [`${name}${letter}`, value(one), key]);
    const apart = (name, key, value) => of(name, key, value, r.twin && value(r) !== value(r.twin) ? schemes : [["", r]]); // one row where both say the same
    const coloured = (one) => {
      const value = measure.token(one, t);
      return value === null ? null : (measure.signed ? signed : number)(value, 4);
    };
    const rows = [
      ...of("advantage", "advantage", (one) => (one.advantages ? signed(one.advantages[t], 4) : null)),
      ...(!measure.derived ? [] : measure.one ? [[measure.label, coloured(r), measure.key]] : apart(measure.label, measure.key, coloured)),
      ["step", r.steps ? (step ? `${k + 1} of ${r.steps.length}` : "outside every step") : null],
      ...(step && scores.length > 1 ? scores.map(([name, value]) => [name, score(value)]) : []),
      ["step score", step ? score(step.reward) : null, "reward"],
      ["straddles", astray.length ? `the start of ${astray.map((other) => `step ${other + 1}`).join(", ")}` : null],
      ...(step ? apart("normalised", "normalised", (one) => (one.steps[k].normalised === null ? null : signed(one.steps[k].normalised, 4))) : []),
      ["log-prob", r.logprobs ? `${number(r.logprobs[t])}  p ${number(Math.exp(r.logprobs[t]), 3)}` : null, "logprob"],
      ["entropy", r.entropies ? number(r.entropies[t]) : null, "entropy"],
      ["reference", r.reference ? `${number(r.reference[t])}  p ${number(Math.exp(r.reference[t]), 3)}` : null],
      ["π / π_ref", r.reference && r.logprobs ? number(Math.exp(r.logprobs[t] - r.reference[t]), 3) : null],
      ["token", `${t}  id ${r.ids[t]}`],
    ];
    return rows.filter(([, value]) => value !== null).map(([name, value, key]) => [name, value, key === measure.key]);
  }

  const escaped = (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
  const short = (text) => (text.length > 200 ? `${text.slice(0, 200)}…` : text);
  const quoted = (text) => (text ? JSON.stringify(short(text)).replace(new RegExp(INVISIBLE, "g"), escaped) : "no character of its own");

  const SHOWN_TERMS = 6;
  // The sum in one line: what each term adds, the first of many.
  function sumLine(r, t) {
    const why = r.why?.find((one) => one.first <= t && t <= one.last);
    if (!why) return null;
    const terms = why.list ?? why.terms.flatMap(([first, last]) => r.terms.slice(first, last + 1));
    if (!terms.length) return null;
    const shown = terms.slice(0, SHOWN_TERMS).map((term) => `${signed(term.value, 3)} (${term.step !== null ? `step ${term.step + 1}` : term.source === "sum" ? "Σ steps" : "outcome"})`);
    return `= ${shown.join(" ")}${terms.length > SHOWN_TERMS ? ` and ${terms.length - SHOWN_TERMS} more` : ""}`;
  }

  function tipContent(r, t, measure) {
    const table = el("table", {}, ...facts(r, t, measure).map(([name, value, shown]) => el("tr", { class: shown ? "shown" : null }, el("th", { scope: "row" }, name), el("td", {}, value))));
    const line = sumLine(r, t);
    return [el("b", {}, quoted(r.texts[t])), table, ...(line ? [el("p", { class: "sum" }, line)] : [])];
  }

  Object.assign(H, { whyTable, facts, tipContent, quoted });
})();
