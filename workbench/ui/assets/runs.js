// The Runs tab: the table of runs, and the chosen ones on the same curves with what sets them apart.
//
// The table is asked for again every few seconds while it can be seen, and rows keep their place in the document, so
// that focus and scrolling stay. Which runs are chosen, how the table is sorted and what it is filtered by is kept in the
// page's address. A configuration keeps its colour for as long as one of its runs is chosen.
(() => {
  if (globalThis.WorkbenchRuns) return;

  const LIVE_EVERY = 2000;
  const IDLE_EVERY = 6000;
  const NONE = "–";

  const percent = (value) => (value === null || value === undefined ? NONE : `${(100 * value).toFixed(0)} %`);
  const number = (value) => (value === null || value === undefined ? NONE : value.toPrecision(3));
  const when = (seconds) => (seconds ? new Date(seconds * 1000).toLocaleString([], { dateStyle: "short", timeStyle: "short" }) : NONE);
  const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

  function duration(seconds) {
    if (seconds === null || seconds === undefined) return NONE;
    const whole = Math.round(seconds);
    if (whole < 60) return `${whole} s`;
    return whole < 3600 ? `${Math.floor(whole / 60)} min ${whole % 60} s` : `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  }

  // Columns: key in a row, heading, how it is shown, and whether it is a number (right-aligned, largest first).
  const COLUMNS = [
    { key: "state", title: "State", text: (run) => run.state },
    { key: "name", title: "Run", text: (run) => run.name },
    { key: "task", title: "Task", text: (run) => run.task ?? NONE },
    { key: "scheme", title: "Credit", text: (run) => run.scheme ?? NONE },
    { key: "seed", title: "Seed", numeric: true, text: (run) => `${run.seed ?? NONE}` },
    { key: "reward", title: "Best reward", numeric: true, text: (run) => number(run.reward), about: "The highest mean reward of a training step: of whole completions, or of steps where a run has no outcome reward." },
    { key: "accuracy_best", title: "Best accuracy", numeric: true, text: (run) => percent(run.accuracy_best), about: "The highest share of held-out answers that were right." },
    { key: "accuracy_last", title: "Last", numeric: true, text: (run) => percent(run.accuracy_last), about: "The held-out accuracy measured last." },
    { key: "step", title: "Steps", numeric: true, text: (run) => (run.total ? `${run.step} of ${run.total}` : NONE) },
    { key: "seconds", title: "Time", numeric: true, text: (run) => duration(run.seconds), about: "Time spent training." },
    { key: "created", title: "Created", numeric: true, text: (run) => when(run.created) },
  ];

  function mount(handles) {
    const { el, follow, whileVisible, once } = globalThis.WorkbenchPage;
    const { element, server } = handles;
    const view = { runs: null, trash: [], more: 0, chosen: new Set(), sort: "created", down: true, filter: "", colours: new Map(), colourOf: new Map(), off: new Set(), each: false, lost: false, overlay: null, value: null };
    const rows = new Map();
    let overlay = null;

    // ── what there is on the page ────────────────────────────────────────────────────────────────────────────

    const filter = el("input", { type: "search", id: "runs-filter", "aria-label": "Filter runs", placeholder: "Filter by name, task, credit, state", oninput: () => { view.filter = filter.value.trim().toLowerCase(); drawTable(); writeAddress(); } });
    const count = el("span", { class: "muted", id: "runs-count", role: "status" });
    const remove = el("button", { type: "button", id: "runs-delete", onclick: () => removeRuns([...view.chosen]) }, "Delete");
    const clear = el("button", { type: "button", id: "runs-clear", onclick: () => choose([]) }, "Clear choice");
    const lost = el("p", { class: "notice bad", id: "runs-lost", role: "alert", hidden: true }, "No connection to the workbench; what is shown stays, and is asked for again.");
    const notice = el("p", { class: "notice", id: "runs-notice", role: "status", hidden: true });
    const toast = el("div", { class: "toast", id: "runs-toast", role: "status", hidden: true });
    const loading = el("div", { class: "skeleton", "aria-hidden": true }, ...Array.from({ length: 4 }, () => el("div", {})));
    const empty = el("p", { class: "empty", id: "runs-empty", hidden: true }, "No run yet. ", el("button", { type: "button", class: "link", onclick: () => showTab("train") }, "Start one on Train"), ", then compare it with others here.");
    const nothing = el("p", { class: "empty", hidden: true });
    const all = el("input", { type: "checkbox", "aria-label": "Choose all runs shown", onchange: () => choose(all.checked ? shownRuns().map((run) => run.name) : []) });
    const heads = COLUMNS.map((column) => el("th", { scope: "col", class: column.numeric ? "number" : null, title: column.about },
      el("button", { type: "button", onclick: () => sortBy(column) }, column.title)));
    const body = el("tbody", {});
    const table = el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col", class: "choose" }, all), ...heads, el("th", { scope: "col" }, el("span", { class: "unseen" }, "Actions")))), body);
    const scroller = el("div", { class: "scroller", tabindex: 0, role: "region", "aria-label": "Runs", hidden: true }, table);
    const more = el("p", { class: "muted", hidden: true });
    const trash = el("details", { class: "trash", id: "runs-trash", hidden: true });
    const legend = el("ul", { class: "legend", id: "runs-legend", "aria-label": "Configurations" });
    const each = el("input", { type: "checkbox", id: "runs-each", onchange: () => { view.each = each.checked; overlay.show(view); } });
    const eachLabel = el("label", { class: "each" }, each, " each seed");
    const bandNote = el("span", { class: "muted" }, "line: mean over seeds · band: lowest to highest seed");
    const charts = el("div", { id: "runs-curves" });
    const missing = el("ul", { class: "missing", role: "alert", hidden: true });
    const noCurves = el("p", { class: "muted", hidden: true }, "None of the chosen runs has logged a row yet; curves appear with the first step.");
    const diff = el("div", { class: "scroller", tabindex: 0, role: "region", "aria-label": "Differences", id: "runs-diff" });
    const hint = el("p", { class: "muted", id: "runs-hint" }, "Choose runs in the first column to see them on the same curves; a run's name opens it on Train.");
    const together = el("section", { "aria-label": "Chosen runs", id: "runs-together", hidden: true },
      el("div", { class: "together-head" }, el("h2", {}, "Chosen runs"), eachLabel, bandNote), legend, missing, noCurves, charts, el("h2", {}, "Differences"), diff);

    const isVisible = () => element.isConnected && element.offsetParent !== null;
    const say = (text, bad = false) => { notice.textContent = text; notice.hidden = !text; notice.classList.toggle("bad", bad); };

    function showTab(id) {
      document.getElementById(`${id}-tab-button`)?.click();
    }

    function openInTrain(name) {
      const url = new URL(location.href);
      for (const other of ["step", "group", "watched", "rollout", "k", "xmin", "xmax", "runs", "sort", "filter", "tab"]) url.searchParams.delete(other);
      url.searchParams.set("run", name);
      history.replaceState(history.state, "", url); // read by the Train tab when it is shown for the first time
      showTab("train");
      globalThis.WorkbenchTrain.show(name);
    }

    // ── address ──────────────────────────────────────────────────────────────────────────────────────────────

    function writeAddress() {
      const url = new URL(location.href);
      const here = isVisible();
      const names = [...view.chosen].join(",");
      const sorted = view.sort === "created" && view.down ? null : `${view.down ? "-" : ""}${view.sort}`;
      for (const [name, value] of Object.entries({ runs: names, sort: sorted, filter: filter.value.trim() })) {
        if (here && value) url.searchParams.set(name, value);
        else url.searchParams.delete(name);
      }
      if (here) url.searchParams.set("tab", "runs");
      else if (url.searchParams.get("tab") === "runs") url.searchParams.delete("tab");
      const address = url.href.replaceAll("%2C", ",");
      if (address !== location.href) history.replaceState(history.state, "", address);
    }

    // ── table ────────────────────────────────────────────────────────────────────────────────────────────────

    function shownRuns() {
      const column = COLUMNS.find((one) => one.key === view.sort);
      const words = view.filter.split(/\s+/).filter(Boolean);
      const found = (view.runs ?? []).filter((run) => {
        const text = [run.name, run.task, run.scheme, run.state, run.policy, run.reason].join(" ").toLowerCase();
        return words.every((word) => text.includes(word));
      });
      // Runs without a value come last, whichever way the rest is sorted.
      return found.sort((a, b) => {
        const [x, y] = [a[column.key] ?? null, b[column.key] ?? null];
        if (x === null || y === null) return (x === null) - (y === null);
        const order = column.numeric ? x - y : `${x}`.localeCompare(`${y}`, undefined, { numeric: true });
        return view.down ? -order : order;
      });
    }

    function sortBy(column) {
      view.down = view.sort === column.key ? !view.down : Boolean(column.numeric);
      view.sort = column.key;
      drawTable();
      writeAddress();
    }

    function drawTable() {
      const known = view.runs !== null;
      const shown = shownRuns();
      loading.hidden = known;
      empty.hidden = !known || view.runs.length > 0;
      tools.hidden = scroller.hidden = !known || !view.runs.length;
      if (!known) return;
      COLUMNS.forEach((column, i) => {
        if (view.sort === column.key) heads[i].setAttribute("aria-sort", view.down ? "descending" : "ascending");
        else heads[i].removeAttribute("aria-sort");
      });
      nothing.hidden = shown.length > 0 || !view.runs.length;
      once(nothing, view.filter, () => nothing.replaceChildren(`No run matches “${filter.value.trim()}”. `, el("button", { type: "button", class: "link", onclick: () => { filter.value = view.filter = ""; drawTable(); writeAddress(); filter.focus(); } }, "Show all")));
      const names = new Set(view.runs.map((run) => run.name));
      for (const [name, row] of rows) if (!names.has(name)) { row.node.remove(); rows.delete(name); }
      shown.forEach((run, i) => {
        const row = rows.get(run.name) ?? newRow(run);
        fillRow(row, run);
        if (body.children[i] !== row.node) body.insertBefore(row.node, body.children[i] ?? null);
      });
      while (body.children.length > shown.length) body.lastElementChild.remove();
      more.hidden = !view.more;
      more.textContent = `${plural(view.more, "older run")} not listed; their folders are in the workspace.`;
      drawChoice();
      drawTrash();
    }

    function newRow(run) {
      const box = el("input", { type: "checkbox", "aria-label": `Choose ${run.name}`, onchange: () => toggle(run.name, box.checked) });
      const badge = el("span", { class: "badge" });
      const open = el("button", { type: "button", class: "link", title: "Open in Train", onclick: () => openInTrain(run.name) }, run.name);
      const swatch = el("i", { class: "swatch", hidden: true });
      const cells = COLUMNS.map((column) => (column.key === "name" ? el("th", { scope: "row" }, el("span", { class: "named" }, swatch, open)) : el("td", { class: column.numeric ? "number" : null }, column.key === "state" ? badge : null)));
      const resume = el("button", { type: "button", class: "link", onclick: () => resumeRun(run.name) }, "resume");
      const links = ["zip", "csv", "json"].map((kind) => el("a", { href: `${view.value.downloads}/${encodeURIComponent(run.name)}.${kind}`, download: true, "aria-label": `Download ${run.name} as ${kind.toUpperCase()}` }, kind));
      const gone = el("button", { type: "button", class: "link", "aria-label": `Delete ${run.name}`, onclick: () => removeRuns([run.name]) }, "delete");
      const row = { box, badge, swatch, cells, resume, gone, node: el("tr", {}, el("td", { class: "choose" }, box), ...cells, el("td", {}, el("div", { class: "row-actions" }, resume, ...links, gone))) };
      resume.setAttribute("aria-label", `Resume ${run.name}`);
      rows.set(run.name, row);
      return row;
    }

    const set = (node, text) => { if (node.textContent !== text) node.textContent = text; };

    function fillRow(row, run) {
      row.box.checked = view.chosen.has(run.name);
      row.node.classList.toggle("chosen", row.box.checked);
      paint(row.swatch, row.box.checked ? run.name : null);
      set(row.badge, run.state);
      row.badge.className = `badge ${run.state === "unreadable" ? "failed" : run.state}`;
      row.badge.title = [run.reason, run.corrupt ? `${plural(run.corrupt, "damaged row")} of its metrics left out` : ""].filter(Boolean).join("\n");
      COLUMNS.forEach((column, i) => { if (!["state", "name"].includes(column.key)) set(row.cells[i], column.text(run)); });
      row.cells[COLUMNS.findIndex((column) => column.key === "reward")].title = run.problem ?? (run.reward_metric === "step_reward" ? "of steps" : "");
      row.resume.hidden = !run.resumable;
      row.gone.disabled = !run.final;
      row.gone.title = run.final ? "Move to the trash; can be undone" : "Stop the run first";
    }

    // A run's colour on a swatch; none where it is not among the chosen.
    function paint(swatch, name) {
      const number = view.colourOf.get(name);
      swatch.hidden = number === undefined;
      swatch.className = number === undefined ? "swatch" : `swatch swatch-${number % globalThis.WorkbenchOverlay.COLOURS}`;
      return swatch;
    }

    // Each configuration its colour: the one it has, or the first that is free.
    function giveColours(configurations) {
      const keys = new Set(configurations.map((one) => one.key));
      for (const key of [...view.colours.keys()]) if (!keys.has(key)) view.colours.delete(key);
      const taken = new Set(view.colours.values());
      for (const one of configurations) {
        if (!view.colours.has(one.key)) {
          let free = 0;
          while (taken.has(free)) free++;
          taken.add(free);
          view.colours.set(one.key, free);
        }
        one.colour = view.colours.get(one.key);
      }
      view.colourOf = new Map(configurations.flatMap((one) => one.runs.map((run) => [run.name, one.colour])));
    }

    // ── choosing ─────────────────────────────────────────────────────────────────────────────────────────────

    function toggle(name, on) {
      const chosen = new Set(view.chosen);
      if (on) chosen.add(name);
      else chosen.delete(name);
      choose([...chosen]);
    }

    function choose(names) {
      view.chosen = new Set(names.slice(0, view.value.most));
      say(names.length > view.value.most ? `At most ${view.value.most} runs are shown together; the first ${view.value.most} are chosen.` : "");
      for (const name of [...view.off]) if (!view.chosen.has(name)) view.off.delete(name);
      drawTable();
      writeAddress();
      fetchOverlay();
    }

    function drawChoice() {
      const chosen = view.chosen.size;
      const shown = shownRuns();
      all.checked = shown.length > 0 && shown.every((run) => view.chosen.has(run.name));
      all.indeterminate = !all.checked && chosen > 0;
      set(count, chosen ? `${chosen} chosen` : plural(shown.length, "run"));
      remove.hidden = clear.hidden = !chosen;
      remove.disabled = !view.runs.some((run) => view.chosen.has(run.name) && run.final);
      hint.hidden = chosen > 0 || !view.runs.length;
      together.hidden = !chosen;
    }

    // Choosing quickly asks for the newest choice only: while one answer is on its way, the last wish waits.
    let asking = false;
    let wish = null;
    async function fetchOverlay() {
      wish = [...view.chosen];
      if (asking) return;
      asking = true;
      try {
        while (wish?.length) {
          const asked = wish;
          wish = null;
          together.classList.add("is-waiting");
          const answer = await server.overlay({ runs: asked });
          if (!wish) drawOverlay(answer);
        }
        lost.hidden = true;
      } catch {
        lost.hidden = false;
        view.overlay = null; // asked for again with the next look
      } finally {
        together.classList.remove("is-waiting");
        asking = false;
      }
    }

    function drawOverlay(answer) {
      const drawn = JSON.stringify(answer);
      if (drawn === view.overlay) return;
      view.overlay = drawn;
      const several = answer.configurations.some((one) => one.runs.length > 1);
      eachLabel.hidden = bandNote.hidden = !several;
      const faults = answer.missing.map((one) => el("li", {}, one.error));
      if (answer.dropped) faults.push(el("li", {}, `${plural(answer.dropped, "run")} more chosen than are shown together.`));
      missing.replaceChildren(...faults);
      missing.hidden = !faults.length;
      noCurves.hidden = answer.panels.length > 0 || !answer.configurations.length;
      giveColours(answer.configurations);
      for (const [name, row] of rows) paint(row.swatch, view.chosen.has(name) ? name : null);
      once(legend, answer.configurations, () => legend.replaceChildren(...answer.configurations.map(legendItem)));
      drawDiff(answer);
      overlay.draw(answer).catch((error) => console.warn("overlay", error));
    }

    function legendItem(configuration) {
      const names = configuration.runs.map((run) => run.name);
      const flip = (which) => {
        const on = which.some((name) => !view.off.has(name));
        which.forEach((name) => (on ? view.off.add(name) : view.off.delete(name)));
        press();
        overlay.show(view);
      };
      const whole = el("button", { type: "button", class: "configuration", onclick: () => flip(names) },
        paint(el("i"), names[0]), configuration.label, " ", el("span", { class: "muted" }, names.length > 1 ? `${names.length} seeds` : ""));
      const seeds = configuration.runs.map((run) => el("button", { type: "button", class: "seed", title: run.name, onclick: () => flip([run.name]) }, names.length > 1 ? `seed ${run.seed}` : run.name));
      const press = () => {
        whole.setAttribute("aria-pressed", String(names.some((name) => !view.off.has(name))));
        seeds.forEach((button, at) => button.setAttribute("aria-pressed", String(!view.off.has(names[at]))));
      };
      press();
      return el("li", {}, whole, ...seeds);
    }

    function drawDiff(answer) {
      const names = answer.configurations.flatMap((one) => one.runs.map((run) => run.name));
      if (names.length < 2) {
        diff.replaceChildren(el("p", { class: "muted" }, "Choose a second run to see in which settings they differ."));
        return;
      }
      if (!answer.differences.length) {
        diff.replaceChildren(el("p", { class: "muted" }, "The chosen runs have the same settings, the seed included."));
        return;
      }
      diff.replaceChildren(el("table", {},
        el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "setting"), ...answer.order.map((name) => el("th", { scope: "col" }, paint(el("i"), name), name)))),
        el("tbody", {}, ...answer.differences.map((row) => el("tr", {}, el("th", { scope: "row" }, row.field), ...row.values.map((value) => el("td", { class: value === NONE ? "muted" : null, title: value }, value)))))));
    }

    // ── deleting, taking back, resuming ──────────────────────────────────────────────────────────────────────

    async function removeRuns(names) {
      const answer = await ask(() => server.remove({ runs: names }));
      if (!answer) return;
      say(answer.problems.join("\n"), true);
      const moved = answer.moved.map((one) => one.name);
      if (moved.length) {
        for (const name of moved) view.chosen.delete(name);
        offerUndo(moved.length === 1 ? `Deleted ${moved[0]}.` : `Deleted ${moved.length} runs.`, answer.moved);
      }
      await look();
      choose([...view.chosen]);
      if (answer.problems.length) say(answer.problems.join("\n"), true);
    }

    function offerUndo(text, moved) {
      const undo = el("button", { type: "button", class: "link", id: "runs-undo", onclick: () => takeBack(moved.map((one) => one.entry)) }, "Undo");
      toast.replaceChildren(el("span", {}, text), undo, el("button", { type: "button", class: "close", "aria-label": "Dismiss", onclick: () => { toast.hidden = true; } }, "×"));
      toast.hidden = false;
      undo.focus();
    }

    async function takeBack(entries) {
      const answer = await ask(() => server.undelete({ entries }));
      if (!answer) return;
      toast.hidden = true;
      await look();
      say([...(answer.restored.length ? [`${answer.restored.join(", ")} ${answer.restored.length === 1 ? "is" : "are"} back.`] : []), ...answer.problems].join("\n"), answer.problems.length > 0);
    }

    function drawTrash() {
      trash.hidden = !view.trash.length;
      once(trash, view.trash, () => trash.replaceChildren(el("summary", {}, plural(view.trash.length, "deleted run")), el("p", { class: "muted" }, "Kept in the workspace’s folder trash; remove them there to free the space."),
        el("ul", {}, ...view.trash.map((one) => el("li", {}, `${one.name}, ${when(one.deleted)} `, el("button", { type: "button", class: "link", "aria-label": `Restore ${one.name}`, onclick: () => takeBack([one.entry]) }, "restore"))))));
    }

    async function resumeRun(name) {
      const answer = await ask(() => server.resume({ run: name }));
      if (!answer) return;
      await look();
      say(answer.message, answer.level === "error");
    }

    async function ask(call) {
      try {
        const answer = (await call()) ?? null; // a call that got no answer may also give nothing
        lost.hidden = answer !== null;
        return answer;
      } catch {
        lost.hidden = false;
        return null;
      }
    }

    // ── a look every few seconds ─────────────────────────────────────────────────────────────────────────────

    async function look() {
      const answer = await ask(() => server.table({}));
      if (!answer) return;
      Object.assign(view, answer);
      drawTable();
    }

    const isLive = () => (view.runs ?? []).some((run) => !run.final);

    async function tick() {
      writeAddress();
      if (!isVisible()) return;
      const growing = () => (view.runs ?? []).some((run) => !run.final && view.chosen.has(run.name));
      const before = growing();
      await look(); // a run that ended since the last one has its last rows now
      if (view.chosen.size && (before || growing() || view.overlay === null)) await fetchOverlay();
    }

    // ── start ────────────────────────────────────────────────────────────────────────────────────────────────

    const tools = el("div", { class: "runs-tools", hidden: true }, filter, count, remove, clear);
    const root = element.querySelector(".drawn");
    root.append(tools, lost, notice, loading, empty, scroller, nothing, more, hint, together, trash, toast);
    follow(handles, (_, value) => {
      view.value = value;
      overlay ??= globalThis.WorkbenchOverlay.mount(charts, { plotly: value.plotly });
    });
    const parameters = new URL(location.href).searchParams;
    const asked = parameters.get("runs");
    const sort = parameters.get("sort") ?? "";
    if (COLUMNS.some((column) => column.key === sort.replace("-", ""))) Object.assign(view, { sort: sort.replace("-", ""), down: sort.startsWith("-") });
    filter.value = parameters.get("filter") ?? "";
    view.filter = filter.value.trim().toLowerCase();
    if (asked) view.chosen = new Set(asked.split(",").map((name) => name.trim()).filter(Boolean).slice(0, view.value.most));
    whileVisible(element, tick, () => (isLive() ? LIVE_EVERY : IDLE_EVERY));
    new IntersectionObserver((entries) => { if (entries.some((entry) => entry.isIntersecting)) tick(); else writeAddress(); }).observe(element);
    globalThis.WorkbenchRuns.show = (names) => { showTab("runs"); if (names.length) choose(names); };
  }

  globalThis.WorkbenchRuns = { mount, show: () => document.getElementById("runs-tab-button")?.click() };
})();
