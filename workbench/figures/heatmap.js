// The token heatmap: draws one group's payload (see heatmap.py) into an element of class "wh".
//
// The same script runs on the page, in a notebook's output and in the exported file, so it needs nothing but the
// element. Whatever a model wrote goes in through textContent only. The <pre> of a rollout has exactly the
// completion as its textContent: arrows for line ends, marks for invisible characters and the end-of-sequence sign
// are drawn by the style sheet.
(() => {
  if (globalThis.WorkbenchHeatmap) return; // a notebook holds one copy of this script per output

  const BINS = 10; // colour steps each side of zero; with zero itself 21
  const DRAWN_TOKENS = 20000; // of one rollout; more is a button away
  const DRAWN_CHARACTERS = 200000; // of one rollout, likewise
  const TOKEN_CHARACTERS = 20000; // of one token; the rest is in the full text
  const MINUS = "\u2212";

  // What tokens and step chips can be coloured by. `token` and `step` read a value, null where there is none; `r` is a
  // rollout, or its twin under the second scheme (r.twin) where two are compared.
  const MEASURES = [
    {
      key: "advantage", label: "advantage", signed: true,
      has: (data) => data.rollouts.some((r) => r.advantages),
      token: (r, t) => r.advantages[t],
      step: (r, k) => r.advantages[r.steps[k].last],
    },
    {
      key: "difference", label: "difference B − A", signed: true, one: true,
      has: (data) => Boolean(data.other),
      token: (r, t) => r.twin.advantages[t] - r.advantages[t],
      step: (r, k) => r.twin.advantages[r.steps[k].last] - r.advantages[r.steps[k].last],
    },
    // What a token weighs in the loss: its advantage times the loss's length normaliser (1 is an even share).
    ...["grpo", "bnpo", "dapo", "dr_grpo"].map((loss) => ({
      key: `weight-${loss}`, label: `weight in the ${loss} loss`, signed: true, loss,
      has: (data) => Boolean(data.normalisers),
      token: (r, t) => r.advantages[t] * r.normalisers[loss],
      step: (r, k) => r.advantages[r.steps[k].last] * r.normalisers[loss],
    })),
    {
      key: "reward", label: "step score", signed: true,
      has: (data) => data.rollouts.some((r) => r.steps?.some((s) => s.reward !== null)),
      token: (r, t) => ofStep(r, t, "reward"),
      step: (r, k) => r.steps[k].reward,
    },
    {
      key: "normalised", label: "normalised reward", signed: true,
      has: (data) => data.rollouts.some((r) => r.steps?.some((s) => s.normalised !== null)),
      token: (r, t) => ofStep(r, t, "normalised"),
      step: (r, k) => r.steps[k].normalised,
    },
    {
      key: "logprob", label: "log-prob", signed: false,
      has: (data) => data.rollouts.some((r) => r.logprobs),
      token: (r, t) => r.logprobs?.[t] ?? null,
      step: () => null,
    },
    {
      key: "entropy", label: "entropy", signed: false,
      has: (data) => data.rollouts.some((r) => r.entropies),
      token: (r, t) => r.entropies?.[t] ?? null,
      step: () => null,
    },
  ];

  // Characters that would otherwise be invisible or would reorder their neighbours.
  const INVISIBLE = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/;
  const SPECIAL = new RegExp(`[\\n\\r\\t\\ufffd]|[\\ud800-\\udfff]|${INVISIBLE.source}`);
  const PAIR = /^[\ud800-\udbff][\udc00-\udfff]$/;

  function ofStep(rollout, token, field) {
    const k = rollout.stepOf[token];
    return k < 0 ? null : rollout.steps[k][field];
  }

  function el(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "class") node.className = value;
      else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
    return node;
  }

  // Numbers as they are read: a true minus, no trailing noise, a dash for what is not there.
  function number(value, digits = 3) {
    if (value === null || value === undefined) return "–";
    const text = Math.abs(value).toFixed(digits);
    return Number(text) === 0 ? text : (value < 0 ? MINUS : "") + text;
  }
  function signed(value, digits = 3) {
    const text = number(value, digits);
    return value > 0 && Number(text) !== 0 ? `+${text}` : text;
  }
  function score(value) { // scores are mostly 0, 1 or a short decimal: as short as they are
    if (value === null || value === undefined) return "–";
    return number(value, Number.isInteger(value) ? 0 : Number.isInteger(value * 10) ? 1 : 2);
  }
  const glyph = (value) => (value > 0 ? "▲" : value < 0 ? "▼" : "·");
  const share = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(part && part / whole < 0.1 ? 1 : 0)} %` : "–");
  const count = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;
  const meanOf = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  function stdOf(values) { // ddof = 1, as the credit is computed with
    if (values.length < 2) return null;
    const mean = meanOf(values);
    return Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (values.length - 1));
  }

  // The colour scale ends at the 98th percentile of the size, so that one outlier does not pale everything else.
  function limitOf(data, measure) {
    const sizes = [];
    for (const r of data.rollouts) {
      for (let t = 0; t < r.texts.length; t++) {
        for (const one of r.twin && !measure.one ? [r, r.twin] : [r]) {
          const value = measure.token(one, t);
          if (value !== null) sizes.push(Math.abs(value));
        }
      }
    }
    if (!sizes.length) return 0;
    const sorted = Float64Array.from(sizes).sort();
    const clipped = sorted[Math.floor(0.98 * (sorted.length - 1))];
    return clipped || sorted[sorted.length - 1]; // mostly zeros: the scale is that of the rest
  }

  function tint(value, limit, measure) {
    if (value === null || value === undefined || !limit) return "";
    const bin = Math.max(-BINS, Math.min(BINS, Math.round((value / limit) * BINS)));
    if (!bin) return "";
    return `${measure.signed ? (bin > 0 ? "p" : "n") : "q"} s${Math.abs(bin)}`;
  }

  // Fills in what follows from the payload: character offsets of tokens, and the step each token belongs to.
  function prepare(data) {
    for (const r of data.rollouts) {
      const n = r.texts.length;
      r.offsets = new Int32Array(n + 1);
      for (let t = 0; t < n; t++) r.offsets[t + 1] = r.offsets[t] + r.texts[t].length;
      r.stepOf = new Int32Array(n).fill(-1);
      r.steps?.forEach((step, k) => r.stepOf.fill(k, step.first, step.last + 1));
      if (r.twin) r.twin = { ...r, ...r.twin, why: r.twin.why, terms: r.twin.terms, twin: null };
    }
    return data;
  }

  // ── one token ────────────────────────────────────────────────────────────────────────────────────────────────

  // Characters of a token that get an element of their own: line ends, tabs, invisible ones.
  function appendText(parent, text) {
    if (text.length > TOKEN_CHARACTERS) {
      appendText(parent, text.slice(0, TOKEN_CHARACTERS));
      parent.append(el("u", { class: "cut", "data-mark": `… ${(text.length - TOKEN_CHARACTERS).toLocaleString("en")} more characters` }));
      return;
    }
    if (!SPECIAL.test(text)) {
      parent.append(text);
      return;
    }
    let plain = "";
    const flush = () => { if (plain) parent.append(plain); plain = ""; };
    for (const character of text) {
      if (character === "\n") { flush(); parent.append(el("u", { class: "nl" }, character)); }
      else if (character === "\t") { flush(); parent.append(el("u", { class: "tab" }, character)); }
      else if (character === "\ufffd") { flush(); parent.append(el("u", { class: "bad" }, character)); }
      else if (character === "\r" || INVISIBLE.test(character) || (/[\ud800-\udfff]/.test(character) && !PAIR.test(character))) {
        flush();
        const code = character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
        parent.append(el("u", { class: "hidden-character", "data-mark": `U+${code}` }, el("s", {}, character)));
      } else plain += character;
    }
    flush();
  }

  // A token, cut where a step begins or ends inside it and where a match of the pattern does.
  function tokenElement(r, t, cuts) {
    const flips = r.twin && r.advantages[t] * r.twin.advantages[t] < 0;
    const node = el("i", { "data-t": t, class: flips ? "flips" : "" });
    const text = r.texts[t];
    const last = t === r.texts.length - 1;
    if (last && r.finished) {
      node.dataset.mark = text || "end";
      node.classList.add("eos");
      return node;
    }
    if (!text) {
      node.classList.add("empty");
      return node;
    }
    const start = r.offsets[t];
    const end = r.offsets[t + 1];
    while (cuts.next < cuts.length && cuts[cuts.next].at <= start) cuts.apply(cuts[cuts.next++]);
    if (!(cuts.next < cuts.length && cuts[cuts.next].at < end) && !cuts.inMatch && (cuts.step === r.stepOf[t] || cuts.step < 0)) {
      appendText(node, text);
      return node;
    }
    let from = start;
    while (from < end) {
      const to = cuts.next < cuts.length ? Math.min(end, cuts[cuts.next].at) : end;
      if (to > from) {
        // Characters of a step that the token as a whole does not belong to are marked as straddling.
        const astray = cuts.step >= 0 && cuts.step !== r.stepOf[t];
        const part = text.slice(from - start, to - start);
        const name = `${cuts.inMatch ? "match " : ""}${astray ? "astray" : ""}`.trim();
        const opens = astray && r.steps[cuts.step].start === from ? cuts.step + 1 : null;
        if (name) appendText(node.appendChild(el("span", { class: name, "data-n": opens })), part);
        else appendText(node, part);
        if (astray) node.classList.add("straddles");
      }
      from = to;
      while (cuts.next < cuts.length && cuts[cuts.next].at <= from && from < end) cuts.apply(cuts[cuts.next++]);
    }
    return node;
  }

  // Places inside the text where something changes, in order, with the state walked so far.
  function cutsOf(r) {
    const cuts = [];
    r.steps?.forEach((step, k) => {
      cuts.push({ at: step.end, order: 0, step: -1 });
      cuts.push({ at: step.start, order: 1, step: k });
    });
    for (const [start, end] of r.matches ?? []) {
      if (end > start) cuts.push({ at: start, order: 1, match: true }, { at: end, order: 0, match: false });
    }
    cuts.sort((a, b) => a.at - b.at || a.order - b.order);
    cuts.next = 0;
    cuts.step = -1;
    cuts.inMatch = false;
    cuts.apply = (cut) => {
      if (cut.step !== undefined) cuts.step = cut.step;
      if (cut.match !== undefined) cuts.inMatch = cut.match;
    };
    return cuts;
  }

  // ── one rollout ──────────────────────────────────────────────────────────────────────────────────────────────

  // Two schemes: the same text twice, A and B, each under its own name.
  function textElements(data, r, drawn) {
    if (!r.twin) return textElement(r, drawn);
    const pane = (letter, scheme, text) => el("div", { class: `pane ${letter}` }, el("h4", {}, `${letter.toUpperCase()} `, el("span", {}, scheme)), text);
    const second = textElement(r, drawn);
    second.classList.add("second");
    for (const step of second.querySelectorAll(".step")) step.removeAttribute("tabindex");
    return el("div", { class: "panes" }, pane("a", data.scheme, textElement(r, drawn)), pane("b", data.other.scheme, second));
  }

  function textElement(r, drawn) {
    const pre = el("pre", { class: "text" });
    const cuts = cutsOf(r);
    let holder = null;
    let current = null;
    for (let t = 0; t < drawn; t++) {
      const k = r.stepOf[t];
      if (k !== current) {
        current = k;
        if (k < 0) holder = el("span", { class: r.steps ? "outside" : "" });
        else {
          // The number stands where the step's text begins, which may be inside the token before its first one.
          const opensHere = r.matched !== false && r.steps[k].start >= r.offsets[t];
          holder = el("span", {
            class: "step", "data-k": k, "data-n": opensHere ? k + 1 : null, role: "button", tabindex: -1,
            "aria-label": stepLabel(r, k),
          });
        }
        pre.append(holder);
      }
      holder.append(tokenElement(r, t, cuts));
    }
    return pre;
  }

  function stepLabel(r, k) {
    const step = r.steps[k];
    return `step ${k + 1} of ${r.steps.length}, score ${score(step.reward)}, advantage ${signed(r.advantages[step.last], 2)}`;
  }

  function chips(r) {
    const key = el("span", { class: "key", "aria-hidden": "true" }, el("span", {}, "step, r"), el("span", {}, "adv."));
    return el("div", { class: "chips" }, key, ...r.steps.map((step, k) => {
      const advantage = r.advantages[step.last];
      return el("button", { type: "button", class: "chip", "data-k": k, tabindex: -1, "aria-label": stepLabel(r, k) },
        el("b", {}, `${k + 1}`),
        el("span", { class: "r" }, score(step.reward)),
        el("span", { class: "a" }, `${glyph(advantage)}${number(Math.abs(advantage), 2)}`));
    }));
  }

  const sumOfSteps = (r) => {
    const scored = r.steps.map((s) => s.reward).filter((value) => value !== null);
    return scored.length ? scored.reduce((a, b) => a + b, 0) : null;
  };

  function card(data, r, g, drawnTokens) {
    const total = data.rollouts.length;
    const fact = (name, value, title) => el("span", { class: "fact", title }, el("em", {}, name), value);
    const facts = [];
    if (r.steps) {
      if (r.outcome !== null && r.outcome !== undefined) facts.push(fact("R", score(r.outcome), "outcome reward"));
      facts.push(fact("Σr", score(sumOfSteps(r)), "sum of the step rewards"));
      facts.push(fact("", r.matched ? count(r.steps.length, "step") : "no step", null));
    }
    facts.push(fact("", count(r.texts.length, "token"), null));
    const marks = [];
    if (r.steps && !r.matched) marks.push(el("mark", { title: "The step pattern found nothing: the whole completion counts as one step" }, "no match"));
    if (!r.finished) marks.push(el("mark", { title: "No end-of-sequence token: the length limit cut it off" }, "truncated"));
    let drawn = Math.min(r.texts.length, drawnTokens);
    if (drawnTokens !== Infinity) while (drawn > 1 && r.offsets[drawn] > DRAWN_CHARACTERS) drawn--;
    const article = el("article", { class: "rollout", "data-g": g, "aria-label": `Rollout ${g + 1} of ${total}` },
      el("header", {},
        el("h3", {}, `${g + 1}`),
        ...facts, ...marks,
        r.rank ? el("span", { class: "rank", title: "rank in the group by reward" }, `rank ${r.rank}`) : null),
      r.steps && r.steps.length ? chips(r) : null,
      textElements(data, r, drawn));
    if (drawn < r.texts.length) {
      article.append(el("button", { type: "button", class: "more", "data-more": g }, `Draw ${r.texts.length - drawn} more tokens`));
    }
    if (drawn < r.texts.length || r.texts.some((text) => text.length > TOKEN_CHARACTERS)) article.append(fullText(r, g));
    return article;
  }

  // A link to the whole of a text that is too long to draw, as a file of plain text that never leaves the browser.
  function fullText(r, g) {
    const link = el("a", { class: "more", href: "#", download: `rollout-${g + 1}.txt` }, `Full text, ${r.offsets[r.texts.length].toLocaleString("en")} characters`);
    link.addEventListener("click", () => {
      const url = URL.createObjectURL(new Blob(r.texts, { type: "text/plain;charset=utf-8" }));
      link.href = url;
      setTimeout(() => URL.revokeObjectURL(url), 60000);
    });
    return link;
  }

  // Rank by total reward, 1 is best, equal totals share a rank.
  function rank(data) {
    const totals = data.rollouts.map((r) => {
      if (!r.steps) return null;
      const steps = sumOfSteps(r);
      return steps === null && r.outcome == null ? null : (steps ?? 0) + (r.outcome ?? 0);
    });
    data.rollouts.forEach((r, g) => {
      r.rank = totals[g] === null ? null : 1 + totals.filter((other) => other !== null && other > totals[g]).length;
    });
  }

  // ── the line about the whole group ───────────────────────────────────────────────────────────────────────────

  function summary(data) {
    const rollouts = data.rollouts;
    const steps = rollouts.flatMap((r) => r.steps ?? []);
    const rewards = steps.map((s) => s.reward).filter((value) => value !== null);
    const outcomes = rollouts.map((r) => r.outcome).filter((value) => value !== null && value !== undefined);
    const characters = rollouts.reduce((sum, r) => sum + r.offsets[r.texts.length - (r.finished ? 1 : 0)], 0);
    const covered = steps.reduce((sum, s) => sum + s.end - s.start, 0);
    const items = [];
    const item = (value, name, bad = false) => items.push(el("span", { class: bad ? "bad" : null }, el("b", {}, value), ` ${name}`));
    item(`${rollouts.length}`, "rollouts");
    item(number(steps.length / rollouts.length, 1), "steps each");
    if (rewards.length) item(`${number(meanOf(rewards), 2)} ± ${number(stdOf(rewards), 2)}`, "step reward");
    if (outcomes.length) item(`${number(meanOf(outcomes), 2)} ± ${number(stdOf(outcomes), 2)}`, "outcome");
    if (rewards.length < steps.length) item(`${steps.length - rewards.length}`, "unscored");
    item(share(characters - covered, characters), "text outside steps");
    const unmatched = rollouts.filter((r) => r.matched === false).length;
    if (unmatched) item(`${unmatched}`, "without a match", true);
    const truncated = rollouts.filter((r) => !r.finished).length;
    item(`${truncated}`, "truncated", truncated > 0);
    return items;
  }

  // ── two schemes of one group ─────────────────────────────────────────────────────────────────────────────────

  function comparison(data, pin) {
    const other = data.other;
    const line = el("p", {}, el("b", {}, "A"), ` ${data.scheme}  `, el("b", {}, "B"), ` ${other.scheme}: `,
      el("b", {}, share(other.flippedShare, 1)), " of the tokens change sign ", el("i", { class: "flips sample" }, "like this"), ", ",
      el("b", {}, other.correlation === null ? "no correlation (one is constant)" : `r = ${number(other.correlation, 2)}`),
      ", mean |B − A| ", el("b", {}, number(other.meanDifference, 2)));
    const rows = data.rollouts.flatMap((r, g) => r.steps.map((step, k) => {
      const mean = (values) => meanOf(values.slice(step.first, step.last + 1));
      const [a, b] = [mean(r.advantages), mean(r.twin.advantages)];
      let flipped = 0;
      for (let t = step.first; t <= step.last; t++) flipped += r.advantages[t] * r.twin.advantages[t] < 0 ? 1 : 0;
      return el("tr", { class: flipped ? "flipped" : null },
        el("th", { scope: "row" }, el("button", { type: "button", onclick: () => pin(g, step.last) }, `rollout ${g + 1}, step ${k + 1}`)),
        el("td", {}, score(step.reward)), el("td", {}, `${step.last - step.first + 1}`), el("td", {}, signed(a, 3)), el("td", {}, signed(b, 3)),
        el("td", {}, signed(b - a, 3)), el("td", {}, flipped ? `${flipped}` : ""));
    }));
    const head = ["", "reward", "tokens", "A", "B", "B − A", "change sign"].map((name) => el("th", { scope: "col" }, name));
    return [line, el("details", {}, el("summary", {}, `Step by step (${rows.length})`),
      el("div", { class: "terms", tabindex: 0, role: "region", "aria-label": "Steps under both schemes" }, el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows))))];
  }

  // ── why this colour ──────────────────────────────────────────────────────────────────────────────────────────

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
      ...names.map((name) => el("th", { scope: "col" }, name, weight(name) === 1 ? null : el("small", {}, ` × ${score(weight(name))}`))),
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

  function facts(r, t) {
    const k = r.stepOf[t];
    const step = k < 0 ? null : r.steps[k];
    const scores = step ? Object.entries(step.scores) : [];
    const end = r.offsets[t + 1];
    const astray = (r.steps ?? []).flatMap((other, j) => (j !== k && other.start >= r.offsets[t] && other.start < end && other.end > end ? [j] : []));
    const rows = [
      [r.twin ? "advantage A" : "advantage", r.advantages ? signed(r.advantages[t], 4) : null],
      ["advantage B", r.twin ? signed(r.twin.advantages[t], 4) : null],
      ["step", r.steps ? (step ? `${k + 1} of ${r.steps.length}` : "outside every step") : null],
      ...(step && scores.length > 1 ? scores.map(([name, value]) => [name, score(value)]) : []),
      ["step score", step ? score(step.reward) : null],
      ["straddles", astray.length ? `the start of ${astray.map((other) => `step ${other + 1}`).join(", ")}` : null],
      ["normalised", step && step.normalised !== null ? signed(step.normalised, 4) : null],
      ["log-prob", r.logprobs ? `${number(r.logprobs[t])}  p ${number(Math.exp(r.logprobs[t]), 3)}` : null],
      ["entropy", r.entropies ? number(r.entropies[t]) : null],
      ["token", `${t}  id ${r.ids[t]}`],
    ];
    return rows.filter(([, value]) => value !== null);
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

  function tipContent(r, t) {
    const table = el("table", {}, ...facts(r, t).map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, value))));
    const line = sumLine(r, t);
    return [el("b", {}, quoted(r.texts[t])), table, ...(line ? [el("p", { class: "sum" }, line)] : [])];
  }

  // ── the whole ────────────────────────────────────────────────────────────────────────────────────────────────

  // `explain(rollout, token)` promises the reason of a token where the payload has none; `onPin` hears what is pinned.
  function mount(root, { onPin = null, explain = null } = {}) {
    let data = null;
    let measure = MEASURES[0];
    let order = "sampled";
    let pinned = null; // {g, t}: kept through redraws, so that its numbers follow an edit
    let limit = 0;
    let drawnTokens = DRAWN_TOKENS;
    let streams = null;

    const swatches = el("span", { class: "swatches", role: "img" });
    const low = el("span", { class: "end" });
    const high = el("span", { class: "end" });
    const colourBy = el("select", { "aria-label": "Colour by", class: "colour-by", onchange: () => choose(colourBy.value) });
    const orderBy = el("select", { "aria-label": "Order", class: "order-by", onchange: () => { order = orderBy.value; sort(); } },
      el("option", { value: "sampled" }, "as sampled"), el("option", { value: "best" }, "best first"));
    const about = el("div", { class: "summary" });
    const notices = el("div", { class: "notices" });
    const compared = el("div", { class: "compared" });
    const cards = el("div", { class: "cards" });
    const details = el("section", { class: "details", "aria-label": "Why this colour", hidden: true });
    const tip = el("div", { class: "tip", role: "tooltip", hidden: true });
    const legend = el("div", { class: "legend" },
      el("label", {}, "Colour by ", colourBy), el("span", { class: "scale" }, low, swatches, high), el("label", { class: "order" }, "Order ", orderBy));
    root.classList.add("wh");
    root.replaceChildren(about, notices, compared, legend, cards, details, tip);
    legend.hidden = true;

    const rolloutAt = (node) => {
      const article = node.closest(".rollout");
      return article && Number(article.dataset.g);
    };
    const STEPS = ".text:not(.second) .step"; // those the keyboard moves over
    const stepElement = (g, k) => cards.querySelector(`.rollout[data-g="${g}"] ${STEPS}[data-k="${k}"]`);

    function draw(payload) {
      const focus = document.activeElement?.closest?.(".step, .chip");
      const focused = focus && cards.contains(focus) ? { g: rolloutAt(focus), k: focus.dataset.k, chip: focus.classList.contains("chip") } : null;
      data = prepare(typeof payload === "string" ? JSON.parse(payload) : payload);
      streams = null;
      drawnTokens = DRAWN_TOKENS;
      rank(data);
      const available = MEASURES.filter((one) => one.has(data));
      if (!available.includes(measure)) measure = available[0] ?? MEASURES[0];
      colourBy.replaceChildren(...available.map((one) => el("option", { value: one.key, selected: one === measure }, one.label)));
      about.replaceChildren(...(data.rollouts.some((r) => r.steps) ? summary(data) : []));
      notices.replaceChildren(...noticesOf(data));
      compared.replaceChildren(...(data.other ? comparison(data, pin) : []));
      cards.classList.toggle("two", Boolean(data.other));
      legend.hidden = !available.length;
      const long = data.rollouts.reduce((sum, r) => sum + r.texts.length, 0) > 8000;
      cards.classList.toggle("long", long);
      cards.replaceChildren(...data.rollouts.map((r, g) => card(data, r, g, drawnTokens)));
      root.classList.remove("dim");
      colour();
      sort();
      tip.hidden = true;
      const first = cards.querySelector(STEPS);
      if (first) first.tabIndex = 0;
      if (focused) {
        const kind = focused.chip ? ".chip" : STEPS;
        cards.querySelector(`.rollout[data-g="${focused.g}"] ${kind}[data-k="${focused.k}"]`)?.focus({ preventScroll: true });
      }
      if (pinned && !(data.rollouts[pinned.g]?.advantages && pinned.t < data.rollouts[pinned.g].texts.length)) unpin();
      else if (pinned) showPinned();
    }

    function noticesOf() {
      const lines = [];
      if (data.rollouts.some((r) => r.steps) && data.spread === false) {
        lines.push("No spread: the advantage is 0, there is nothing to learn from this group.");
      }
      return [...lines, ...(data.warnings ?? [])].map((line) => el("p", { role: "status" }, line));
    }

    // Tints every token and chip for the chosen measure without rebuilding anything.
    function colour() {
      limit = limitOf(data, measure);
      cards.classList.toggle("one", Boolean(measure.one));
      for (const article of cards.children) {
        const r = data.rollouts[Number(article.dataset.g)];
        for (const node of article.querySelectorAll(".text i")) {
          const t = Number(node.dataset.t);
          const kinds = ["eos", "empty", "straddles", "flips", "pinned"].filter((name) => node.classList.contains(name));
          const own = r.twin && !measure.one && node.closest(".second") ? r.twin : r;
          node.className = [...kinds, tint(measure.token(own, t), limit, measure)].join(" ").trim();
        }
        for (const node of article.querySelectorAll(".chip")) {
          const k = Number(node.dataset.k);
          const value = measure.signed ? measure.step(r, k) : null;
          node.className = `chip ${tint(value, limit, measure)}`.trim();
          if (pinned && pinned.g === Number(article.dataset.g) && r.stepOf[pinned.t] === k) node.classList.add("pinned");
        }
      }
      const digits = limit >= 10 ? 1 : 2;
      const bins = Array.from({ length: measure.signed ? 2 * BINS + 1 : BINS + 1 }, (_, i) => (measure.signed ? i - BINS : i));
      low.textContent = measure.signed ? number(-limit, digits) : "0";
      high.textContent = measure.signed ? signed(limit, digits) : number(measure.key === "logprob" ? -limit : limit, digits);
      swatches.replaceChildren(...bins.map((bin) => el("i", { class: bin ? `${measure.signed ? (bin > 0 ? "p" : "n") : "q"} s${Math.abs(bin)}` : "" })));
      swatches.setAttribute("aria-label", measure.signed
        ? `Colour scale: orange below zero, blue above, ends at ${number(limit, 2)}, the 98th percentile`
        : `Colour scale from 0 to ${number(limit, 2)}, the 98th percentile`);
      swatches.title = "ends at the 98th percentile";
    }

    function choose(key) {
      measure = MEASURES.find((one) => one.key === key);
      colour();
    }

    function sort() {
      const ranked = [...cards.children].sort((a, b) => {
        const [x, y] = [Number(a.dataset.g), Number(b.dataset.g)];
        return (order === "best" ? (data.rollouts[x].rank ?? 0) - (data.rollouts[y].rank ?? 0) : 0) || x - y;
      });
      if (ranked.some((node, i) => node !== cards.children[i])) cards.append(...ranked);
    }

    // Texts that grow while a group is being sampled: one text node a rollout, nothing to colour yet.
    function stream(texts, finished = []) {
      if (!streams || streams.length !== texts.length) {
        unpin();
        legend.hidden = true;
        about.replaceChildren();
        notices.replaceChildren();
        compared.replaceChildren();
        root.classList.remove("dim");
        streams = texts.map((_, g) => ({ text: document.createTextNode(""), mark: el("span", { class: "fact" }), g }));
        cards.replaceChildren(...streams.map((one) => el("article", { class: "rollout streaming", "data-g": one.g, "aria-label": `Rollout ${one.g + 1} of ${texts.length}, being sampled` },
          el("header", {}, el("h3", {}, `${one.g + 1}`), one.mark), el("pre", { class: "text" }, one.text))));
      }
      texts.forEach((text, g) => {
        if (streams[g].text.data !== text) streams[g].text.data = text;
        streams[g].mark.textContent = finished[g] ? "finished" : "sampling …";
      });
    }

    function pin(g, t) {
      pinned = { g, t };
      tip.hidden = true;
      showPinned();
      onPin?.(pinned);
    }

    function unpin() {
      if (!pinned) return;
      const { g, t } = pinned;
      pinned = null;
      details.hidden = true;
      for (const node of cards.querySelectorAll(".pinned")) node.classList.remove("pinned");
      const k = data?.rollouts[g]?.stepOf?.[t];
      if (details.contains(document.activeElement) && k !== undefined) stepElement(g, k)?.focus({ preventScroll: true });
      onPin?.(null);
    }

    function showPinned() {
      const { g, t } = pinned;
      const r = data.rollouts[g];
      const k = r.stepOf[t];
      for (const node of cards.querySelectorAll(".pinned")) node.classList.remove("pinned");
      if (k >= 0) for (const node of cards.querySelectorAll(`.rollout[data-g="${g}"] [data-k="${k}"]`)) node.classList.add("pinned");
      for (const node of cards.querySelectorAll(`.rollout[data-g="${g}"] .text i[data-t="${t}"]`)) node.classList.add("pinned");
      const where = `rollout ${g + 1} · ${k < 0 ? "outside every step" : `step ${k + 1}`} · token ${t} `;
      details.replaceChildren(
        el("header", {},
          el("h4", {}, "Why this colour"), el("span", { class: "where" }, where, el("code", {}, quoted(r.texts[t]))),
          el("button", { type: "button", class: "close", "aria-label": "Unpin", title: "Unpin (Esc)", onclick: unpin }, "Esc")),
        el("div", { class: "body" },
          el("dl", {}, ...facts(r, t).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
          reason(data, r, g, t, "a"), r.twin ? reason(data.other, r.twin, g, t, "b") : null));
      details.hidden = false;
    }

    // The formula and the terms of one token under one scheme; asked for where the payload did not bring them.
    function reason(credit, r, g, t, which) {
      const why = r.why?.find((one) => one.first <= t && t <= one.last);
      if (!why) {
        if (r.advantages && explain) {
          const [asked, shown] = [pinned, data];
          explain(g, t, which).then((answer) => {
            if (!answer || asked !== pinned || shown !== data) return; // another token or another drawing by now
            (r.why ??= []).push(answer);
            showPinned();
          }, () => {}); // the rest of the details stands without it
        }
        return null;
      }
      const clipped = why.clip !== null && why.clip !== undefined && Math.abs(why.total) > why.clip;
      return el("div", { class: "reason" },
        el("p", { class: "formula" }, el("b", {}, data.other ? `${which.toUpperCase()} ${credit.scheme}` : credit.scheme), ` ${credit.formula}`),
        whyTable(credit, r, why),
        clipped ? el("p", {}, `clipped to ±${score(why.clip)}: the advantage is ${signed(r.advantages[t], 4)}`) : null);
    }

    // Moves the focus over steps: left and right along the rollout and on into the next, up and down between rollouts.
    function move(from, key) {
      const steps = [...cards.querySelectorAll(STEPS)];
      const here = steps.indexOf(from);
      let target = null;
      if (key === "ArrowRight") target = steps[here + 1];
      else if (key === "ArrowLeft") target = steps[here - 1];
      else if (key === "Home") target = steps[0];
      else if (key === "End") target = steps[steps.length - 1];
      else {
        const articles = [...cards.children];
        const at = articles.indexOf(from.closest(".rollout")) + (key === "ArrowDown" ? 1 : -1);
        const candidates = articles[at] ? [...articles[at].querySelectorAll(STEPS)] : [];
        target = candidates[Math.min(Number(from.dataset.k), candidates.length - 1)];
      }
      if (!target) return;
      from.tabIndex = -1;
      target.tabIndex = 0;
      target.focus();
    }

    root.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && pinned) {
        unpin();
        return;
      }
      const step = event.target.closest?.(STEPS);
      if (!step) return;
      if (["ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown", "Home", "End"].includes(event.key)) {
        event.preventDefault();
        move(step, event.key);
      } else if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        const g = rolloutAt(step);
        pin(g, data.rollouts[g].steps[Number(step.dataset.k)].last);
      }
    });

    cards.addEventListener("click", (event) => {
      const more = event.target.closest("[data-more]");
      if (more) {
        const g = Number(more.dataset.more);
        more.closest(".rollout").replaceWith(card(data, data.rollouts[g], g, Infinity));
        colour();
        return;
      }
      if (!data || streams || String(getSelection())) return; // selecting text is not pinning
      const g = rolloutAt(event.target);
      const token = event.target.closest(".text i");
      const chip = event.target.closest(".chip");
      if (g === null || !data.rollouts[g].advantages) return;
      if (token) pin(g, Number(token.dataset.t));
      else if (chip) pin(g, data.rollouts[g].steps[Number(chip.dataset.k)].last);
    });

    function showTip(g, t, box) {
      tip.replaceChildren(...tipContent(data.rollouts[g], t));
      tip.hidden = false;
      const { offsetWidth: width, offsetHeight: height } = tip;
      tip.style.left = `${Math.max(4, Math.min(innerWidth - width - 8, box.left))}px`;
      tip.style.top = `${box.bottom + height + 10 < innerHeight ? box.bottom + 6 : Math.max(4, box.top - height - 6)}px`;
    }
    cards.addEventListener("pointerover", (event) => {
      const token = event.pointerType === "touch" ? null : event.target.closest(".text i");
      if (!token || !data || streams) {
        tip.hidden = true;
        return;
      }
      const boxes = token.getClientRects();
      if (boxes.length) showTip(rolloutAt(token), Number(token.dataset.t), boxes[0]);
    });
    cards.addEventListener("pointerleave", () => { tip.hidden = true; });
    addEventListener("scroll", () => { tip.hidden = true; }, { passive: true, capture: true });

    const drawing = {
      draw,
      stream,
      pin,
      unpin,
      // The old group stays readable while a new one is on its way.
      dim(on) { root.classList.toggle("dim", on); },
      get data() { return data; },
    };
    root.heatmap = drawing; // for whoever finds the element: the console, a test
    return drawing;
  }

  globalThis.WorkbenchHeatmap = { mount };
})();
