// Held-out rows one by one: which became right since the first measure of accuracy, which wrong, and how they are answered.

/** @import { AnswerPayload, ProblemPayload, Problems } from "../../../views/payloads.d.ts" */
/** @import { TrainServer } from "../payloads.js" */

import { el } from "../../../views/dom.js";
import { pairElement } from "../../../views/drawing/beside.js";
import { answerOf } from "../widget.js";

const DRAWN = 60; // problems at once
/** @type {[string, string, (row: ProblemPayload) => boolean][]} */
const KINDS = [
  ["became-right", "became right", ({ before, now }) => !before.right && now.right],
  ["became-wrong", "became wrong", ({ before, now }) => before.right && !now.right],
  ["right", "right both times", ({ before, now }) => before.right && now.right],
  ["wrong", "wrong both times", ({ before, now }) => !before.right && !now.right],
];

/** @param {ProblemPayload[]} rows @returns {{ key: string, label: string, places: number[] }[]} Their places by what became of them. */
export const sorted = (rows) =>
  KINDS.map(([key, label, test]) => ({
    key,
    label,
    places: rows.flatMap((row, place) => (test(row) ? [place] : [])),
  }));

/** @param {AnswerPayload} answer */
const sideOf = ({ text, right, answer }) => {
  const read = answer === null ? "" : answer ? ` · read ${answer}` : " · no answer found";
  return { text, right, about: `${right ? "✓ right" : "⊘ wrong"}${read}` };
};

export class ProblemList {
  /** @param {TrainServer} server */
  constructor(server) {
    this.server = server;
    /** @type {string | null} */
    this.run = null;
    this.steps = ""; // of the two measures
    this.drawn = ""; // the measures whose answers are shown
    this.kind = KINDS[0][0];
    this.buttons = el("span", { class: "filters", role: "group", "aria-label": "Which problems" });
    this.list = el("div", { class: "changes" });
    this.body = el("div", { class: "wh" }, el("div", { class: "finder" }, this.buttons), this.list);
    const title = el("summary", {}, "Fixed and broken problems");
    this.node = el("details", { id: "run-problems", class: "settings", hidden: true }, title, this.body);
    this.node.addEventListener("toggle", () => this.look());
  }

  /** @param {string | null} run As it is before anything is known of a run. */
  clear(run) {
    this.run = run;
    this.steps = this.drawn = "";
    this.node.hidden = true;
    this.node.open = false;
    this.buttons.replaceChildren();
    this.list.replaceChildren();
  }

  /** @param {string} kind Unfolds what became of the problems, of one kind. */
  show(kind) {
    this.kind = kind;
    this.drawn = "";
    this.node.open = true;
    this.look();
    this.node.scrollIntoView({ block: "nearest" });
  }

  /** @param {number[]} steps that have answers */
  offer(steps) {
    this.node.hidden = steps.length < 2;
    this.steps = steps.join();
    this.look();
  }

  /** Asks for the answers once they are to be seen, and again after another measure. */
  async look() {
    const { run, steps } = this;
    if (!this.node.open || run === null || this.node.hidden || this.drawn === steps) return;
    this.drawn = steps;
    const answer = await answerOf(this.server.problems({ run })).catch(() => null);
    if (run !== this.run) return;
    if (!answer || "error" in answer) {
      this.drawn = "";
      this.list.replaceChildren(
        el("p", {}, answer ? answer.error : "The workbench did not answer; fold and open again."),
      );
    } else this.draw(answer);
  }

  /** @param {Problems} problems */
  draw(problems) {
    const kinds = sorted(problems.rows);
    const shown = kinds.find(({ key }) => key === this.kind) ?? kinds[0];
    this.buttons.replaceChildren(...kinds.map(({ key, label, places }) => {
      const choose = () => {
        this.kind = key;
        this.draw(problems);
        /** @type {HTMLElement | null} */ (this.buttons.querySelector(`[data-kind="${key}"]`))?.focus();
      };
      const pressed = String(key === shown.key);
      const attributes = { type: "button", "data-kind": key, "aria-pressed": pressed, onclick: choose };
      return el("button", attributes, label, " ", el("b", {}, places.length));
    }));
    const pairs = shown.places.slice(0, DRAWN).map((place) => {
      const { prompt, before, now } = problems.rows[place];
      const pair = pairElement(sideOf(before), sideOf(now), `problem ${place + 1}`, [problems.before, problems.now]);
      pair.querySelector("h3")?.after(el("p", { class: "asked" }, prompt.trim()));
      return pair;
    });
    const left = shown.places.length - pairs.length;
    const more = left > 0 ? [el("p", {}, `and ${left} more, which are in the run's folder "answers"`)] : [];
    this.list.replaceChildren(...pairs, ...more, ...(pairs.length ? [] : [el("p", {}, "none")]));
  }
}
