// One rollout: its header, its step chips and its text; and the line about the whole group.
(() => {
  const H = (globalThis.WorkbenchHeatmap ??= {});
  if (H.card) return; // a notebook holds one copy of this script per output
  const { el, number, signed, score, share, count, meanOf, stdOf, tokenElement, cutsOf, stepText, stepSaid, TOKEN_CHARACTERS } = H;

  const DRAWN_CHARACTERS = 200000; // of one rollout; more is a button away

  // Two schemes: the same text twice, A and B, each under its own name.
  function textElements(data, r, drawn, measure) {
    if (!r.twin) return textElement(r, drawn, measure);
    const pane = (letter, scheme, text) => el("div", { class: `pane ${letter}` }, el("h4", {}, `${letter.toUpperCase()} `, el("span", {}, scheme)), text);
    const second = textElement(r, drawn, measure);
    second.classList.add("second");
    for (const step of second.querySelectorAll(".step")) step.removeAttribute("tabindex");
    return el("div", { class: "panes" }, pane("a", data.scheme, textElement(r, drawn, measure)), pane("b", data.other.scheme, second));
  }

  function textElement(r, drawn, measure) {
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
            "aria-label": stepLabel(r, k, measure),
          });
        }
        pre.append(holder);
      }
      holder.append(tokenElement(r, t, cuts));
    }
    return pre;
  }

  function stepLabel(r, k, measure) {
    const step = r.steps[k];
    const said = `step ${k + 1} of ${r.steps.length}, score ${score(step.reward)}, advantage ${signed(r.advantages[step.last], 2)}`;
    if (["advantage", "reward"].includes(measure.key)) return said;
    const more = stepSaid(measure, r, k);
    return more ? `${said}, ${more}` : said;
  }

  function chips(r, measure) {
    const key = el("span", { class: "key", "aria-hidden": "true" }, el("span", {}, "step, r"), el("span", { class: "measure" }, measure.short));
    return el("div", { class: "chips" }, key, ...r.steps.map((step, k) => el("button",
      { type: "button", class: "chip", "data-k": k, tabindex: -1, "aria-label": stepLabel(r, k, measure) },
      el("b", {}, `${k + 1}`),
      el("span", { class: "r" }, score(step.reward)),
      el("span", { class: "a" }, stepText(measure, r, k)))));
  }

  // What a card that is already drawn says of each step, for another measure.
  function retell(article, r, measure) {
    const key = article.querySelector(".chips .measure");
    if (key) key.textContent = measure.short;
    const labels = (r.steps ?? []).map((_, k) => stepLabel(r, k, measure));
    for (const node of article.querySelectorAll(".step, .chip")) node.setAttribute("aria-label", labels[Number(node.dataset.k)]);
    article.querySelectorAll(".chip .a").forEach((node, k) => { node.firstChild.data = stepText(measure, r, k); }); // in order
  }

  const sumOfSteps = (r) => {
    const scored = r.steps.map((s) => s.reward).filter((value) => value !== null);
    return scored.length ? scored.reduce((a, b) => a + b, 0) : null;
  };

  function card(data, r, g, drawnTokens, measure) {
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
      r.steps && r.steps.length ? chips(r, measure) : null,
      textElements(data, r, drawn, measure));
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

  Object.assign(H, { card, retell, rank, summary, fullText });
})();
