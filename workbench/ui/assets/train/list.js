// The table of all runs below the one that is shown.

/** @import { ListedRun } from "../../../views/payloads.d.ts" */

import { el } from "../../../views/dom.js";
import { when } from "../runs/columns.js";
import { link } from "../widget.js";

const HEADINGS = ["run", "state", "step", "task", "credit", "started"];

export class RunList {
  /** @param {(name: string) => void} open */
  constructor(open) {
    this.open = open;
    this.body = el("tbody");
    const head = el("tr", {}, ...HEADINGS.map((name) => el("th", { scope: "col" }, name)));
    const table = el("table", {}, el("thead", {}, head), this.body);
    const scroller = el("div", { class: "scroller", tabindex: 0, role: "region", "aria-label": "Runs" }, table);
    this.node = el("details", { class: "runs", hidden: true }, el("summary", {}, "All runs"), scroller);
  }

  /** @param {ListedRun[]} runs @param {string | null} current */
  draw(runs, current) {
    this.node.hidden = !runs.length;
    const active = document.activeElement;
    const focused = active && this.body.contains(active) ? active.textContent : null;
    this.body.replaceChildren(...runs.map((run) => this.row(run, run.name === current)));
    if (focused === null) return;
    const buttons = [...this.body.querySelectorAll("button")];
    buttons.find((button) => button.textContent === focused)?.focus({ preventScroll: true });
  }

  /** @param {ListedRun} run @param {boolean} isCurrent */
  row(run, isCurrent) {
    const button = link(run.name, () => this.open(run.name));
    const badge = el("span", { class: `badge ${run.state}`, title: run.reason }, run.state);
    const texts = [
      run.total ? `${run.step} of ${run.total}` : "–",
      run.task ?? "–",
      run.scheme ?? "–",
      when(run.created),
    ];
    return el(
      "tr",
      { class: isCurrent ? "current" : null },
      el("th", { scope: "row" }, button),
      el("td", {}, badge),
      ...texts.map((text) => el("td", {}, text)),
    );
  }
}
