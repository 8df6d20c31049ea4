// Two schemes of one group: what they disagree about, as a line and step by step.
(() => {
  const H = (globalThis.WorkbenchHeatmap ??= {});
  if (H.comparison) return; // a notebook holds one copy of this script per output
  const { el, number, signed, score, share, meanOf, summary } = H;

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

  Object.assign(H, { comparison });
})();
