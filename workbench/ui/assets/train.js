// The Train tab's right side: one run, followed live.
//
// The page holds the cursor: it asks once a second for the metrics it has not seen and the rollouts stored since, and
// adds them to what is drawn. Nothing is asked for while the tab cannot be seen. Which run, step, group and pinned step
// of a rollout are shown, and what the curves are zoomed to, is kept in the page's address, so that a reload or a link
// shows the same; the browser's Back goes to the tab that was shown before.
(() => {
  if (globalThis.WorkbenchTrain) return;

  const TICK = 1000;
  const LIST_EVERY = 5; // ticks between two looks at the list of runs
  const ADVICE = {
    crashed: "The process ended without saying why; the last lines of its log are below.",
    failed: "The last lines of its log are below.",
  };

  function mount(handles) {
    const { el, follow, whileVisible } = globalThis.WorkbenchPage;
    const { element, server } = handles;

    // What is shown. `run` is a name; `cursor` and `after` are how far metrics and rollouts have been read.
    const view = { run: null, cursor: 0, after: -1, afterWatched: -1, steps: [], watchedSteps: [], watched: false, step: null, group: 0, groups: 1, follow: true, final: false, number: -1, pinned: null, wanted: null };
    let runs = [];
    let ticks = 0;
    let lost = false; // the last tick got no answer
    let curves = null;
    let loading = null;
    let generation = 0; // answers to what was asked about another run are dropped

    const picker = el("select", { id: "run-picker", "aria-label": "Run", onchange: () => open(picker.value) });
    const badge = el("span", { id: "run-state", class: "badge", role: "status" });
    const progress = el("span", { class: "progress-text" });
    const bar = el("div", { class: "progress", role: "progressbar", "aria-label": "Training progress", "aria-valuemin": 0 }, el("div", {}));
    const stop = el("button", { type: "button", id: "stop", onclick: stopRun }, "Stop");
    const resume = el("button", { type: "button", id: "resume", hidden: true, title: "Go on from the newest valid checkpoint", onclick: resumeRun }, "Resume");
    const unknown = el("p", { id: "run-unknown", class: "about", hidden: true }, el("button", { type: "button", class: "link", onclick: () => globalThis.WorkbenchRuns.show([]) }, "See the runs there are"));
    const ahead = el("button", { type: "button", id: "run-ahead", class: "link", hidden: true, onclick: () => open(ahead.textContent) });
    const warnings = el("ul", { id: "run-warnings", class: "run-notes", role: "status", "aria-label": "Warnings", hidden: true });
    const alarms = el("ul", { id: "run-alarms", class: "run-notes", role: "status", "aria-label": "Checks", hidden: true });
    const said = el("p", { id: "run-message", role: "status" });
    const reason = el("p", { id: "run-reason", role: "alert", hidden: true });
    const settings = el("dl", { class: "facts" });
    const chartsRoot = el("div", { id: "curves" });
    const empty = el("p", { class: "empty" });
    const point = el("span", { class: "muted" });
    const slider = el("input", { type: "range", id: "step-slider", min: 0, max: 0, value: 0, "aria-label": "Training step", oninput: () => pickStep(Number(slider.value)) });
    const stepText = el("output", { for: "step-slider", id: "step-shown" });
    const following = el("input", { type: "checkbox", id: "follow-latest", checked: true, onchange: () => { view.follow = following.checked; if (view.follow) latest(); } });
    const previous = el("button", { type: "button", "aria-label": "Previous group", onclick: () => pickGroup(view.group - 1) }, "‹");
    const next = el("button", { type: "button", "aria-label": "Next group", onclick: () => pickGroup(view.group + 1) }, "›");
    const groupText = el("span", { id: "group-shown" });
    const ofBatch = el("option", { value: "batch" }, "of the step’s batch");
    const ofWatched = el("option", { value: "watched" }, "of watched prompts");
    const which = el("select", { id: "rollouts-of", "aria-label": "Which rollouts", title: "Watched prompts are the same held-out prompts at every step, sampled with the same seed: what differs is the policy.", onchange: () => watch(which.value === "watched") }, ofBatch, ofWatched);
    const promptLine = el("p", { class: "about" });
    const rolloutsMessage = el("p", { class: "muted", role: "status" });
    const holder = el("div", { id: "run-heatmap" });
    const log = el("pre", { id: "run-log", tabindex: 0, "aria-label": "Log" });
    const table = el("tbody", {});
    const heatmap = globalThis.WorkbenchHeatmap.mount(holder, {
      onPin: (pinned) => {
        view.pinned = pinned;
        if (pinned) stopFollowing();
        else writeAddress();
      },
      explain: (rollout, token) => server.why({ run: view.run, step: view.drawn, group: view.group, watched: view.watched, rollout, token }),
    });

    const waiting = el("p", { class: "waiting-note" }, "Curves and rollouts appear with the first step.");
    const section = el("section", { class: "rollouts", "aria-label": "Rollouts", hidden: true });
    const settingsBox = el("details", { class: "settings" }, el("summary", {}, "Settings"), settings);
    const logBox = el("details", { class: "log", open: true }, el("summary", {}, "Log"), log);
    const live = el("div", { class: "live", hidden: true },
      el("header", { class: "run-head" }, el("label", {}, "Run ", picker), badge, progress, ahead, el("span", { class: "run-actions" }, resume, stop)),
      bar, reason, unknown, said, warnings,
      settingsBox, alarms,
      el("section", { "aria-label": "Curves" }, chartsRoot),
      waiting, section, logBox);
    section.append(
        el("div", { class: "rollout-head" }, el("h2", {}, "Rollouts"), which,
          el("label", { class: "step-field" }, "step ", slider, stepText),
          el("label", { class: "follow" }, following, " follow latest"),
          el("span", { class: "group-field" }, previous, groupText, next), point),
        promptLine, rolloutsMessage, holder);
    const list = el("details", { class: "runs", hidden: true }, el("summary", {}, "All runs"),
      el("div", { class: "scroller", tabindex: 0, role: "region", "aria-label": "Runs" }, el("table", {},
        el("thead", {}, el("tr", {}, ...["run", "state", "step", "task", "credit", "started"].map((name) => el("th", { scope: "col" }, name)))), table)));

    const isVisible = () => element.isConnected && element.offsetParent !== null;

    // ── address ──────────────────────────────────────────────────────────────────────────────────────────────

    // `rollout` and `k` are Inspect's too: what it had there is put back when this tab is left.
    const PLACE = ["rollout", "k"];
    let others = [null, null];
    function writeAddress() {
      const url = new URL(location.href);
      const parameters = url.searchParams;
      const shown = isVisible() && view.run;
      if (!shown && !parameters.has("run")) return;
      if (shown && !parameters.has("run")) others = PLACE.map((name) => parameters.get(name));
      const [xmin, xmax] = (curves?.range ?? [null, null]).map((end) => (end === null ? null : Number(end.toFixed(1))));
      const place = placeOf(view.pinned) ?? view.wanted;
      const wanted = { run: view.run, step: view.follow ? null : view.step, group: view.group ? view.group + 1 : null, watched: view.watched ? 1 : null, rollout: place?.rollout ?? null, k: place?.k ?? null, xmin, xmax };
      for (const [name, value] of Object.entries(wanted)) {
        const set = shown ? value : (others[PLACE.indexOf(name)] ?? null);
        if (set !== null) parameters.set(name, set);
        else parameters.delete(name);
      }
      if (url.href !== location.href) history.replaceState(history.state, "", url);
    }

    // A pinned token's rollout and step, both from 1. The token stays pinned when another training step is drawn, where it
    // may lie in another step of the answer.
    function placeOf(pinned) {
      const k = pinned ? (heatmap.data.rollouts[pinned.g]?.stepOf[pinned.t] ?? -1) : -1;
      return k >= 0 ? { rollout: pinned.g + 1, k: k + 1 } : null;
    }

    function readAddress() {
      const parameters = new URL(location.href).searchParams;
      const number = (name) => (parameters.get(name) && Number.isFinite(Number(parameters.get(name))) ? Number(parameters.get(name)) : null);
      const [rollout, k, xmin, xmax] = [...PLACE, "xmin", "xmax"].map(number);
      return {
        step: number("step"), group: number("group") > 0 ? number("group") - 1 : 0, watched: parameters.get("watched") === "1",
        place: rollout > 0 && k > 0 ? { rollout, k } : null, range: xmin !== null && xmax > xmin ? [xmin, xmax] : null, run: parameters.get("run"),
      };
    }

    // ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────

    async function listRuns() {
      runs = await server.runs({});
      if (runs.some((run) => run.name === view.run && ["queued", "starting", "running"].includes(run.state))) view.final = false; // resumed
      list.hidden = !runs.length;
      if (document.activeElement !== picker) drawPicker();
      const focused = table.contains(document.activeElement) ? document.activeElement.textContent : null;
      table.replaceChildren(...runs.map((run) => el("tr", { class: run.name === view.run ? "current" : null },
        el("th", { scope: "row" }, el("button", { type: "button", class: "link", onclick: () => open(run.name) }, run.name)),
        el("td", {}, el("span", { class: `badge ${run.state}`, title: run.reason }, run.state)),
        el("td", {}, run.total ? `${run.step} of ${run.total}` : "–"), el("td", {}, run.task ?? "–"), el("td", {}, run.scheme ?? "–"),
        el("td", {}, run.created ? new Date(run.created * 1000).toLocaleString([], { dateStyle: "short", timeStyle: "short" }) : "–"))));
      if (focused !== null) [...table.querySelectorAll("button")].find((one) => one.textContent === focused)?.focus({ preventScroll: true });
    }

    function drawPicker() {
      const names = runs.map((run) => run.name);
      if (view.run && !names.includes(view.run)) names.unshift(view.run);
      const states = Object.fromEntries(runs.map((run) => [run.name, run.state]));
      picker.replaceChildren(...names.map((name) => el("option", { value: name, selected: name === view.run }, states[name] ? `${name} · ${states[name]}` : name)));
    }

    function open(name, { step = null, group = 0, watched = false, place = null, range = null } = {}) {
      generation++;
      Object.assign(view, { pinned: null, wanted: place, run: name, cursor: 0, after: -1, afterWatched: -1, steps: [], watchedSteps: [], watched, step, group, groups: 1, follow: step === null, final: false, live: false, drawn: null });
      following.checked = view.follow;
      curves?.reset(name ?? "", range);
      heatmap.unpin();
      heatmap.draw({ rollouts: [], prompt: "" });
      promptLine.textContent = "";
      stepText.textContent = groupText.textContent = "";
      say(said, "");
      say(reason, "");
      resume.hidden = unknown.hidden = ahead.hidden = true;
      fillList(warnings, []);
      fillList(alarms, []);
      log.textContent = "";
      settings.replaceChildren();
      live.hidden = !name;
      empty.hidden = Boolean(name);
      const controls = document.getElementById("train-controls");
      controls?.classList.toggle("folds", Boolean(name)); // on a narrow screen
      controls?.fold?.();
      rolloutsMessage.textContent = "";
      section.hidden = true;
      waiting.hidden = false;
      drawPicker();
      writeAddress();
      if (!name) return;
      describe(generation);
      poll();
    }

    async function describe(asked) {
      const told = await server.describe({ run: view.run });
      if (asked !== generation || told.error) return;
      settings.replaceChildren(...told.settings.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
    }

    const say = (node, text) => {
      node.hidden = !text;
      if (node.textContent !== (text ?? "")) node.textContent = text ?? "";
    };

    function fillList(node, texts, child = (text) => text) {
      node.hidden = !texts.length;
      const key = texts.join("\n");
      if (node.dataset.shown === key) return;
      node.dataset.shown = key;
      node.replaceChildren(...texts.map((text, i) => el("li", {}, child(text, i))));
    }

    // ── one tick ─────────────────────────────────────────────────────────────────────────────────────────────

    async function tick() {
      writeAddress();
      if (!isVisible()) return;
      try {
        if (ticks++ % LIST_EVERY === 0) {
          await listRuns();
          if (!view.run && runs.length) open(runs[0].name);
        }
        if (view.run && (lost || !(view.final && view.cursor))) await poll();
        lost = false;
      } catch {
        lost = true;
        badge.textContent = "no connection";
        badge.className = "badge lost";
        progress.textContent = "trying again; what is drawn stays";
      }
    }

    async function poll() {
      const asked = generation;
      if (loading === asked) return;
      loading = asked;
      try {
        const news = await server.poll({ run: view.run, cursor: view.cursor, after: view.after, after_watched: view.afterWatched });
        if (asked === generation) await take(news);
      } finally {
        if (loading === asked) loading = null;
      }
    }

    async function take(news) {
      if (news.error) {
        badge.textContent = "unknown";
        badge.className = "badge failed";
        progress.textContent = "";
        bar.hidden = stop.hidden = waiting.hidden = logBox.hidden = settingsBox.hidden = true;
        view.final = true;
        view.cursor = view.cursor || 1; // nothing more to ask
        unknown.hidden = false;
        say(reason, news.error);
        return;
      }
      if (news.restarted) {
        curves.reset(view.run, curves.range);
        Object.assign(view, { steps: [], after: -1, watchedSteps: [], afterWatched: -1 });
      }
      const filled = news.block ? curves.addBlock(news.block) : null;
      curves.add(news.rows);
      view.cursor = news.cursor;
      view.final = news.final;
      if (news.final && view.live) handles.trigger("end"); // its pace is known now: the next one's time is told by it
      view.live = !news.final;
      showState(news);
      const lines = news.log.join("\n");
      if (log.textContent !== lines) log.textContent = lines;
      logBox.hidden = !lines;
      view.steps.push(...news.steps);
      view.watchedSteps.push(...news.watched);
      view.after = view.steps[view.steps.length - 1] ?? -1;
      view.afterWatched = view.watchedSteps[view.watchedSteps.length - 1] ?? -1;
      which.hidden = !view.watchedSteps.length;
      if (view.watched && !view.watchedSteps.length && view.steps.length) view.watched = false;
      which.value = view.watched ? "watched" : "batch";
      if ((view.watched ? news.watched : news.steps).length) {
        slider.max = steps().length - 1;
        if (view.follow) latest();
        else if (view.drawn === null && view.step !== null) pickStep(nearest(view.step), false);
        else slider.value = Math.max(0, steps().indexOf(view.step));
      }
      // A final run is asked once more only if something was still missing.
      if (view.final && !view.cursor) view.cursor = 1;
      await filled; // rows that come later go after it
    }

    function showState(news) {
      // A run whose process is there but has not spoken yet is importing what it trains with.
      const starting = news.state === "starting" || (news.state === "queued" && news.started);
      const queued = news.state === "queued" && !news.started;
      const state = news.stopping ? "stopping" : starting ? "starting" : news.state;
      badge.textContent = state;
      badge.className = `badge ${state}`;
      section.hidden = ![view.steps, view.watchedSteps, news.steps, news.watched].some((some) => some.length);
      waiting.hidden = news.final || !section.hidden || Boolean(news.block) || curves.charts.some((chart) => !chart.figure.hidden);
      const parts = [`step ${news.step} of ${news.total}`];
      if (news.started) parts.push(duration((news.final ? news.updated : Date.now() / 1000) - news.started));
      if (news.device) parts.push(news.device);
      if (news.resumed_from) parts.push(`resumed from step ${news.resumed_from}`);
      if (starting) progress.textContent = [news.reason || "loading the trainer", duration(Date.now() / 1000 - news.started)].join(", ");
      else progress.textContent = queued && news.reason ? news.reason : parts.join(" · ");
      bar.firstChild.style.width = `${news.total ? Math.min(100, (100 * news.step) / news.total) : 0}%`;
      bar.setAttribute("aria-valuemax", news.total);
      bar.setAttribute("aria-valuenow", news.step);
      bar.classList.toggle("waiting", !news.final && news.state !== "running");
      bar.hidden = settingsBox.hidden = false;
      stop.hidden = news.final;
      stop.disabled = news.stopping;
      resume.hidden = !news.resumable;
      unknown.hidden = true;
      ahead.hidden = !(queued && news.behind);
      ahead.textContent = news.behind ?? "";
      fillList(warnings, news.warnings);
      fillList(alarms, news.alarms.map((alarm) => alarm.text), (text, i) => el("button", { type: "button", class: "link", title: "Show the curve", onclick: () => news.alarms[i].metrics.some((metric) => curves.lead(metric)) || curves.lead("step_reward") || curves.lead("reward") }, text));
      const bad = news.state === "failed" || news.state === "crashed";
      say(reason, bad ? [news.reason, ADVICE[news.state]].filter(Boolean).join("\n") : "");
      badge.title = news.reason;
      const listed = runs.find((run) => run.name === news.run);
      if (listed && listed.state !== news.state) {
        listed.state = news.state;
        if (document.activeElement !== picker) drawPicker();
      }
    }

    function duration(seconds) {
      const whole = Math.max(0, Math.round(seconds));
      if (whole < 60) return `${whole} s`;
      return whole < 3600 ? `${Math.floor(whole / 60)} min ${whole % 60} s` : `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
    }

    // What became of a request is said on the page of its own run only, not on one that was opened meanwhile.
    async function stopRun() {
      const mine = generation;
      stop.disabled = true;
      say(said, "stopping at the end of the step …");
      try {
        const answer = await server.stop({ run: view.run });
        if (mine !== generation) return;
        say(said, answer.message);
      } catch {
        if (mine !== generation) return;
        say(said, "The workbench did not answer; try again.");
      }
      stop.disabled = false;
      view.final = false;
      poll();
    }

    async function resumeRun() {
      const mine = generation;
      resume.disabled = true;
      try {
        const answer = await server.resume({ run: view.run });
        if (mine !== generation) return;
        say(said, answer.message);
        view.final = false;
        poll();
      } catch {
        if (mine === generation) say(said, "The workbench did not answer; try again.");
      } finally {
        resume.disabled = false;
      }
    }

    // ── rollouts ─────────────────────────────────────────────────────────────────────────────────────────────

    const steps = () => (view.watched ? view.watchedSteps : view.steps);

    function nearest(step) {
      let best = 0;
      steps().forEach((one, i) => { if (Math.abs(one - step) < Math.abs(steps()[best] - step)) best = i; });
      return best;
    }

    function latest() {
      if (steps().length) pickStep(steps().length - 1, false);
    }

    // The step stays as near as there is one, so that a prompt of the batch and a watched one are of the same policy.
    function watch(on) {
      Object.assign(view, { watched: on, group: 0 });
      slider.max = Math.max(0, steps().length - 1);
      if (view.step !== null) pickStep(nearest(view.step), false);
    }

    function stopFollowing() {
      view.follow = false;
      following.checked = false;
      writeAddress();
    }

    function pickStep(index, byHand = true) {
      if (!steps().length) return;
      view.step = steps()[index];
      slider.value = index;
      slider.setAttribute("aria-valuetext", `step ${view.step}`);
      if (byHand) {
        view.follow = index === steps().length - 1 && !view.final ? view.follow : false;
        following.checked = view.follow;
      }
      fetchRollouts();
    }

    function pickGroup(group) {
      view.group = (group + view.groups) % view.groups;
      fetchRollouts();
    }

    // Dragging the slider asks for the newest position only: while one answer is on its way, the last wish waits.
    let wish = null;
    let asking = false;
    async function fetchRollouts() {
      stepText.textContent = `${view.step}`;
      wish = { run: view.run, step: view.step, group: view.group, watched: view.watched };
      writeAddress();
      if (asking) return;
      asking = true;
      try {
        while (wish) {
          const asked = wish;
          wish = null;
          const answer = await server.rollouts(asked);
          if (asked.run === view.run && asked.watched === view.watched) drawRollouts(answer);
        }
      } catch {
        rolloutsMessage.textContent = "The workbench did not answer; the rollouts shown are older.";
      } finally {
        asking = false;
      }
    }

    function drawRollouts(answer) {
      if (answer.error) {
        rolloutsMessage.textContent = answer.error;
        return;
      }
      const payload = JSON.parse(answer.drawing);
      Object.assign(view, { group: answer.group, groups: answer.groups, drawn: answer.step });
      groupText.textContent = `group ${answer.group + 1} of ${answer.groups}`;
      rolloutsMessage.textContent = "";
      promptLine.replaceChildren(el("code", {}, payload.prompt.trim()));
      heatmap.draw({ ...payload, step: answer.step, group: answer.group });
      const { wanted } = view;
      view.wanted = null;
      const pinned = wanted && heatmap.data.rollouts[wanted.rollout - 1]?.steps?.[wanted.k - 1];
      if (pinned) heatmap.pin(wanted.rollout - 1, pinned.last);
      writeAddress();
    }

    // ── start ────────────────────────────────────────────────────────────────────────────────────────────────

    const root = element.querySelector(".drawn");
    empty.textContent = "No run yet. Press Start; curves appear here within seconds.";
    root.append(empty, live, list);
    const first = readAddress();
    follow(handles, (_, value) => {
      curves ??= globalThis.WorkbenchCurves.mount(chartsRoot, {
        panels: value.panels,
        onStep: (step) => { if (steps().length) { stopFollowing(); pickStep(nearest(step)); } },
        onZoom: writeAddress,
        onPoint: (step) => { point.textContent = step === null ? "" : `pointing at step ${step}`; },
      });
      if (value.number === view.number) return;
      const started = view.number >= 0 || value.number > 0;
      view.number = value.number;
      if (started && value.run) {
        ticks = 0; // the list gains a run
        open(value.run);
      } else if (first.run) open(first.run, first);
      else open(null);
    });
    globalThis.WorkbenchTrain.show = (name) => open(name);
    whileVisible(element, tick, () => TICK);
    // Showing the tab again is worth a look at once; leaving it takes its part of the address away.
    new IntersectionObserver((entries) => { if (entries.some((entry) => entry.isIntersecting)) tick(); else writeAddress(); }).observe(element);
  }

  // ── Back and Forward between tabs ────────────────────────────────────────────────────────────────────────────

  // Each tab that is shown is an entry of the browser's history, which remembers its name; going back clicks its button.
  const TABS = "#pages [role=tab][id$='-tab-button']";
  let going = false; // through the history
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.(TABS);
    const before = document.querySelector(`${TABS}[aria-selected=true]`);
    if (!button || going || !before || before === button) return;
    history.replaceState({ ...history.state, tab: before.id }, "");
    history.pushState({ tab: button.id }, "", location.href);
  }, { capture: true });
  addEventListener("popstate", (event) => {
    const button = event.state?.tab && document.getElementById(event.state.tab);
    if (!button || button.getAttribute("aria-selected") === "true") return;
    going = true;
    button.click();
    going = false;
  });

  globalThis.WorkbenchTrain = { mount, show() {} };
})();
