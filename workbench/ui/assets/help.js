// The Help tab. Its value never changes but for the numbers of the pinned token, asked for each time it is shown.
(() => {
  if (globalThis.WorkbenchHelp) return;
  const { el, follow } = globalThis.WorkbenchPage;
  const MINUS = "\u2212";

  function number(value, digits = 4) {
    if (value === null || value === undefined) return "–";
    return `${value < 0 ? MINUS : ""}${Math.abs(value).toFixed(Number.isInteger(value) ? 0 : digits)}`;
  }
  const bracketed = (value) => (value < 0 ? `(${number(value)})` : number(value));
  const section = (id, title, ...children) => el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), ...children);
  const table = (label, head, rows) => el("div", { class: "scroller", tabindex: 0, role: "region", "aria-label": label },
    el("table", {}, el("thead", {}, el("tr", {}, ...head.map((name) => (name ? el("th", { scope: "col" }, name) : el("td", {}))))), el("tbody", {}, ...rows)));
  const row = (first, ...cells) => el("tr", {}, el("th", { scope: "row" }, first), ...cells.map((cell) => el("td", {}, cell)));

  // r → r̃ → what the term adds, with its numbers in the formula's place.
  function term(one) {
    const name = one.step !== null ? `step ${one.step + 1}` : one.source === "sum" ? "Σ steps" : "outcome";
    const scores = Object.entries(one.scores);
    const sum = scores.length ? `${scores.filter(([, score]) => score !== null).map(([reward, score]) => `${number(one.weights[reward] ?? 1)} · ${bracketed(score)}`).join(" + ")} = ${number(one.reward)}` : number(one.reward);
    const raw = one.reward !== null && Math.abs(one.raw - one.reward) < 1e-9 ? number(one.reward) : number(one.raw);
    const top = one.mean === null ? raw : `(${raw} ${MINUS} ${bracketed(one.mean)})`;
    const normalised = one.std === null ? `${top} = ${number(one.normalised)}` : `${top} / (${number(one.std)} + 0.0001) = ${number(one.normalised)}`;
    return row(name, sum, normalised, one.factor === 1 ? "" : `× ${number(one.factor)}`, number(one.value));
  }

  function drawLive(root, answer) {
    if (!answer) {
      root.replaceChildren(el("p", { class: "muted" }, "Nothing is scored on Inspect right now; score a group there and come back."));
      return;
    }
    const where = `${answer.pinned ? "the pinned token" : "the first token (pin another on Inspect)"}, rollout ${answer.rollout}, ${answer.step === null ? "outside every step" : `step ${answer.step}`}, token ${answer.token} `;
    const options = Object.entries(answer.options).map(([name, value]) => `${name} ${value}`).join(" · ");
    const terms = answer.terms.map((one) => bracketed(one.value)).join(" + ");
    const clipped = answer.clip !== null && Math.abs(answer.total) > answer.clip;
    root.replaceChildren(
      el("p", { class: "formula" }, el("b", {}, answer.scheme), ` ${answer.formula}`, el("span", { class: "muted" }, `  ${answer.source}`)),
      el("p", { class: "muted" }, answer.summary), el("p", { class: "muted" }, options),
      el("p", {}, "For ", where, el("code", {}, JSON.stringify(answer.text)), ":"),
      table("Terms of the advantage", ["", "r = Σ weight · score", "r̃ = (r − mean) / (std + 0.0001)", "factor", "adds"], answer.terms.map(term)),
      el("p", { id: "help-sum" }, "A = ", terms || "0", answer.terms.length > 1 ? ` = ${number(answer.total)}` : "", clipped ? `, clipped to ±${number(answer.clip)}: ${number(answer.advantage)}` : ""),
      ...(answer.spread ? [] : [el("p", { class: "warn" }, "This group has no spread: every advantage is 0, there is nothing to learn from it.")]),
    );
  }

  function schemes(value) {
    const options = (one) => one.options.map((option) => `${option.label}: ${option.default}`).join("\n");
    return value.schemes.map((one) => el("tr", {}, el("th", { scope: "row" }, one.name),
      el("td", {}, el("div", { class: "formula" }, one.formula), el("div", {}, one.summary)), el("td", { class: "defaults" }, options(one)), el("td", {}, one.source)));
  }

  function options(value) {
    const every = new Map(value.schemes.flatMap((one) => one.options).map((option) => [option.name, option]));
    return [...every.values()].flatMap((option) => [el("dt", {}, option.label, " ", el("code", {}, option.name)), el("dd", {}, option.help)]);
  }

  function glossary(value) {
    const rows = value.metrics.map((one) => [one, row(el("code", {}, one.name), el("span", { class: "formula" }, one.formula), one.meaning, one.source)]);
    const count = el("span", { class: "muted", role: "status" });
    const search = el("input", { type: "search", id: "metric-search", "aria-label": "Find a metric", placeholder: "Find a metric", oninput: () => {
      const wanted = search.value.trim().toLowerCase();
      for (const [one, node] of rows) node.hidden = !`${one.name} ${one.formula} ${one.meaning}`.toLowerCase().includes(wanted);
      count.textContent = wanted ? `${rows.filter(([, node]) => !node.hidden).length} of ${rows.length}` : "";
    } });
    const letters = el("details", { class: "letters" }, el("summary", {}, "What the letters mean"),
      el("dl", { class: "facts" }, ...value.symbols.flatMap(([letter, meaning]) => [el("dt", {}, letter), el("dd", {}, meaning)])));
    return [el("p", {}, search, " ", count), letters, table("Every metric", ["name", "formula", "meaning", "from"], rows.map(([, node]) => node))];
  }

  function mount(handles) {
    const numbers = el("div", { id: "help-live", "aria-live": "polite" });
    let asked = 0;
    const ask = async () => {
      const mine = ++asked;
      const { tab, pinnedToken } = globalThis.WorkbenchShare;
      try {
        const answer = await handles.server.live({ tab, rollout: pinnedToken?.g ?? null, token: pinnedToken?.t ?? null });
        if (mine === asked) drawLive(numbers, answer);
      } catch {
        if (mine === asked) numbers.replaceChildren(el("p", { class: "muted" }, "The workbench did not answer; the numbers come back when it does."));
      }
    };
    follow(handles, (root, value) => {
      if (!value || root.hasChildNodes()) return;
      const snippet = value.snippet.replace("{origin}", `${location.origin}${location.pathname}`);
      const said = el("span", { class: "said muted", role: "status" });
      const copy = el("button", { type: "button", class: "link", onclick: async () => { said.textContent = await globalThis.WorkbenchShare.copy(snippet) ? " Copied." : " Select the code and copy it."; } }, "Copy");
      const parts = [
        section("help-formulas", "The numbers on screen", numbers),
        section("help-schemes", "Credit schemes",
          el("p", {}, "z(x) = (x − mean) / (std + 0.0001) over the group's scored values, std with ddof = 1; an unscored step is in neither and adds nothing."),
          table("Every scheme", ["scheme", "formula", "options and defaults", "source"], schemes(value)),
          el("h3", {}, "Options"), el("dl", { class: "facts" }, ...options(value)),
          el("h3", {}, "Normalise"), el("dl", { class: "facts" }, ...value.normalisations.flatMap((one) => [el("dt", {}, one.name), el("dd", {}, one.meaning)]))),
        section("help-metrics", "Metrics of a run", ...glossary(value)),
        section("help-keys", "Keys", el("dl", { class: "facts" }, ...value.shortcuts.flatMap(([key, what]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, what)]))),
        section("help-api", "From a script", el("p", {}, "The page's own process answers scripts too, on the same address: ", copy, said), el("pre", { tabindex: 0, role: "region", "aria-label": "API example" }, snippet)),
        section("help-trust", "What is trusted", ...value.trust.map((line) => el("p", {}, line))),
      ];
      const contents = el("nav", { "aria-label": "On this page" }, ...parts.map((part) => el("a", { href: `#${part.id}`, onclick: (event) => { event.preventDefault(); part.scrollIntoView(); part.querySelector("h2").setAttribute("tabindex", "-1"); part.querySelector("h2").focus(); } }, part.querySelector("h2").textContent)));
      root.append(contents, ...parts);
    });
    new IntersectionObserver((entries) => { if (entries.some((entry) => entry.isIntersecting)) ask(); }).observe(numbers);
  }

  globalThis.WorkbenchHelp = { mount };
})();
