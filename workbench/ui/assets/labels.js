// Labels by hand: a step of a drawing marked right, neutral or wrong by a key or a click, and how far each step reward
// agrees. A drawing elsewhere than on the page has none.

/** @import { HandLabel, StepPayload } from "../../views/payloads.d.ts" */
/** @import { Heatmap } from "../../views/drawing/heatmap.js" */
/** @import { Credited, Prepared } from "../../views/drawing/payload.js" */
/** @import { LabelServer } from "../../views/payloads.d.ts" */
/** @typedef {1 | 0 | -1} Label */
/** @typedef {{ key: string, label: Label, name: string }} Kind */
/** @typedef {{ g: number, k: number }} Step */

import { download, el } from "../../views/dom.js";
import { count } from "../../views/numbers.js";
import { answerOf, link } from "./widget.js";

/** @type {Kind[]} */
export const KINDS = [
  { key: "y", label: 1, name: "right" },
  { key: "n", label: -1, name: "wrong" },
  { key: "u", label: 0, name: "neutral" },
];
const LAYOUTS = /** @type {const} */ ([["stepwise", "TRL"], ["prm800k", "PRM800K"]]);
const THRESHOLD = 0.5; // of a score that says "right", as in check-reward

/** @param {string} text @param {number} at Characters before a UTF-16 offset, as Python counts them. */
const characters = (text, at) => [...text.slice(0, at)].length;

/** @param {Credited} rollout The completion, without the text of its end-of-sequence token. */
const textOf = ({ texts, finished }) => texts.slice(0, finished ? -1 : undefined).join("");

/** @param {Credited} rollout @returns {[number, number][]} Its steps, as the server counts characters. */
export function spansOf(rollout) {
  const text = textOf(rollout);
  return (rollout.steps ?? []).map(({ start, end }) => [
    characters(text, start),
    characters(text, Math.min(end, text.length)),
  ]);
}

/** @param {Credited} rollout @param {HandLabel[]} labels @returns {(Label | null)[]} One a step, null for none. */
export function labelsOfSteps(rollout, labels) {
  if (!labels.length) return (rollout.steps ?? []).map(() => null);
  const at = new Map(labels.map(({ start, end, label }) => [`${start} ${end}`, /** @type {Label} */ (label)]));
  return spansOf(rollout).map((span) => at.get(span.join(" ")) ?? null);
}

/**
 * On how many labelled steps each step reward says what the label does; a neutral step is not wrong. Copies count once.
 * @param {Prepared} data @param {(Label | null)[][]} labels by rollout and step
 */
export function agreements({ rewards, rollouts }, labels) {
  const labelled = rollouts.flatMap(({ steps, copyOf }, g) =>
    copyOf !== undefined ? [] : (steps ?? []).flatMap((step, k) => {
      const label = labels[g]?.[k] ?? null;
      return label === null ? [] : [{ step, label }];
    })
  );
  const agrees = (/** @type {StepPayload} */ step, /** @type {string} */ name, /** @type {Label} */ label) =>
    (/** @type {number} */ (step.scores[name]) >= THRESHOLD) === (label >= 0);
  const of = (/** @type {string} */ name) => {
    const scored = labelled.filter(({ step }) => (step.scores[name] ?? null) !== null);
    return { name, agree: scored.filter(({ step, label }) => agrees(step, name, label)).length, of: scored.length };
  };
  const counts = KINDS.map(({ label }) => labelled.filter((step) => step.label === label).length);
  return { counts, rewards: (rewards ?? []).filter(({ kind }) => kind === "step").map(({ name }) => of(name)) };
}

export class HandLabels {
  /** @param {Heatmap} heatmap @param {LabelServer} server */
  constructor(heatmap, server) {
    this.heatmap = heatmap;
    this.server = server;
    /** @type {HandLabel[][]} by rollout */
    this.labels = [];
    /** @type {Prepared | null} the group that the labels are of */
    this.of = null;
    this.answers = ""; // the prompt and completions that labels were asked for last
    /** @type {{ data: Prepared, at: Step, label: Label | null }[]} what undoes each mark, the newest last */
    this.done = [];
    this.line = el("p", { class: "hand", role: "status", hidden: true });
    heatmap.finder.node.after(this.line);
    new MutationObserver(() => this.drawn()).observe(heatmap.cards, { childList: true });
    this.details = /** @type {HTMLElement} */ (heatmap.root.querySelector(".details"));
    new MutationObserver(() => this.offer()).observe(this.details, { childList: true });
    document.addEventListener("keydown", (event) => this.pressed(event));
  }

  /** Cards were drawn: of the same answers, whose labels are known, or of others, whose labels are asked for. */
  async drawn() {
    const { data } = this.heatmap;
    if (!data.rollouts.some(({ steps }) => steps) || data.measures) {
      this.line.hidden = true;
      return;
    }
    const completions = data.rollouts.map(textOf);
    const answers = JSON.stringify([data.prompt, completions]);
    this.of = data;
    if (answers !== this.answers) {
      this.answers = answers;
      this.labels = [];
      this.done = [];
      try {
        const answer = await answerOf(this.server.labels_of({ prompt: data.prompt, completions }));
        if (answers !== this.answers) return; // others are drawn by now
        this.labels = answer.completions;
      } catch {
        this.answers = ""; // asked for again with the next drawing
      }
    }
    this.show();
  }

  /** Puts the labels beside the steps, and what they come to above the cards. */
  show() {
    const { data, cards } = this.heatmap;
    const labels = data.rollouts.map((rollout, g) => labelsOfSteps(rollout, this.labels[g] ?? []));
    for (const node of /** @type {NodeListOf<HTMLElement>} */ (cards.querySelectorAll(".step"))) {
      const g = Number(/** @type {HTMLElement} */ (node.closest(".rollout")).dataset.g);
      const kind = KINDS.find(({ label }) => label === labels[g]?.[Number(node.dataset.k)]);
      if (kind) {
        node.dataset.hand = kind.name;
        node.setAttribute("aria-description", `labelled ${kind.name} by hand`);
      } else if (node.dataset.hand) {
        delete node.dataset.hand;
        node.removeAttribute("aria-description");
      }
    }
    this.tell(agreements(data, labels));
    this.offer();
  }

  /** @param {ReturnType<typeof agreements>} result */
  tell({ counts, rewards }) {
    const steps = counts.reduce((a, b) => a + b, 0);
    this.line.hidden = !steps && !this.done.length;
    const kinds = KINDS.map(({ name }, i) => counts[i] ? `${counts[i]} ${name}` : "").filter(Boolean).join(", ");
    const said = rewards.filter(({ of }) => of).map(({ name, agree, of }) =>
      el("span", { class: agree < of ? "differs" : "" }, el("b", {}, name), ` agrees on ${agree} of ${of}`)
    );
    this.line.replaceChildren(
      el("span", {}, `${count(steps, "step")} labelled by hand${kinds && `: ${kinds}`}`),
      ...said,
      ...(this.done.length ? [link("Undo", () => this.undo())] : []),
      ...LAYOUTS.map(([layout, name]) =>
        link(`Save as ${name}`, () => this.save(layout), { title: "Every labelled completion of this workspace" })
      ),
    );
  }

  /** Buttons below the pinned step's details. */
  offer() {
    const at = this.pinned();
    const { details } = this;
    if (!at || !details.firstChild || details.hidden) return;
    const now = this.labelOf(at);
    const before = /** @type {HTMLElement | null} */ (details.querySelector(".hand-buttons"));
    const of = JSON.stringify([at, now]);
    if (before?.dataset.of === of) return;
    const buttons = KINDS.map(({ key, label, name }) =>
      el(
        "button",
        { type: "button", "aria-pressed": String(now === label), onclick: () => this.mark(at, label) },
        `${name} `,
        el("kbd", {}, key),
      )
    );
    before?.remove();
    const row = el("div", { class: "hand-buttons", "data-of": of }, `Label step ${at.k + 1}: `, ...buttons);
    details.querySelector(".body > :not(.reason)")?.before(row);
  }

  /** The step that the pinned token is of. @returns {Step | null} */
  pinned() {
    const { pinned, data } = this.heatmap;
    const k = pinned ? data.rollouts[pinned.g]?.stepOf[pinned.t] ?? -1 : -1;
    return pinned && k >= 0 && !data.measures ? { g: pinned.g, k } : null;
  }

  /** @param {Step} at */
  labelOf({ g, k }) {
    return labelsOfSteps(this.heatmap.data.rollouts[g], this.labels[g] ?? [])[k];
  }

  /** @param {KeyboardEvent} event y, n and u label the step that somebody pinned, and no other. */
  pressed(event) {
    const kind = KINDS.find(({ key }) => key === event.key);
    const { root } = this.heatmap;
    if (!kind || event.ctrlKey || event.metaKey || event.altKey || !root.offsetParent) return;
    const target = event.target instanceof Element ? event.target : document.body;
    if (target.closest("input, textarea, select, [contenteditable]")) return;
    if (target !== document.body && !root.contains(target)) return;
    const at = this.pinned();
    if (!at || this.heatmap.data.measures || this.of !== this.heatmap.data) return;
    event.preventDefault();
    this.mark(at, kind.label);
  }

  /** @param {Step} at @param {Label} label Labels a step, or takes away the label that it has already. */
  async mark(at, label) {
    const before = this.labelOf(at);
    const { data } = this.heatmap;
    if (await this.send(at, before === label ? null : label)) {
      this.done.push({ data, at, label: before });
      this.show();
    }
  }

  async undo() {
    const last = this.done[this.done.length - 1];
    if (last && await this.send(last.at, last.label)) {
      this.done.pop();
      this.show();
    }
  }

  /** @param {Step} at @param {Label | null} label Whether the label is kept; else why not is said. */
  async send({ g, k }, label) {
    const { data } = this.heatmap;
    const rollout = data.rollouts[g];
    const completion = textOf(rollout);
    try {
      const asked = { prompt: data.prompt, completion, steps: spansOf(rollout), k, label };
      const answer = await answerOf(this.server.mark_step(asked));
      if (answer.error) throw new Error(answer.error);
      data.rollouts.forEach((other, i) => {
        if (textOf(other) === completion) this.labels[i] = answer.completions[0]; // copies are labelled as one
      });
      return true;
    } catch (error) {
      this.line.hidden = false;
      this.line.textContent = `Not kept: ${error instanceof Error ? error.message : error}`;
      return false;
    }
  }

  /** @param {"stepwise" | "prm800k"} layout */
  async save(layout) {
    const { name, text } = await answerOf(this.server.labels_file({ layout }));
    download(name, new Blob([text], { type: "application/jsonl" }));
  }
}
