// What the reward functions give and cost, folded away under their list until asked for.
//
// The value is `watch_payload` of figures/rewards.py. Numbers are drawn as text and as small bars; no library.
(() => {
  if (globalThis.WorkbenchRewards) return;

  const SVG = "http://www.w3.org/2000/svg";
  const number = (value) => (value === null || value === undefined ? "–" : Number(value.toPrecision(2)).toString().replace("-", "−"));
  const share = (value) => (value === null ? "–" : `${Math.round(100 * value)} %`);
  const milliseconds = (seconds) => (seconds === null ? "–" : number(1000 * seconds));

  function watch(handles) {
    const { el, follow } = globalThis.WorkbenchPage;
    const summary = el("summary", {}, "Watch");
    const slow = el("div", { class: "slow", role: "status" });
    const body = el("div", { class: "watch-body" });
    const details = el("details", { class: "fold-details" }, summary, body);

    const numbered = (one, i) => `${i + 1} ${one.name}`;

    // A histogram, 16 px high; its title says what it holds, because a picture this small cannot.
    function histogram(scores) {
      const width = 32, height = 16, most = Math.max(...scores.counts, 1), each = width / Math.max(scores.counts.length, 1);
      const label = scores.count ? `${scores.count} scores from ${number(scores.low)} to ${number(scores.high)}` : "no scores";
      const svg = document.createElementNS(SVG, "svg");
      for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label })) svg.setAttribute(name, value);
      const title = document.createElementNS(SVG, "title");
      title.textContent = label;
      svg.append(title);
      scores.counts.forEach((count, i) => {
        const bar = document.createElementNS(SVG, "rect");
        const tall = count ? Math.max(1, (height * count) / most) : 0;
        for (const [name, value] of Object.entries({ x: i * each, y: height - tall, width: Math.max(1, each - 1), height: tall })) bar.setAttribute(name, value);
        svg.append(bar);
      });
      return svg;
    }

    // `head` is texts, or functions: those are numbered as in the first table, with the name as the title.
    function table(caption, about, head, rows) {
      return el("div", { class: "scroller" }, el("table", {},
        el("caption", { title: about }, caption),
        el("thead", {}, el("tr", {}, ...head.map((one, i) => (one.name ? el("th", { scope: "col", title: one.name }, i) : el("th", { scope: "col" }, one))))),
        el("tbody", {}, ...rows.map(([name, ...cells]) => el("tr", {}, el("th", { scope: "row", title: name }, name),
          ...cells.map((cell) => (cell?.nodeName === "TD" ? cell : el("td", {}, cell))))))));
    }

    // The more of a row's largest size, the stronger; the number is there too, so colour is never alone.
    function shaded(value, largest) {
      if (value === null) return el("td", { class: "none" }, "–");
      const strength = largest ? Math.round((28 * Math.abs(value)) / largest) : 0;
      return el("td", { style: `--strength: ${strength}%`, class: value < 0 ? "negative" : "positive" }, number(value));
    }

    function positions(functions) {
      const longest = Math.max(...functions.map((one) => one.positions.length));
      return table("Mean by step", "Mean score of each completion's k-th step", ["", ...Array.from({ length: longest }, (_, k) => k + 1)],
        functions.map((one) => {
          const means = Array.from({ length: longest }, (_, k) => one.positions[k]?.mean ?? null);
          const largest = Math.max(...means.map((mean) => Math.abs(mean ?? 0)));
          return [one.name, ...means.map((mean) => shaded(mean, largest))];
        }));
    }

    function correlations(functions, pairs) {
      const found = new Map(pairs.map((pair) => [JSON.stringify([pair.first, pair.second]), pair]));
      return table("Correlation", "Pearson's r between two functions, completion by completion", ["", ...functions.slice(0, -1)],
        functions.map((one, i) => [numbered(one, i), ...functions.slice(0, -1).map((other, j) => {
          if (j >= i) return el("td", {});
          return shaded(found.get(JSON.stringify([other.name, one.name]))?.r ?? null, 1);
        })]));
    }

    function rollouts(functions) {
      const count = functions[0].rows.length;
      return table("By rollout", "A step function's mean over the rollout's steps", ["", ...functions],
        Array.from({ length: count }, (_, i) => [`rollout ${i + 1}`, ...functions.map((one) => shaded(one.rows[i], Math.max(...one.rows.map((row) => Math.abs(row ?? 0)))))]));
    }

    follow(handles, (root, value) => {
      if (!root.hasChildNodes()) root.append(slow, details);
      root.hidden = !value?.functions.length;
      if (root.hidden) return;
      const { functions } = value, steps = functions.filter((one) => one.positions.length);
      slow.replaceChildren(...value.slow.map((text) => el("p", {}, text)));
      const unscored = functions.some((one) => one.scores.unscored);
      body.replaceChildren(
        table("Scores, and milliseconds a call", "All scores of the group on screen; p50 and p99 are of the calls since the code last changed",
          ["", "", "mean", "sd", "zero", ...(unscored ? ["none"] : []), "p50", "p99"],
          functions.map((one, i) => [numbered(one, i), histogram(one.scores), number(one.scores.mean), number(one.scores.std), share(one.scores.zeros),
            ...(unscored ? [one.scores.unscored] : []), milliseconds(one.p50), milliseconds(one.p99)])),
        ...(steps.length ? [positions(steps)] : []),
        ...(functions.length > 1 ? [correlations(functions, value.correlations)] : []),
        rollouts(functions));
    });
  }

  // What the worker of reward models is at, asked for only while a row is a model.
  function modelStatus(handles) {
    const { el, whileVisible } = globalThis.WorkbenchPage;
    const root = handles.element.querySelector(".drawn");
    root.setAttribute("role", "status");
    const modelRow = () => [...document.querySelectorAll(".slot-given dt")].some((one) => one.textContent === "model");
    whileVisible(handles.element, async () => {
      let text = "";
      if (modelRow()) {
        try { text = await handles.server.model_status({}); } catch { /* the header says that the connection is gone */ }
      }
      if (root.textContent !== text) root.replaceChildren(...(text ? [el("p", { class: "busy" }, text)] : []));
    }, () => 1000);
  }

  // {"name", "text", "once"}: saves the text as a file, once for each value.
  function saveFile(handles) {
    globalThis.WorkbenchPage.follow(handles, (root, value) => {
      if (!value || root.dataset.saved === value.once) return;
      root.dataset.saved = value.once;
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([value.text], { type: "application/jsonl" }));
      link.download = value.name;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    });
  }

  globalThis.WorkbenchRewards = { watch, modelStatus, saveFile };
})();
