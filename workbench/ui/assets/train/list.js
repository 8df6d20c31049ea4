// Every rollout of a run in one list: searched, sorted, a page at a time. A click shows it in its group below.

/** @import { RolloutRow } from "../../../views/payloads.d.ts" */
/** @import { TrainServer } from "../../../views/payloads.d.ts" */
/** @typedef {{ step: number, group: number, rollout: number }} Place */

import { el, say, setText } from "../../../views/dom.js";
import { number, score, signed } from "../../../views/numbers.js";
import { answerOf, link } from "../widget.js";

const TYPING = 300; // milliseconds that a search waits for more letters
/** @type {[string, string][]} */
const ORDERS = [
  ["disagreement", "reward and outcome disagree most"],
  ["-advantage", "pushed down most"],
  ["advantage", "pushed up most"],
  ["tokens", "longest first"],
  ["-tokens", "shortest first"],
  ["step", "newest first"],
];
const HEADINGS = ["step", "prompt", "answer", "outcome", "step reward", "advantage", "tokens"];

export class RolloutList {
  /** @param {TrainServer} server @param {(place: Place) => void} show */
  constructor(server, show) {
    this.server = server;
    this.show = show;
    /** @type {string | null} */
    this.run = null;
    this.steps = 0; // that are stored
    this.asked = 0; // questions so far: only the newest one's answer is drawn
    this.offset = 0;
    this.timer = 0;
    this.search = el("input", {
      type: "search",
      placeholder: "Search prompts and answers",
      "aria-label": "Search rollouts",
      oninput: () => {
        clearTimeout(this.timer);
        this.timer = setTimeout(() => this.look(0), TYPING);
      },
    });
    const options = ORDERS.map(([value, text]) => el("option", { value }, text));
    /** @type {HTMLSelectElement} */
    this.order = el("select", { id: "rollout-order", "aria-label": "Order", onchange: () => this.look(0) }, ...options);
    this.count = el("span", { class: "muted", role: "status" });
    this.message = el("p", { class: "muted", role: "status", hidden: true });
    this.body = el("tbody");
    const head = el(
      "tr",
      {},
      ...HEADINGS.map((name, i) => el("th", { scope: "col", class: i > 2 ? "number" : null }, name)),
    );
    const table = el("table", {}, el("thead", {}, head), this.body);
    const scroller = el("div", { class: "scroller", tabindex: 0, role: "region", "aria-label": "All rollouts" }, table);
    this.previous = link("‹ previous", () => this.look(this.offset - this.length));
    this.next = link("next ›", () => this.look(this.offset + this.length));
    this.length = 0; // of a page
    const tools = el("div", { class: "list-tools" }, this.search, this.order, this.count, this.previous, this.next);
    this.node = el("details", { id: "run-rollouts", class: "all-rollouts", hidden: true });
    this.node.append(el("summary", {}, "All rollouts of the run: search and sort"), tools, this.message, scroller);
    this.node.addEventListener("toggle", () => this.node.open && this.look(0));
  }

  /** @param {string | null} run As it is before anything is known of a run. */
  clear(run) {
    this.run = run;
    this.steps = this.offset = 0;
    this.asked++;
    this.node.hidden = true;
    this.node.open = false;
    this.body.replaceChildren();
  }

  /** @param {number[]} steps that have rollouts; what comes is there when it is asked for */
  offer(steps) {
    this.node.hidden = !steps.length;
    this.steps = steps.length;
  }

  /** @param {number} offset Asks for a page, again and again while the run's files are being read. */
  async look(offset) {
    const { run } = this;
    if (run === null || !this.node.open) return;
    const asked = ++this.asked;
    const request = { run, search: this.search.value.trim(), order: this.order.value, offset: Math.max(0, offset) };
    for (let isDone = false; !isDone;) {
      const answer = await answerOf(this.server.all_rollouts(request)).catch(() => null);
      if (asked !== this.asked) return;
      if (!answer || "error" in answer) {
        say(this.message, answer ? answer.error : "The workbench did not answer; try again.");
        return;
      }
      const { rows, offset: at, found, total, read, files, length } = answer;
      isDone = read >= files;
      this.offset = at;
      this.length = length;
      say(this.message, isDone ? "" : `Reading ${read} of ${files} steps …`);
      const range = rows.length ? `${at + 1} to ${at + rows.length} of ${found.toLocaleString("en")}` : "none";
      setText(this.count, found < total ? `${range} found, of ${total.toLocaleString("en")}` : range);
      this.previous.hidden = at === 0;
      this.next.hidden = at + rows.length >= found;
      this.body.replaceChildren(...rows.map((row) => this.row(row)));
    }
  }

  /** @param {RolloutRow} row */
  row({ step, group, rollout, prompt, text, outcome, reward, advantage, tokens }) {
    const name = `Step ${step}, group ${group + 1}, rollout ${rollout + 1}`;
    const open = link(`${step}`, () => this.show({ step, group, rollout }), { "aria-label": name, title: name });
    const numbers = [score(outcome), score(reward), signed(advantage, 2), number(tokens, 0)];
    const row = el(
      "tr",
      { onclick: () => this.show({ step, group, rollout }) },
      el("th", { scope: "row" }, open),
      el("td", { title: prompt }, prompt),
      el("td", { title: text }, text),
      ...numbers.map((value) => el("td", { class: "number" }, value)),
    );
    open.addEventListener("click", (event) => event.stopPropagation());
    return row;
  }
}
