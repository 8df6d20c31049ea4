// @ts-nocheck: elements and their events; what is computed is checked beside it
// The table of all runs below the one that is shown.

import { el } from "../../../figures/dom.js";

const HEADINGS = ["run", "state", "step", "task", "credit", "started"];
const date = (seconds) => new Date(seconds * 1000).toLocaleString([], { dateStyle: "short", timeStyle: "short" });

export class RunList {
  constructor(open) {
    this.open = open;
    this.body = el("tbody");
    const head = el("tr", {}, ...HEADINGS.map((name) => el("th", { scope: "col" }, name)));
    const table = el("table", {}, el("thead", {}, head), this.body);
    const scroller = el("div", { class: "scroller", tabindex: 0, role: "region", "aria-label": "Runs" }, table);
    this.node = el("details", { class: "runs", hidden: true }, el("summary", {}, "All runs"), scroller);
  }

  draw(runs, current) {
    this.node.hidden = !runs.length;
    const focused = this.body.contains(document.activeElement) ? document.activeElement.textContent : null;
    this.body.replaceChildren(...runs.map((run) => this.row(run, run.name === current)));
    if (focused === null) return;
    const buttons = [...this.body.querySelectorAll("button")];
    buttons.find((button) => button.textContent === focused)?.focus({ preventScroll: true });
  }

  row(run, isCurrent) {
    const button = el("button", { type: "button", class: "link", onclick: () => this.open(run.name) }, run.name);
    const badge = el("span", { class: `badge ${run.state}`, title: run.reason }, run.state);
    const texts = [
      run.total ? `${run.step} of ${run.total}` : "–",
      run.task ?? "–",
      run.scheme ?? "–",
      run.created ? date(run.created) : "–",
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
