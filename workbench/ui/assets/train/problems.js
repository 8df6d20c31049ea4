// Held-out problems one by one: which became right since the first measure of accuracy and which wrong, as a list, and
// beside it the answers that the chosen one got at both measures.

/** @import { AnswerPayload, ProblemPayload, Problems } from "../../../views/payloads.d.ts" */
/** @import { TrainServer } from "../../../views/payloads.d.ts" */
/** @typedef {ProblemPayload & { kind: string, prompt: string }} Sorted */

import { el, setText } from "../../../views/dom.js";
import { pairElement } from "../../../views/drawing/beside.js";
import { answerOf } from "../widget.js";

/** @type {[string, string, (row: ProblemPayload) => boolean][]} Kinds in the order in which they are listed. */
const KINDS = [
  ["became-wrong", "broken", ({ before, now }) => before.right && !now.right],
  ["became-right", "fixed", ({ before, now }) => !before.right && now.right],
  ["right", "still right", ({ before, now }) => before.right && now.right],
  ["wrong", "still wrong", ({ before, now }) => !before.right && !now.right],
];
const LABELS = Object.fromEntries(KINDS);

/** @param {ProblemPayload[]} rows @returns {Sorted[]} With what became of each, kind by kind. */
export const sorted = (rows) =>
  KINDS.flatMap(([kind, , test]) => rows.filter(test).map((row) => ({ ...row, kind, prompt: row.now.prompt })));

/** @param {AnswerPayload} answer */
const verdict = ({ right, answer }) => `${answer ? `${answer}, ` : ""}${right ? "right" : "wrong"}`;

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
    this.steps = ""; // of the two measures that are shown
    this.kind = ""; // the only one that is listed; "" for what changed
    this.words = "";
    /** @type {Problems | null} */
    this.problems = null;
    /** @type {Sorted[]} */
    this.rows = [];
    /** @type {Sorted | null} */
    this.chosen = null;
    this.about = el("p", { class: "about" });
    this.cells = el("div", { class: "cells", role: "img" });
    this.buttons = el("span", { class: "filters", role: "group", "aria-label": "Which problems" });
    this.search = el("input", {
      type: "search",
      placeholder: "Search problems",
      "aria-label": "Search problems",
      oninput: () => {
        this.words = this.search.value.toLowerCase();
        this.drawList();
      },
    });
    this.list = el("ul", { class: "problem-list", "aria-label": "Problems", onkeydown: (event) => this.press(event) });
    this.told = el("p", { class: "told", "aria-live": "polite" });
    this.detail = el("div", { class: "changes" });
    const left = el("div", {}, this.cells, el("div", { class: "finder" }, this.buttons, this.search), this.list);
    const columns = el("div", { class: "wh problem-columns" }, left, el("div", {}, this.told, this.detail));
    const title = el("h2", {}, "Fixed and broken problems");
    this.node = el("section", { id: "run-problems", "aria-label": "Fixed and broken problems", hidden: true });
    this.node.append(title, this.about, columns);
  }

  /** @param {string | null} run As it is before anything is known of a run. */
  clear(run) {
    this.run = run;
    this.steps = this.kind = "";
    this.chosen = null;
    this.node.hidden = true;
  }

  /** @param {string} kind Lists the problems of one kind. */
  show(kind) {
    this.kind = kind;
    this.draw();
    this.node.scrollIntoView({ block: "nearest" });
  }

  /** @param {number[]} steps that have answers, which are asked for where they are not those shown */
  async offer(steps) {
    const { run } = this;
    if (steps.length < 2 || this.steps === steps.join()) return;
    this.steps = steps.join();
    const answer = await answerOf(this.server.problems({ run: run ?? "" })).catch(() => null);
    if (run !== this.run) return;
    this.node.hidden = false;
    if (answer && !("error" in answer)) {
      this.problems = answer;
      this.rows = sorted(answer.rows);
      return this.draw();
    }
    this.problems = null;
    this.rows = [];
    this.draw();
    setText(this.about, answer ? answer.error : "The workbench did not answer.");
    if (!answer) this.steps = ""; // asked for again
  }

  draw() {
    const { rows, problems } = this;
    const counts = KINDS.map(([kind, label]) => ({
      kind,
      label,
      count: rows.filter((row) => row.kind === kind).length,
    }));
    if (problems) {
      const measures = `at step ${problems.before} and at step ${problems.now}`;
      setText(
        this.about,
        `${rows.length} held-out problems, one answer each ${measures}: a single one may turn by chance.`,
      );
    }
    this.cells.replaceChildren(...rows.map(({ kind }) => el("i", { class: kind })));
    this.cells.setAttribute("aria-label", counts.map(({ label, count }) => `${count} ${label}`).join(", "));
    const changed = counts[0].count + counts[1].count;
    this.buttons.replaceChildren(...[{ kind: "", label: "changed", count: changed }, ...counts].map((one) => {
      const choose = () => {
        this.kind = one.kind;
        this.draw();
        /** @type {HTMLElement | null} */ (this.buttons.querySelector(`[data-kind="${one.kind}"]`))?.focus();
      };
      const pressed = String(one.kind === this.kind);
      const swatch = one.kind ? el("i", { class: `cell ${one.kind}` }) : null;
      const attributes = { type: "button", "data-kind": one.kind, "aria-pressed": pressed, onclick: choose };
      return el("button", attributes, swatch, el("b", {}, one.count), ` ${one.label}`);
    }));
    this.drawList();
  }

  drawList() {
    const shown = this.rows.filter(({ kind, prompt }) =>
      (this.kind ? kind === this.kind : kind.startsWith("became")) && prompt.toLowerCase().includes(this.words)
    );
    const fixed = shown.find(({ kind }) => kind === "became-right");
    const kept = this.chosen && shown.find(({ prompt }) => prompt === this.chosen?.prompt);
    this.chosen = kept ?? fixed ?? shown[0] ?? null;
    this.list.replaceChildren(...shown.map((row) => {
      const choose = () => this.choose(row);
      const attributes = { type: "button", tabindex: -1, class: row.kind, title: row.prompt.trim(), onclick: choose };
      const text = row.prompt.trim().split("\n", 1)[0];
      const button = el("button", attributes, el("b", {}, LABELS[row.kind]), el("span", {}, text));
      return el("li", {}, button);
    }));
    if (!shown.length) this.list.append(el("li", {}, this.rows.length ? "none" : ""));
    this.drawn = shown;
    if (this.chosen) this.choose(this.chosen);
    else {
      setText(this.told, "");
      this.detail.replaceChildren();
    }
  }

  /** @param {Sorted} row Shows its answers. */
  choose(row) {
    const { problems } = this;
    if (!problems) return;
    this.chosen = row;
    const { before, now, prompt } = row;
    this.list.querySelectorAll("button").forEach((button, i) => {
      const isChosen = this.drawn?.[i] === row;
      button.tabIndex = isChosen ? 0 : -1;
      if (isChosen) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    });
    setText(this.told, `At step ${problems.before}: ${verdict(before)}. At step ${problems.now}: ${verdict(now)}.`);
    const place = problems.rows.findIndex((other) => other.now.prompt === prompt);
    const steps = /** @type {[number, number]} */ ([problems.before, problems.now]);
    const pair = pairElement(sideOf(before), sideOf(now), `Problem ${place + 1}`, steps);
    pair.querySelector("h3")?.after(el("p", { class: "asked" }, prompt.trim()));
    this.detail.replaceChildren(pair);
  }

  /** @param {KeyboardEvent} event Up and Down choose another problem. */
  press(event) {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key], buttons = [...this.list.querySelectorAll("button")];
    if (!by || !this.drawn?.length) return;
    event.preventDefault();
    const at = buttons.findIndex((button) => button === document.activeElement);
    const to = Math.min(buttons.length - 1, Math.max(0, at + by));
    this.choose(this.drawn[to]);
    buttons[to].focus();
  }
}
