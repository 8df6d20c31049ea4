// The Inspect tab's right side: the group, and a line above it that says what it is or what is going on.
//
// The value is a message: {"show": payload, "about", "other"} draws a credit; {"stale": why, "group": payload} keeps
// what is drawn and says that it is older than the controls, or draws the group, unscored, where that is another;
// {"busy": what, "stream"} dims the old group, or shows the new one growing; {"back": true} ends that without a new
// group; {"empty": what next}; {} changes nothing.
(() => {
  if (globalThis.WorkbenchInspect) return;

  function mount(handles) {
    const { el, follow } = globalThis.WorkbenchPage;
    const about = el("p", { class: "about" });
    const busy = el("p", { class: "busy", role: "status", hidden: true });
    const stale = el("p", { class: "stale", role: "status", hidden: true });
    const holder = el("div", { id: "heatmap" });
    const heatmap = globalThis.WorkbenchHeatmap.mount(holder, {
      explain: (rollout, token, which) => handles.server.why({ tab: globalThis.WorkbenchShare.tab, rollout, token, which }),
      onPin: (at) => globalThis.WorkbenchShare.pinned(at),
    });
    let shown = false;

    const say = (node, text) => {
      node.hidden = !text;
      if (node.textContent !== (text ?? "")) node.textContent = text ?? "";
    };

    const promptLine = (payload, columns) => [el("code", {}, payload.prompt.trim()), columns ? ` ${columns}` : ""];

    // A group is sampled without being scored where a reward fails; then it takes the old one's place all the same.
    const sameAnswers = (one, other) => one.prompt === other.prompt && one.rollouts.length === other.rollouts.length
      && one.rollouts.every((rollout, g) => rollout.texts.join("") === other.rollouts[g].texts.join(""));

    function draw(payload, columns) {
      heatmap.draw(payload);
      about.replaceChildren(...promptLine(payload, columns));
      shown = true;
    }

    function update(root, message) {
      if (!root.hasChildNodes()) root.append(busy, stale, about, holder);
      if (!message || !Object.keys(message).length) return;
      if (message.back) { // where texts had begun to grow, the old group is drawn anew as soon as it is scored
        if (shown) heatmap.dim(false);
        say(busy, shown ? "" : "scoring");
        root.setAttribute("aria-busy", String(!shown));
        return;
      }
      if (message.show) {
        draw(message.show, message.about);
        globalThis.WorkbenchShare.shown(heatmap);
      } else if (message.stale) {
        if (!shown || !sameAnswers(heatmap.data, message.group)) draw(message.group);
        else heatmap.dim(false);
      } else if (message.stream) {
        heatmap.stream(message.stream.texts, message.stream.finished);
        about.replaceChildren(...promptLine(message.stream));
        shown = false;
      } else if (message.busy) {
        heatmap.dim(true);
      } else if (message.empty) {
        about.textContent = message.empty;
      }
      say(busy, message.busy);
      const drawn = heatmap.data?.rollouts[0]?.steps ? "Drawn as before the last change" : "Not scored";
      say(stale, message.stale ? `${drawn}: ${message.stale}` : message.other);
      root.classList.toggle("is-stale", Boolean(message.stale));
      root.setAttribute("aria-busy", String(Boolean(message.busy)));
    }

    follow(handles, update);
  }

  globalThis.WorkbenchInspect = { mount };
})();
