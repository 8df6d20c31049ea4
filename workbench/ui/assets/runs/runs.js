// @ts-nocheck: elements and their events; what is computed is checked beside it
// The Runs tab: the table of runs, and the chosen ones on the same curves with what sets them apart.
//
// The table is asked for again every few seconds while it can be seen. Which runs are chosen, how the table is sorted,
// what it is filtered by and what the curves are zoomed to is in the page's address. A configuration has one colour for
// as long as one of its runs is chosen.

import { el, once, say, setText } from "../../../figures/dom.js";
import { follow, tabs, whileVisible } from "../widget.js";
import { readRange } from "../train/state.js";
import { ChosenRuns } from "./chosen.js";
import { plural, readSort, writeSort } from "./columns.js";
import { tableRows } from "./pipelines.js";
import { RunTable } from "./table.js";
import { Trash } from "./trash.js";

const LIVE_EVERY = 2000; // milliseconds
const IDLE_EVERY = 6000;
const OF_TRAIN = ["step", "group", "watched", "rollout", "k", "xmin", "xmax"]; // parameters of the address
const HERE = ["runs", "sort", "filter", "tab"];
const LOST = "No connection to the workbench; what is shown stays, and is asked for again.";
const HINT = "Choose runs in the first column to see them on the same curves; a run's name opens it on Train.";

const button = (id, text, onclick, kind = null) => el("button", { type: "button", id, class: kind, onclick }, text);
const showTab = (id) => document.getElementById(`${id}-tab-button`)?.click();

export function runs(handles) {
  const tab = new Runs(handles);
  tabs.showRuns = (names) => {
    showTab("runs");
    if (names.length) tab.choose(names);
  };
}

class Runs {
  constructor(handles) {
    const { element, server } = handles;
    Object.assign(this, { handles, element, server, runs: null, trashed: [], more: 0, asking: false, wish: null });
    Object.assign(this, { pipelines: [], unfolded: new Set() }); // those whose stages are shown, by name
    this.table = new RunTable({
      choose: (names) => this.choose(names),
      toggle: (name, on) => this.toggle(name, on),
      open: openInTrain,
      resume: (name) => this.resume(name),
      use: (name) => this.handles.trigger("apply", { reward: name }),
      remove: (names) => this.remove(names),
      sort: (column) => this.sortBy(column),
      unfold: (name) => this.unfold(name),
      resumePipeline: (name) => this.answered(() => this.server.resume_pipeline({ pipeline: name })),
      stopPipeline: (name) => this.answered(() => this.server.stop_pipeline({ pipeline: name })),
    });
    const range = readRange(new URL(location.href).searchParams);
    this.chosenRuns = new ChosenRuns({ range, onZoom: () => this.writeAddress() });
    this.trash = new Trash((entries) => this.restore(entries));
    this.build();
    this.start();
  }

  build() {
    const input = () => {
      this.draw();
      this.writeAddress();
    };
    this.filter = el("input", {
      type: "search",
      id: "runs-filter",
      "aria-label": "Filter runs",
      placeholder: "Filter by name, task, credit, state",
      oninput: input,
    });
    this.count = el("span", { class: "muted", id: "runs-count", role: "status" });
    this.delete = button("runs-delete", "Delete", () => this.remove([...this.chosen]));
    this.clear = button("runs-clear", "Clear choice", () => this.choose([]));
    this.tools = el("div", { class: "runs-tools", hidden: true }, this.filter, this.count, this.delete, this.clear);
    this.lost = el("p", { class: "notice bad", id: "runs-lost", role: "alert", hidden: true }, LOST);
    this.notice = el("p", { class: "notice", id: "runs-notice", role: "status", hidden: true });
    this.loading = el("div", { class: "skeleton", "aria-hidden": true }, ...Array.from({ length: 4 }, () => el("div")));
    this.empty = el(
      "p",
      { class: "empty", id: "runs-empty", hidden: true },
      "No run yet. ",
      button(null, "Start one on Train", () => showTab("train"), "link"),
      ", then compare it with others here.",
    );
    this.nothing = el("p", { class: "empty", hidden: true });
    this.older = el("p", { class: "muted", hidden: true });
    this.hint = el("p", { class: "muted", id: "runs-hint" }, HINT);
    this.element.querySelector(".drawn").append(
      this.tools,
      this.lost,
      this.notice,
      this.loading,
      this.empty,
      this.table.node,
      this.nothing,
      this.older,
      this.hint,
      this.chosenRuns.node,
      this.trash.node,
      this.trash.toast,
    );
  }

  start() {
    follow(this.handles, (_, value) => {
      this.value = value;
    });
    const parameters = new URL(location.href).searchParams;
    const names = (parameters.get("runs") ?? "").split(",").map((name) => name.trim()).filter(Boolean);
    this.chosen = new Set(names.slice(0, this.value.most));
    this.sort = readSort(parameters.get("sort"));
    this.filter.value = parameters.get("filter") ?? "";
    this.chosenRuns.choose(this.chosen);
    whileVisible(this.element, () => this.tick(), () => (this.isLive ? LIVE_EVERY : IDLE_EVERY));
    new IntersectionObserver((entries) => {
      if (entries.some((entry) => entry.isIntersecting)) this.tick();
      else this.writeAddress();
    }).observe(this.element);
  }

  get isVisible() {
    return this.element.isConnected && this.element.offsetParent !== null;
  }

  get isLive() {
    return [...(this.runs ?? []), ...this.pipelines].some(({ final }) => !final);
  }

  say(text, bad = false) {
    say(this.notice, text);
    this.notice.classList.toggle("bad", bad);
  }

  writeAddress() {
    const url = new URL(location.href);
    const here = this.isVisible, { searchParams } = url;
    const values = { runs: [...this.chosen].join(","), sort: writeSort(this.sort), filter: this.filter.value.trim() };
    const [xmin, xmax] = (this.chosenRuns.curves.range ?? []).map((end) => end.toFixed(1).replace(/\.0$/, ""));
    // Without this tab, a zoom may be Train's.
    if (here || searchParams.get("tab") === "runs") Object.assign(values, { xmin, xmax, tab: "runs" });
    for (const [name, value] of Object.entries(values)) {
      if (here && value) searchParams.set(name, value);
      else searchParams.delete(name);
    }
    const address = url.href.replaceAll("%2C", ",");
    if (address !== location.href) history.replaceState(history.state, "", address);
  }

  // ── table ──────────────────────────────────────────────────────────────────────────────────────────────────

  sortBy({ key, numeric }) {
    this.sort = { key, down: this.sort.key === key ? !this.sort.down : numeric };
    this.draw();
    this.writeAddress();
  }

  draw() {
    const { runs, pipelines, chosen } = this;
    if (!runs) return;
    const text = this.filter.value.trim();
    const shown = tableRows(runs, pipelines, this.unfolded, this.sort, text);
    const there = runs.length + pipelines.length > 0;
    this.loading.hidden = true;
    this.empty.hidden = there;
    this.tools.hidden = this.table.node.hidden = !there;
    this.nothing.hidden = shown.length > 0 || !there;
    once(
      this.nothing,
      text,
      () =>
        this.nothing.replaceChildren(
          `No run matches “${text}”. `,
          button(null, "Show all", () => this.showAll(), "link"),
        ),
    );
    this.table.draw(shown, {
      sort: this.sort,
      chosen,
      colourOf: this.chosenRuns.colourOf,
      downloads: this.value.downloads,
    });
    say(
      this.older,
      this.more ? `${plural(this.more, "older run")} not listed; their folders are in the workspace.` : "",
    );
    setText(this.count, chosen.size ? `${chosen.size} chosen` : counted(shown));
    this.delete.hidden = this.clear.hidden = !chosen.size;
    this.delete.disabled = !runs.some((run) => chosen.has(run.name) && run.final);
    this.hint.hidden = chosen.size > 0 || !runs.length;
    this.trash.draw(this.trashed);
  }

  showAll() {
    this.filter.value = "";
    this.draw();
    this.writeAddress();
    this.filter.focus();
  }

  unfold(name) {
    if (!this.unfolded.delete(name)) this.unfolded.add(name);
    this.draw();
  }

  // ── choosing ───────────────────────────────────────────────────────────────────────────────────────────────

  toggle(name, on) {
    const others = [...this.chosen].filter((other) => other !== name);
    this.choose(on ? [...others, name] : others);
  }

  choose(names) {
    const { most } = this.value;
    this.chosen = new Set(names.slice(0, most));
    this.say(names.length > most ? `At most ${most} runs are shown together; the first ${most} are chosen.` : "");
    this.chosenRuns.choose(this.chosen);
    this.draw();
    this.writeAddress();
    this.fetchOverlay();
  }

  // Choosing quickly asks for the newest choice only: while one answer is on its way, the last wish waits.
  async fetchOverlay() {
    this.wish = [...this.chosen];
    if (this.asking) return;
    this.asking = true;
    try {
      while (this.wish?.length) {
        const runs = this.wish;
        this.wish = null;
        this.chosenRuns.node.classList.add("is-waiting");
        const answer = await this.server.overlay({ runs });
        if (!this.wish && this.chosenRuns.draw(answer)) this.table.paint(this.chosen, this.chosenRuns.colourOf);
      }
      this.lost.hidden = true;
    } catch {
      this.lost.hidden = false;
      this.chosenRuns.drawn = null; // asked for again with the next look
    } finally {
      this.chosenRuns.node.classList.remove("is-waiting");
      this.asking = false;
    }
  }

  // ── deleting, taking back, resuming ────────────────────────────────────────────────────────────────────────

  async remove(names) {
    const answer = await this.ask(() => this.server.remove({ runs: names }));
    if (!answer) return;
    const { moved, problems } = answer;
    for (const { name } of moved) this.chosen.delete(name);
    if (moved.length) this.trash.offerUndo(moved);
    await this.look();
    this.choose([...this.chosen]);
    if (problems.length) this.say(problems.join("\n"), true);
  }

  async restore(entries) {
    const answer = await this.ask(() => this.server.undelete({ entries }));
    if (!answer) return;
    const { restored, problems } = answer;
    this.trash.dismiss();
    await this.look();
    const back = restored.length ? [`${restored.join(", ")} ${restored.length === 1 ? "is" : "are"} back.`] : [];
    this.say([...back, ...problems].join("\n"), problems.length > 0);
  }

  resume(name) {
    return this.answered(() => this.server.resume({ run: name }));
  }

  async answered(call) {
    const answer = await this.ask(call);
    if (!answer) return;
    await this.look();
    this.say(answer.message, answer.level === "error");
  }

  async ask(call) {
    const answer = (await call().catch(() => null)) ?? null; // a call that got no answer may also give nothing
    this.lost.hidden = answer !== null;
    return answer;
  }

  // ── a look every few seconds ───────────────────────────────────────────────────────────────────────────────

  async look() {
    const answer = await this.ask(() => this.server.table({}));
    if (!answer) return;
    Object.assign(this, { runs: answer.runs, pipelines: answer.pipelines, more: answer.more, trashed: answer.trash });
    this.draw();
  }

  async tick() {
    this.writeAddress();
    if (!this.isVisible) return;
    const growing = () => (this.runs ?? []).some((run) => !run.final && this.chosen.has(run.name));
    const before = growing();
    await this.look(); // a run that ended since the last one has its last rows now
    if (this.chosen.size && (before || growing() || this.chosenRuns.drawn === null)) await this.fetchOverlay();
  }
}

// "3 runs, 1 pipeline" of the rows in sight.
function counted(rows) {
  const [runs, pipelines] = ["run", "pipeline"].map((kind) => rows.filter((row) => row.kind === kind).length);
  const parts = [runs || !pipelines ? plural(runs, "run") : "", pipelines ? plural(pipelines, "pipeline") : ""];
  return parts.filter(Boolean).join(", ");
}

function openInTrain(name) {
  const url = new URL(location.href);
  for (const other of [...OF_TRAIN, ...HERE]) url.searchParams.delete(other);
  url.searchParams.set("run", name);
  history.replaceState(history.state, "", url); // read by the Train tab when it is shown for the first time
  showTab("train");
  tabs.showTrain(name);
}
