// @ts-nocheck: elements and their events; what is computed is checked beside it
// The table of runs and pipelines. Rows keep their place in the document, so that focus and scrolling stay.

import { el, setText } from "../../../figures/dom.js";
import { COLUMNS, plural } from "./columns.js";
import { paint } from "./chosen.js";

const link = (text, onclick, more = {}) => el("button", { type: "button", class: "link", onclick, ...more }, text);
const KINDS = ["zip", "csv", "json"]; // that a run is downloaded as

export class RunTable {
  // `on` holds what the table does: choose(names), toggle(name, on), open(name), resume(name), use(name), remove(names),
  // sort(column), and for pipelines unfold(name), resumePipeline(name), stopPipeline(name).
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

  // `rows` are those in sight in their order (see pipelines.js); `downloads` is where runs' files are.
  draw(rows, { sort, chosen, colourOf, downloads }) {
    this.shown = rows.filter(({ kind }) => kind === "run");
    COLUMNS.forEach((column, i) => {
      if (sort.key === column.key) this.heads[i].setAttribute("aria-sort", sort.down ? "descending" : "ascending");
      else this.heads[i].removeAttribute("aria-sort");
    });
    const keys = new Set(rows.map(({ key }) => key));
    for (const key of [...this.rows.keys()]) if (!keys.has(key)) this.rows.delete(key);
    rows.forEach((shown, i) => {
      const row = this.rows.get(shown.key) ?? this.newRow(shown, downloads);
      this.fill(row, shown, shown.kind === "run" && chosen.has(shown.name));
      if (this.body.children[i] !== row.node) this.body.insertBefore(row.node, this.body.children[i] ?? null);
    });
    while (this.body.children.length > rows.length) this.body.lastElementChild.remove();
    this.all.checked = this.shown.length > 0 && this.shown.every((run) => chosen.has(run.name));
    this.all.indeterminate = !this.all.checked && chosen.size > 0;
    this.paint(chosen, colourOf);
  }

  paint(chosen, colourOf) {
    for (const { swatch, run } of this.rows.values()) {
      if (swatch) paint(swatch, chosen.has(run) ? colourOf.get(run) : undefined);
    }
  }

  newRow(shown, downloads) {
    const badge = el("span", { class: "badge" });
    const parts = { run: this.runParts, pipeline: this.pipelineParts, stage: this.stageParts }[shown.kind];
    const { box, swatch, named, actions, ...more } = parts.call(this, shown, downloads);
    const cells = COLUMNS.map(({ key, numeric }) => {
      if (key === "name") return el("th", { scope: "row" }, el("span", { class: "named" }, swatch, named));
      return el("td", { class: numeric ? "number" : null }, key === "state" ? badge : null);
    });
    const done = el("td", {}, el("div", { class: "row-actions" }, ...actions));
    const kind = `of-${shown.kind}${shown.inside ? " inside" : ""}`;
    const node = el("tr", { class: kind }, el("td", { class: "choose" }, box), ...cells, done);
    const row = { node, box, badge, swatch, cells, run: shown.kind === "run" ? shown.name : null, ...more };
    this.rows.set(shown.key, row);
    return row;
  }

  runParts({ name, label }, downloads) {
    const { on } = this;
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
    const remove = link("delete", () => on.remove([name]), { "aria-label": `Delete ${name}` });
    const named = link(label, () => on.open(name), { title: "Open in Train", "aria-label": name });
    const swatch = el("i", { class: "swatch", hidden: true });
    return { box, swatch, named, resume, use, remove, actions: [resume, use, ...files, remove] };
  }

  pipelineParts({ name }) {
    const { on } = this;
    const resume = link("resume", () => on.resumePipeline(name), { "aria-label": `Resume pipeline ${name}` });
    const stop = link("stop", () => on.stopPipeline(name), { "aria-label": `Stop pipeline ${name}` });
    const about = { title: "Show or hide its stages", "aria-label": name, "aria-expanded": "false" };
    const unfold = link(name, () => on.unfold(name), about);
    return { named: unfold, unfold, resume, stop, actions: [resume, stop] };
  }

  stageParts({ label }) {
    return { named: el("span", { class: "stage" }, label), actions: [] };
  }

  fill(row, run, isChosen) {
    if (row.box) row.box.checked = isChosen;
    row.node.classList.toggle("chosen", isChosen);
    setText(row.badge, run.state);
    row.badge.className = `badge ${run.state === "unreadable" ? "failed" : run.state}`;
    const damage = run.corrupt ? `${plural(run.corrupt, "damaged row")} of its metrics left out` : "";
    row.badge.title = [run.reason, damage].filter(Boolean).join("\n");
    COLUMNS.forEach(({ key, text }, i) => {
      if (key !== "state" && key !== "name") setText(row.cells[i], text(run));
      if (key === "accuracy_last") row.cells[i].title = run.measured ? `held-out ${run.measured.metric}` : "";
      if (key === "reward") row.cells[i].title = run.problem ?? (run.reward_metric === "step_reward" ? "of steps" : "");
    });
    row.unfold?.setAttribute("aria-expanded", String(run.unfolded));
    if (row.resume) row.resume.hidden = !run.resumable;
    if (row.use) row.use.hidden = run.gives !== "reward model";
    if (row.stop) row.stop.hidden = run.final;
    if (!row.remove) return;
    row.remove.disabled = !run.final;
    row.remove.title = run.final ? "Move to the trash; can be undone" : "Stop the run first";
  }
}
