// @ts-nocheck: elements and their events; what is computed is checked beside it
// The table of runs. Rows keep their place in the document, so that focus and scrolling stay.

import { el, setText } from "../../../figures/dom.js";
import { COLUMNS, plural } from "./columns.js";
import { paint } from "./chosen.js";

const link = (text, onclick, more = {}) => el("button", { type: "button", class: "link", onclick, ...more }, text);
const KINDS = ["zip", "csv", "json"]; // that a run is downloaded as

export class RunTable {
  // `on` holds what the table does: choose(names), toggle(name, on), open(name), resume(name), remove(names), sort(column).
  constructor(on) {
    Object.assign(this, { on, rows: new Map(), shown: [] });
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

  // `runs` are all there are, `shown` those in sight in their order; `downloads` is where their files are.
  draw(runs, shown, { sort, chosen, colourOf, downloads }) {
    this.shown = shown;
    COLUMNS.forEach((column, i) => {
      if (sort.key === column.key) this.heads[i].setAttribute("aria-sort", sort.down ? "descending" : "ascending");
      else this.heads[i].removeAttribute("aria-sort");
    });
    const names = new Set(runs.map((run) => run.name));
    for (const name of [...this.rows.keys()]) if (!names.has(name)) this.rows.delete(name);
    shown.forEach((run, i) => {
      const row = this.rows.get(run.name) ?? this.newRow(run, downloads);
      this.fill(row, run, chosen.has(run.name));
      if (this.body.children[i] !== row.node) this.body.insertBefore(row.node, this.body.children[i] ?? null);
    });
    while (this.body.children.length > shown.length) this.body.lastElementChild.remove();
    this.all.checked = shown.length > 0 && shown.every((run) => chosen.has(run.name));
    this.all.indeterminate = !this.all.checked && chosen.size > 0;
    this.paint(chosen, colourOf);
  }

  paint(chosen, colourOf) {
    for (const [name, row] of this.rows) paint(row.swatch, chosen.has(name) ? colourOf.get(name) : undefined);
  }

  newRow({ name }, downloads) {
    const { on } = this;
    const box = el("input", {
      type: "checkbox",
      "aria-label": `Choose ${name}`,
      onchange: () => on.toggle(name, box.checked),
    });
    const badge = el("span", { class: "badge" });
    const swatch = el("i", { class: "swatch", hidden: true });
    const open = link(name, () => on.open(name), { title: "Open in Train" });
    const cells = COLUMNS.map(({ key, numeric }) => {
      if (key === "name") return el("th", { scope: "row" }, el("span", { class: "named" }, swatch, open));
      return el("td", { class: numeric ? "number" : null }, key === "state" ? badge : null);
    });
    const resume = link("resume", () => on.resume(name), { "aria-label": `Resume ${name}` });
    const files = KINDS.map((kind) => {
      const href = `${downloads}/${encodeURIComponent(name)}.${kind}`;
      return el("a", { href, download: true, "aria-label": `Download ${name} as ${kind.toUpperCase()}` }, kind);
    });
    const remove = link("delete", () => on.remove([name]), { "aria-label": `Delete ${name}` });
    const actions = el("td", {}, el("div", { class: "row-actions" }, resume, ...files, remove));
    const node = el("tr", {}, el("td", { class: "choose" }, box), ...cells, actions);
    const row = { node, box, badge, swatch, cells, resume, remove };
    this.rows.set(name, row);
    return row;
  }

  fill(row, run, isChosen) {
    row.box.checked = isChosen;
    row.node.classList.toggle("chosen", isChosen);
    setText(row.badge, run.state);
    row.badge.className = `badge ${run.state === "unreadable" ? "failed" : run.state}`;
    const damage = run.corrupt ? `${plural(run.corrupt, "damaged row")} of its metrics left out` : "";
    row.badge.title = [run.reason, damage].filter(Boolean).join("\n");
    COLUMNS.forEach(({ key, text }, i) => {
      if (key !== "state" && key !== "name") setText(row.cells[i], text(run));
      if (key === "reward") row.cells[i].title = run.problem ?? (run.reward_metric === "step_reward" ? "of steps" : "");
    });
    row.resume.hidden = !run.resumable;
    row.remove.disabled = !run.final;
    row.remove.title = run.final ? "Move to the trash; can be undone" : "Stop the run first";
  }
}
