// The Runs tab: the table of runs, and the chosen ones on the same curves with what sets them apart.
//
// The table is asked for again every few seconds while it can be seen. Which runs are chosen, how the table is sorted,
// what it is filtered by and what the curves are zoomed to is in the page's address. A configuration has one colour for
// as long as one of its runs is chosen.

/** @import { Answer, RunRow, RunsValue, TrashedPayload } from "../../../views/payloads.d.ts" */
/** @import { Call, Handles } from "../payloads.js" */
/** @import { Item } from "../menu.js" */
/** @import { Column } from "./table.js" */
/** @import { RunsServer } from "../../../views/payloads.d.ts" */
/** @typedef {{ run: string, name: string, note: string, tags: string[] }} Said */

import { el, once, say, setText } from "../../../views/dom.js";
import { readRange, stopLabel } from "../train/state.js";
import { answerOf, follow, link, rootOf, tabs, whileVisible } from "../widget.js";
import { openInTrain, savedAs, showTab, usedFor } from "./actions.js";
import { ChosenRuns } from "./chosen.js";
import { plural, readSort, RunTable, shownRuns, when, writeSort } from "./table.js";

const LIVE_EVERY = 2000; // milliseconds
const IDLE_EVERY = 6000;
const LOST = "No connection to the workbench; what is shown stays, and is asked for again.";
const HINT = "Tick runs to compare them. Click a name to open it.";

/** @param {string | null} id @param {string} text @param {() => void} onclick @param {string | null} [kind] */
const button = (id, text, onclick, kind = null) => el("button", { type: "button", id, class: kind, onclick }, text);

/** @param {Handles<RunsServer>} handles */
export function runs(handles) {
  const tab = new Runs(handles);
  tabs.showRuns = (names) => {
    showTab("runs");
    if (names.length) tab.choose(names);
  };
}

/** @param {string} text Tags as they are typed, between commas. */
export const tagsOf = (text) => [...new Set(text.split(",").map((tag) => tag.trim()).filter(Boolean))];

/** What somebody says of a run: another name, tags and a note, in a dialog. */
class AboutRun {
  /** @param {(said: Said) => Promise<string>} save what to say of it where it was not kept, else "" */
  constructor(save) {
    this.run = "";
    this.name = el("input", { type: "text", maxlength: 80, required: true, autocomplete: "off" });
    this.tags = el("input", { type: "text", placeholder: "baseline, to repeat", autocomplete: "off" });
    this.note = el("textarea", { rows: 4, maxlength: 4000 });
    this.problem = el("p", { class: "problem", role: "alert" });
    const field = (/** @type {string} */ label, /** @type {HTMLElement} */ input) => el("label", {}, label, input);
    /** @type {HTMLDialogElement} */
    this.node = el("dialog", { class: "about-run", "aria-label": "Name, tags and note" });
    const cancel = el("button", { type: "button", onclick: () => this.node.close() }, "Cancel");
    const form = el(
      "form",
      {
        onsubmit: async (/** @type {SubmitEvent} */ event) => {
          event.preventDefault();
          const { run, name, note, tags } = this;
          const said = { run, name: name.value.trim(), note: note.value, tags: tagsOf(tags.value) };
          this.problem.textContent = await save(said);
          if (!this.problem.textContent) this.node.close();
        },
      },
      field("Name", this.name),
      field("Tags, between commas", this.tags),
      field("Note", this.note),
      this.problem,
      el("div", { class: "row-actions" }, el("button", { type: "submit", class: "save" }, "Save"), cancel),
    );
    this.node.append(form);
  }

  /** @param {RunRow} run */
  open({ name, note, tags, final }) {
    this.run = name;
    this.name.value = name;
    this.name.disabled = !final; // a run that goes on keeps its name
    this.tags.value = tags.join(", ");
    this.note.value = note;
    this.problem.textContent = "";
    this.node.showModal();
  }
}

/** Deleted runs: an offer to undo right after, and the list of all that are in the trash. */
class Trash {
  /** @param {(entries: string[]) => void} restore called with entries of the trash */
  constructor(restore) {
    this.restore = restore;
    this.toast = el("div", { class: "toast", id: "runs-toast", role: "status", hidden: true });
    this.node = el("details", { class: "trash", id: "runs-trash", hidden: true });
  }

  /** @param {TrashedPayload[]} moved */
  offerUndo(moved) {
    const text = moved.length === 1 ? `Deleted ${moved[0].name}.` : `Deleted ${moved.length} runs.`;
    const undo = link("Undo", () => this.restore(moved.map(({ entry }) => entry)), { id: "runs-undo" });
    const dismiss = el("button", {
      type: "button",
      class: "close",
      "aria-label": "Dismiss",
      onclick: () => this.dismiss(),
    }, "×");
    this.toast.replaceChildren(el("span", {}, text), undo, dismiss);
    this.toast.hidden = false;
    undo.focus();
  }

  dismiss() {
    this.toast.hidden = true;
  }

  /** @param {TrashedPayload[]} trashed */
  draw(trashed) {
    this.node.hidden = !trashed.length;
    const item = (/** @type {TrashedPayload} */ { name, entry, deleted }) =>
      el(
        "li",
        {},
        `${name}, ${when(deleted)} `,
        link("restore", () => this.restore([entry]), { "aria-label": `Restore ${name}` }),
      );
    once(this.node, trashed, () =>
      this.node.replaceChildren(
        el("summary", {}, plural(trashed.length, "deleted run")),
        el("p", { class: "muted" }, "Deleted runs stay in the workspace’s folder trash."),
        el("ul", {}, ...trashed.map(item)),
      ));
  }
}

class Runs {
  /** @param {Handles<RunsServer>} handles */
  constructor(handles) {
    const { element, server } = handles;
    this.handles = handles;
    this.element = element;
    this.server = server;
    /** @type {RunsValue} */
    this.value = { downloads: "", most: 0 };
    follow(handles, (_, /** @type {RunsValue | null} */ value) => {
      if (value) this.value = value;
    });
    /** @type {RunRow[] | null} */
    this.runs = null;
    this.more = 0; // runs that are not listed
    /** @type {TrashedPayload[]} */
    this.trashed = [];
    /** @type {string[] | null} runs that are to be asked for next */
    this.wish = null;
    this.asking = false;
    const parameters = new URL(location.href).searchParams;
    const names = (parameters.get("runs") ?? "").split(",").map((name) => name.trim()).filter(Boolean);
    this.chosen = new Set(names.slice(0, this.value.most));
    this.sort = readSort(parameters.get("sort"));
    this.filter = this.makeFilter(parameters.get("filter") ?? "");
    this.table = this.makeTable();
    this.axis = parameters.get("axis") ?? "step";
    /** @type {ChosenRuns} */
    this.chosenRuns = new ChosenRuns({
      range: readRange(parameters),
      onZoom: () => this.writeAddress(),
      onAxis: (axis) => this.drawOver(axis),
      onChange: () => this.fetchOverlay(),
      csv: (key) => this.server.curve({ runs: [...this.chosen], axis: this.axis, key, ...this.chosenRuns.shown }),
      server,
    });
    this.about = new AboutRun((said) => this.keepSaid(said));
    this.trash = new Trash((entries) => this.restore(entries));
    this.count = el("span", { class: "muted", id: "runs-count", role: "status" });
    this.delete = button("runs-delete", "Delete", () => this.remove([...this.chosen]));
    this.clear = button("runs-clear", "Clear choice", () => this.choose([]));
    const columns = this.table.chooser(() => this.draw());
    this.tools = el(
      "div",
      { class: "runs-tools", hidden: true },
      this.filter,
      this.count,
      this.delete,
      this.clear,
      columns,
    );
    this.lost = el("p", { class: "notice bad", id: "runs-lost", role: "alert", hidden: true }, LOST);
    this.notice = el("p", { class: "notice", id: "runs-notice", role: "status", hidden: true });
    this.loading = el("div", { class: "skeleton", "aria-hidden": true }, ...Array.from({ length: 4 }, () => el("div")));
    const first = button(null, "Start one on Train", () => showTab("train"), "link");
    const empty = { class: "empty", id: "runs-empty", hidden: true };
    this.empty = el("p", empty, "No run yet. ", first, ", then compare it with others here.");
    this.nothing = el("p", { class: "empty", hidden: true });
    this.older = el("p", { class: "muted", hidden: true });
    this.hint = el("p", { class: "muted", id: "runs-hint" }, HINT);
    this.start();
  }

  /** @param {string} value */
  makeFilter(value) {
    const filter = el("input", {
      type: "search",
      id: "runs-filter",
      "aria-label": "Filter runs",
      placeholder: "Search names, tags, notes, tasks, credit",
      oninput: () => {
        this.draw();
        this.writeAddress();
      },
    });
    filter.value = value;
    return filter;
  }

  makeTable() {
    return new RunTable({
      choose: (names) => this.choose(names),
      toggle: (name, on) => this.toggle(name, on),
      open: openInTrain,
      items: (run) => this.items(run),
      sort: (column) => this.sortBy(column),
    });
  }

  /** @param {RunRow} run @returns {Item[]} What its menu offers. */
  items(run) {
    const { name, final } = run, request = { run: name };
    const ways = {
      apply: (/** @type {Record<string, string>} */ wanted) => this.handles.trigger("apply", wanted),
      downloads: this.value.downloads,
      say: (/** @type {string} */ text, bad = false) => this.say(text, bad),
    };
    /** @type {(label: string, chosen: () => unknown) => Item} */
    const item = (label, chosen) => ({ label, of: name, chosen });
    return [
      item("Open in Train", () => openInTrain(name)),
      ...(run.resumable ? [item("Resume", () => this.answered(() => this.server.resume(request)))] : []),
      ...(final ? [] : [item(stopLabel(run), () => this.answered(() => this.server.stop(request)))]),
      ...usedFor(run, ways),
      item("Name, tags and note", () => this.about.open(run)),
      ...savedAs(run, ways),
      { ...item("Delete", () => this.remove([name])), disabled: !final, title: final ? "" : "Stop the run first" },
    ];
  }

  start() {
    rootOf(this.handles).append(
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
      this.about.node,
    );
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
    return (this.runs ?? []).some(({ final }) => !final);
  }

  /** @param {string} text @param {boolean} [bad] */
  say(text, bad = false) {
    say(this.notice, text);
    this.notice.classList.toggle("bad", bad);
    this.saidOf = this.states;
  }

  /** The runs there are and their states, as one text: an error that was said of others is over. */
  get states() {
    return (this.runs ?? []).map(({ name, state }) => `${name} ${state}`).join();
  }

  writeAddress() {
    const url = new URL(location.href);
    const here = this.isVisible, { searchParams } = url;
    /** @type {Record<string, string>} */
    const values = { runs: [...this.chosen].join(","), sort: writeSort(this.sort), filter: this.filter.value.trim() };
    values.axis = this.axis === "step" ? "" : this.axis;
    const { range } = this.chosenRuns.curves;
    const [xmin, xmax] = range ? range.map((end) => end.toFixed(1).replace(/\.0$/, "")) : ["", ""];
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

  /** @param {Column} column */
  sortBy({ key, numeric }) {
    this.sort = { key, down: this.sort.key === key ? !this.sort.down : numeric };
    this.draw();
    this.writeAddress();
  }

  draw() {
    const { runs, chosen } = this;
    if (!runs) return;
    const text = this.filter.value.trim();
    const shown = shownRuns(runs, this.sort, text);
    const there = runs.length > 0;
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
    });
    say(
      this.older,
      this.more ? `${plural(this.more, "older run")} not listed; their folders are in the workspace.` : "",
    );
    setText(this.count, chosen.size ? `${chosen.size} chosen` : plural(shown.length, "run"));
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

  // ── choosing ───────────────────────────────────────────────────────────────────────────────────────────────

  /** @param {string} name @param {boolean} on */
  toggle(name, on) {
    const others = [...this.chosen].filter((other) => other !== name);
    this.choose(on ? [...others, name] : others);
  }

  /** @param {string[]} names */
  choose(names) {
    const { most } = this.value;
    this.chosen = new Set(names.slice(0, most));
    this.say(names.length > most ? `At most ${most} runs are shown together; the first ${most} are chosen.` : "");
    this.chosenRuns.choose(this.chosen);
    this.draw();
    this.writeAddress();
    this.fetchOverlay();
  }

  /** @param {string} axis What curves are drawn over; a zoom is of the one before. */
  drawOver(axis) {
    this.axis = axis;
    this.chosenRuns.curves.zoom(null);
    this.writeAddress();
    this.fetchOverlay();
  }

  /** @param {Said} said Why it was not kept, or "". */
  async keepSaid(said) {
    const answer = await this.ask(() => this.server.say_of(said));
    if (!answer) return "The workbench did not answer; try again.";
    if (answer.level === "error") return answer.message;
    if (this.chosen.delete(said.run)) this.chosen.add(said.name);
    await this.look();
    this.choose([...this.chosen]);
    this.say(answer.message);
    return "";
  }

  /** Choosing quickly asks for the newest choice only: while one answer is on its way, the last wish waits. */
  async fetchOverlay() {
    this.wish = [...this.chosen];
    if (this.asking) return;
    this.asking = true;
    try {
      while (this.wish?.length) {
        /** @type {string[]} */
        const runs = this.wish;
        this.wish = null;
        this.chosenRuns.node.classList.add("is-waiting");
        const answer = await answerOf(this.server.overlay({ runs, axis: this.axis, ...this.chosenRuns.shown }));
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

  /** @param {string[]} names */
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

  /** @param {string[]} entries of the trash */
  async restore(entries) {
    const answer = await this.ask(() => this.server.undelete({ entries }));
    if (!answer) return;
    const { moved: restored, problems } = answer;
    this.trash.dismiss();
    await this.look();
    const back = restored.length ? [`${restored.join(", ")} ${restored.length === 1 ? "is" : "are"} back.`] : [];
    this.say([...back, ...problems].join("\n"), problems.length > 0);
  }

  /** @param {() => ReturnType<Call<{}, Answer>>} call */
  async answered(call) {
    const answer = await this.ask(call);
    if (!answer) return;
    await this.look();
    this.say(answer.message, answer.level === "error");
  }

  /**
   * @template Reply
   * @param {() => Promise<Reply | undefined>} call @returns {Promise<Reply | null>} null where there was no answer
   */
  async ask(call) {
    const answer = await answerOf(call()).catch(() => null);
    this.lost.hidden = answer !== null;
    return answer;
  }

  // ── a look every few seconds ───────────────────────────────────────────────────────────────────────────────

  async look() {
    const answer = await this.ask(() => this.server.table({}));
    if (!answer) return;
    this.runs = answer.runs;
    if (this.notice.classList.contains("bad") && this.saidOf !== this.states) this.say("");
    this.more = answer.more;
    this.trashed = answer.trash;
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
