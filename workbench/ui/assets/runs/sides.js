// Two chosen runs' newest answers to a prompt that both watch: two heatmaps side by side.

/** @import { Heatmap } from "../../../views/drawing/heatmap.js" */
/** @import { RunsServer } from "../payloads.js" */

import { el, say } from "../../../views/dom.js";
import { mount } from "../../../views/drawing/heatmap.js";
import { answerOf } from "../widget.js";

export class Sides {
  /** @param {RunsServer} server */
  constructor(server) {
    this.server = server;
    /** @type {string[]} */
    this.runs = [];
    this.index = 0;
    this.prompt = el("b");
    this.where = el("span", { class: "muted" });
    this.problem = el("p", { class: "muted", role: "status", hidden: true });
    const turn = (/** @type {string} */ label, /** @type {number} */ by, /** @type {string} */ text) =>
      el("button", { type: "button", "aria-label": label, onclick: () => this.ask(this.index + by) }, text);
    this.head = el(
      "p",
      {},
      turn("Previous prompt", -1, "‹"),
      turn("Next prompt", 1, "›"),
      " ",
      this.prompt,
      this.where,
    );
    this.titles = [el("h3"), el("h3")];
    this.holders = [el("div"), el("div")];
    const panes = this.titles.map((title, i) => el("div", {}, title, this.holders[i]));
    const body = el("div", {}, this.head, this.problem, el("div", { class: "sides" }, ...panes));
    const opened = () => this.node.open && !this.maps.length && this.ask(0);
    this.node = el(
      "details",
      { id: "runs-sides", hidden: true, ontoggle: opened },
      el("summary", {}, "Answers to the same prompt, side by side"),
      body,
    );
    /** @type {Heatmap[]} */
    this.maps = [];
  }

  /** @param {string[]} runs those that are chosen; only two have sides */
  choose(runs) {
    this.node.hidden = runs.length !== 2;
    if (runs.join() === this.runs.join()) return;
    this.runs = runs;
    this.maps = [];
    for (const holder of this.holders) holder.replaceChildren();
    if (this.node.open && runs.length === 2) this.ask(0);
  }

  /** @param {number} index of the prompt; behind the last comes the first */
  async ask(index) {
    const { runs } = this;
    const answer = await answerOf(this.server.side({ runs, index })).catch(() => null);
    if (runs !== this.runs) return; // others are chosen by now
    say(this.problem, answer ? answer.error : "The workbench did not answer; try again.");
    this.head.hidden = !answer || answer.error !== "";
    if (!answer || answer.error) return;
    this.index = answer.index;
    this.maps = this.maps.length ? this.maps : this.holders.map((holder) => mount(holder));
    answer.drawings.forEach((drawing, i) => {
      this.maps[i].draw(drawing);
      this.titles[i].textContent = `${runs[i]}, step ${answer.steps[i]}`;
    });
    this.prompt.textContent = this.maps[0].data.prompt.trim();
    this.where.textContent = `  ${answer.index + 1} of ${answer.count}`;
  }
}
