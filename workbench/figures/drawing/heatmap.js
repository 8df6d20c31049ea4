// The token heatmap: draws one group's payload (see heatmap.py) into an element of class "wh".
//
// The same scripts run on the page, in a notebook's output and in the exported file, so they need nothing but the
// element. Whatever a model wrote goes in through textContent only.
(() => {
  const H = (globalThis.WorkbenchHeatmap ??= {});
  if (H.mount) return; // a notebook holds one copy of this script per output
  const {
    el, signed, score, MEASURES, rangeOf, tint, ofWhole, prepare, card, retell, rank, summary,
    comparison, whyTable, facts, tipContent, quoted, makeLegend,
  } = H;

  const KINDS = ["eos", "empty", "straddles", "flips", "foreign", "match", "pinned"]; // classes of a token that no measure changes
  const DRAWN_TOKENS = 20000; // of one rollout; more is a button away

  // `explain(rollout, token)` promises the reason of a token where the payload has none; `onPin` hears what is pinned.
  function mount(root, { onPin = null, explain = null } = {}) {
    let data = null;
    let wanted = MEASURES[0]; // what is chosen to be coloured
    let measure = wanted; // what is: another one while a group lacks it
    let order = "sampled";
    let pinned = null; // {g, t}: kept through redraws, so that its numbers follow an edit
    let range = { limit: 0 };
    const ends = new Map(); // measure → where its scale ends, set or held by hand
    let drawnTokens = DRAWN_TOKENS;
    let streams = null;

    const about = el("div", { class: "summary" });
    const notices = el("div", { class: "notices" });
    const compared = el("div", { class: "compared" });
    const cards = el("div", { class: "cards" });
    const details = el("section", { class: "details", "aria-label": "Why this colour", hidden: true });
    const tip = el("div", { class: "tip", role: "tooltip", hidden: true });
    const legend = makeLegend({
      onMeasure: (key) => { choose(key); drawing.onColour?.(key); },
      onEnd: setEnd,
      onHold: (on) => setEnd(on ? range.limit : null),
      onEdges: (on) => cards.classList.toggle("edges", on),
      onOrder: (chosen) => { order = chosen; sort(); },
    });
    root.classList.add("wh");
    root.replaceChildren(about, notices, compared, legend.node, cards, details, tip);

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
      measure = available.includes(wanted) ? wanted : available[0] ?? wanted;
      legend.offer(available, measure);
      about.replaceChildren(...(data.rollouts.some((r) => r.steps) ? summary(data) : []));
      notices.replaceChildren(...noticesOf(data));
      compared.replaceChildren(...(data.other ? comparison(data, pin) : []));
      cards.classList.toggle("two", Boolean(data.other));
      const before = new Map([...cards.children].map((article) => [article.dataset.g, article.getBoundingClientRect()]));
      cards.replaceChildren(...data.rollouts.map((r, g) => {
        const article = card(data, r, g, drawnTokens, measure);
        const place = before.get(String(g));
        if (place) { // out of sight it takes as much room as the one it replaces, and is painted a frame after the others
          article.style.containIntrinsicHeight = `auto ${place.height}px`;
          article.classList.toggle("later", (place.top > innerHeight || place.bottom < 0) && focused?.g !== g);
        }
        return article;
      }));
      requestAnimationFrame(() => setTimeout(() => {
        for (const article of cards.querySelectorAll(".later")) article.classList.remove("later");
      }));
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
      if (!measure.has(data)) return; // a group that nothing has scored
      range = rangeOf(data, measure, ends.get(measure));
      const { limit } = range;
      cards.classList.toggle("one", Boolean(measure.one));
      for (const article of cards.children) {
        const r = data.rollouts[Number(article.dataset.g)];
        for (const node of article.querySelectorAll(".text i")) {
          const t = Number(node.dataset.t);
          const kinds = node.className ? KINDS.filter((name) => node.classList.contains(name)) : [];
          const own = r.twin && !measure.one && node.closest(".second") ? r.twin : r;
          const look = [...kinds, tint(measure.token(own, t), limit, measure)].join(" ").trim();
          if (node.className !== look) node.className = look;
        }
        for (const node of article.querySelectorAll(".chip")) {
          const k = Number(node.dataset.k);
          node.className = `chip ${tint(ofWhole(measure, r, k), limit, measure)}`.trim();
          if (pinned && pinned.g === Number(article.dataset.g) && r.stepOf[pinned.t] === k) node.classList.add("pinned");
        }
      }
      legend.show(measure, range, ends.has(measure));
    }

    function choose(key) {
      measure = wanted = MEASURES.find((one) => one.key === key);
      colour();
      for (const article of cards.children) retell(article, data.rollouts[Number(article.dataset.g)], measure);
      if (pinned) showPinned();
    }

    // Ends the scale of what is shown at this size until it is set again; null goes back to the 98th percentile.
    function setEnd(size) {
      if (size === null) ends.delete(measure);
      else ends.set(measure, size);
      colour();
    }

    function sort() {
      const ranked = [...cards.children].sort((a, b) => {
        const [x, y] = [Number(a.dataset.g), Number(b.dataset.g)];
        return (order === "best" ? (data.rollouts[x].rank ?? Infinity) - (data.rollouts[y].rank ?? Infinity) : 0) || x - y;
      });
      if (ranked.some((node, i) => node !== cards.children[i])) cards.append(...ranked);
    }

    // Texts that grow while a group is being sampled: one text node a rollout, nothing to colour yet.
    function stream(texts, finished = []) {
      if (!streams || streams.length !== texts.length) {
        unpin();
        legend.node.hidden = true;
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
          el("dl", {}, ...facts(r, t, measure).flatMap(([name, value, shown]) => [name, value].map((text, i) => el(i ? "dd" : "dt", { class: shown ? "shown" : null }, text)))),
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
        more.closest(".rollout").replaceWith(card(data, data.rollouts[g], g, Infinity, measure));
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
      tip.replaceChildren(...tipContent(data.rollouts[g], t, measure));
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
      // What was chosen to be coloured, by its key; whoever sets `onColour` hears of a choice made by hand.
      get colour() { return (measure === wanted ? wanted : MEASURES[0]).key; },
      colourBy(key) {
        if (legend.choose(key)) choose(key);
      },
      onColour: null,
    };
    root.heatmap = drawing; // for whoever finds the element: the console, a test
    return drawing;
  }

  Object.assign(H, { mount });
})();
