// The table of runs. Rows keep their place in the document, so that focus and scrolling stay.

/** @import { RunRow } from "../../../views/payloads.d.ts" */
/** @import { Column, Sort } from "./columns.js" */
/**
 * @typedef {Object} TableActions What the table does.
 * @property {(names: string[]) => void} choose
 * @property {(name: string, on: boolean) => void} toggle
 * @property {(name: string) => void} open
 * @property {(name: string) => void} resume
 * @property {(name: string) => void} use
 * @property {(name: string) => void} inspect
 * @property {(name: string) => void} settle takes its settings over
 * @property {(name: string, kind: string) => void} take exports it
 * @property {(names: string[]) => void} remove
 * @property {(name: string) => void} describe opens its name, tags and note
 * @property {(column: Column) => void} sort
 */
/**
 * @typedef {Object} Parts What a row is made of.
 * @property {HTMLElement} named
 * @property {HTMLElement[]} actions
 * @property {HTMLInputElement} box
 * @property {HTMLElement} swatch
 * @property {HTMLElement} tags
 * @property {HTMLButtonElement} resume
 * @property {HTMLButtonElement} use
 * @property {HTMLButtonElement} inspect
 * @property {HTMLButtonElement} settle
 * @property {HTMLButtonElement} remove
 */
/** @typedef {Parts & { node: HTMLElement, badge: HTMLElement, cells: HTMLElement[], run: string }} Drawn a row */

import { el, once, setText } from "../../../views/dom.js";
import { link } from "../widget.js";
import { INSPECT_TITLE, SETTLE_TITLE } from "../train/head.js";
import { COLUMNS, hiddenColumns, keepHidden, OPTIONAL, plural } from "./columns.js";
import { paint } from "./chosen.js";

const KINDS = ["zip", "csv", "json"]; // that a run is downloaded as
const EXPORTS = { // what `python -m workbench export` writes
  model: "The newest checkpoint's model, an adapter put into its base, with a model card",
  adapter: "The adapter alone, with a model card",
  script: "A script that trains the same without the page, with its rows, rewards and an accelerate configuration",
};

export class RunTable {
  /** @param {TableActions} on */
  constructor(on) {
    this.on = on;
    /** @type {Map<string, Drawn>} by the runs' names */
    this.rows = new Map();
    this.hidden = hiddenColumns();
    /** @type {RunRow[]} the runs in sight */
    this.shown = [];
    /** @type {HTMLInputElement} */
    this.all = el("input", {
      type: "checkbox",
      "aria-label": "Choose all runs shown",
      onchange: () => on.choose(this.all.checked ? this.shown.map((run) => run.name) : []),
    });
    this.heads = COLUMNS.map((column) => {
      const button = el("button", { type: "button", onclick: () => on.sort(column) }, column.title);
      return el("th", { scope: "col", class: column.numeric ? "number" : null, title: column.about || null }, button);
    });
    this.body = el("tbody");
    const actions = el("th", { scope: "col" }, el("span", { class: "unseen" }, "Actions"));
    const head = el("tr", {}, el("th", { scope: "col", class: "choose" }, this.all), ...this.heads, actions);
    const table = el("table", {}, el("thead", {}, head), this.body);
    this.node = el(
      "div",
      { class: "scroller", tabindex: 0, role: "region", "aria-label": "Runs", hidden: true },
      table,
    );
  }

  /**
   * @param {RunRow[]} rows those in sight in their order
   * @param {{ sort: Sort, chosen: Set<string>, colourOf: Map<string, number>, downloads: string }} how `downloads` is
   *   where runs' files are
   */
  draw(rows, { sort, chosen, colourOf, downloads }) {
    this.shown = rows;
    COLUMNS.forEach((column, i) => {
      this.heads[i].hidden = this.hidden.has(column.key);
      if (sort.key === column.key) this.heads[i].setAttribute("aria-sort", sort.down ? "descending" : "ascending");
      else this.heads[i].removeAttribute("aria-sort");
    });
    const names = new Set(rows.map(({ name }) => name));
    for (const name of [...this.rows.keys()]) if (!names.has(name)) this.rows.delete(name);
    rows.forEach((shown, i) => {
      const row = this.rows.get(shown.name) ?? this.newRow(shown, downloads);
      this.fill(row, shown, chosen.has(shown.name));
      if (this.body.children[i] !== row.node) this.body.insertBefore(row.node, this.body.children[i] ?? null);
    });
    while (this.body.children.length > rows.length) this.body.lastElementChild?.remove();
    this.all.checked = this.shown.length > 0 && this.shown.every((run) => chosen.has(run.name));
    this.all.indeterminate = !this.all.checked && chosen.size > 0;
    this.paint(chosen, colourOf);
  }

  /** @param {() => void} changed What chooses the columns. */
  chooser(changed) {
    const boxes = OPTIONAL.map(({ key, title }) => {
      const flip = () => {
        if (!this.hidden.delete(key)) this.hidden.add(key);
        keepHidden(this.hidden);
        changed();
      };
      return el("label", {}, el("input", { type: "checkbox", checked: !this.hidden.has(key), onchange: flip }), title);
    });
    return el("details", { class: "columns-chosen" }, el("summary", {}, "Columns"), el("div", {}, ...boxes));
  }

  /** @param {Set<string>} chosen @param {Map<string, number>} colourOf */
  paint(chosen, colourOf) {
    for (const { swatch, run } of this.rows.values()) {
      paint(swatch, chosen.has(run) ? colourOf.get(run) : undefined);
    }
  }

  /** @param {RunRow} shown @param {string} downloads */
  newRow(shown, downloads) {
    const badge = el("span", { class: "badge" });
    const parts = this.runParts(shown, downloads);
    const { box, swatch, named, tags, actions } = parts;
    const cells = COLUMNS.map(({ key, numeric }) => {
      if (key === "name") return el("th", { scope: "row" }, el("span", { class: "named" }, swatch, named, tags));
      return el("td", { class: numeric ? "number" : null }, key === "state" ? badge : null);
    });
    const done = el("td", {}, el("div", { class: "row-actions" }, ...actions));
    const node = el("tr", {}, el("td", { class: "choose" }, box), ...cells, done);
    /** @type {Drawn} */
    const row = { ...parts, node, badge, cells, run: shown.name };
    this.rows.set(shown.name, row);
    return row;
  }

  /** @param {RunRow} row @param {string} downloads @returns {Parts} */
  runParts({ name }, downloads) {
    const { on } = this;
    /** @type {HTMLInputElement} */
    const box = el("input", {
      type: "checkbox",
      "aria-label": `Choose ${name}`,
      onchange: () => on.toggle(name, box.checked),
    });
    const resume = link("resume", () => on.resume(name), { "aria-label": `Resume ${name}` });
    const use = link("as reward", () => on.use(name), {
      "aria-label": `Use ${name} as a reward on Inspect`,
      title: "Use as a reward on Inspect",
    });
    const files = KINDS.map((kind) => {
      const href = `${downloads}/${encodeURIComponent(name)}.${kind}`;
      return el("a", { href, download: true, "aria-label": `Download ${name} as ${kind.toUpperCase()}` }, kind);
    });
    const inspect = link("inspect", () => on.inspect(name), {
      "aria-label": `Inspect the policy of ${name}`,
      title: INSPECT_TITLE,
    });
    const settle = link("settings", () => on.settle(name), {
      "aria-label": `Use the settings of ${name}`,
      title: SETTLE_TITLE,
    });
    const exports = Object.entries(EXPORTS).map(([kind, title]) =>
      link(kind, () => on.take(name, kind), { "aria-label": `Export the ${kind} of ${name}`, title })
    );
    const describe = link("name, tags, note", () => on.describe(name), { "aria-label": `Describe ${name}` });
    const exported = el("span", { class: "exports" }, "save as ", ...exports, ...files);
    const remove = link("delete", () => on.remove([name]), { "aria-label": `Delete ${name}` });
    const named = link(name, () => on.open(name), { title: "Open in Train", "aria-label": name });
    const tags = el("span", { class: "tags" });
    const swatch = el("i", { class: "swatch", hidden: true });
    return {
      box,
      swatch,
      named,
      tags,
      resume,
      use,
      inspect,
      settle,
      remove,
      actions: [resume, folded(name, [inspect, settle, use, describe, exported, remove])],
    };
  }

  /** @param {Drawn} row @param {RunRow} run what it shows @param {boolean} isChosen */
  fill(row, run, isChosen) {
    row.box.checked = isChosen;
    row.node.classList.toggle("chosen", isChosen);
    const alarms = run.alarms ?? [];
    setText(row.badge, alarms.length ? `${run.state}, check` : run.state);
    row.badge.className = `badge ${run.state === "unreadable" ? "failed" : alarms.length ? "check" : run.state}`;
    const damage = run.corrupt ? `${plural(run.corrupt, "damaged row")} of its metrics left out` : "";
    row.badge.title = [run.reason, damage, ...alarms].filter(Boolean).join("\n");
    COLUMNS.forEach(({ key, text }, i) => {
      if (key !== "state" && key !== "name") setText(row.cells[i], text(run));
      if (key === "reward") row.cells[i].title = run.problem ?? (run.reward_metric === "step_reward" ? "of steps" : "");
    });
    once(row.tags, run.tags, () => row.tags.replaceChildren(...run.tags.map((tag) => el("i", {}, tag))));
    row.named.title = [run.note, "Open in Train"].filter(Boolean).join("\n\n");
    COLUMNS.forEach(({ key }, i) => {
      row.cells[i].hidden = this.hidden.has(key);
    });
    row.resume.hidden = !run.resumable;
    row.use.hidden = run.gives !== "reward model";
    row.inspect.hidden = !run.policies?.length;
    row.settle.hidden = !run.final;
    row.remove.disabled = !run.final;
    row.remove.title = run.final ? "Move to the trash; can be undone" : "Stop the run first";
  }
}

/** @param {string} name @param {HTMLElement[]} actions Those of a run, behind one button. */
function folded(name, actions) {
  const summary = el("summary", { "aria-label": `Actions of ${name}`, title: "What can be done with it" }, "⋯");
  return el("details", { class: "row-menu" }, summary, el("span", {}, ...actions));
}
