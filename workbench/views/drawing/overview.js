// The overview above the cards: a column for each rollout, a small coloured cell for each of its steps.

/** @import { Measure, Place, Prepared } from "./payload.js" */
/** @typedef {{ g: number, k: number }} Cell a rollout and a step of it, both from 0 */

import { el } from "../dom.js";
import { stepLabel } from "./cards.js";
import { equalTo, named } from "./copies.js";
import { ofWhole, tint } from "./measures.js";

const SIZES = [[12, "wide"], [24, "middle"], [40, "narrow"]]; // most columns of a size; "least" beyond
const FLAT = 20; // steps; more are drawn lower
const LABEL_EVERY = 5; // of many steps
const MOVES = ["ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown", "Home", "End"];
export const RIGHT = "✓";
export const NOT_RIGHT = "⊘";

/**
 * Where an arrow leads from a cell: sideways to the same step of another rollout, or its last one; up and down along its
 * steps; Home and End to the first and last rollout.
 * @param {number[]} steps how many each column has @param {{ column: number, k: number }} from @param {string} key
 */
export function moved(steps, { column, k }, key) {
  const by = { ArrowRight: 1, ArrowLeft: -1, Home: -column, End: steps.length - 1 - column }[key] ?? 0;
  const next = Math.max(0, Math.min(steps.length - 1, column + by));
  const down = { ArrowDown: 1, ArrowUp: -1 }[key] ?? 0;
  return { column: next, k: Math.max(0, Math.min(steps[next] - 1, k + down)) };
}

export class Overview {
  /** @param {(g: number, k: number) => void} onPin */
  constructor(onPin) {
    this.onPin = onPin;
    this.node = el("div", {
      class: "overview",
      role: "grid",
      "aria-label": "Overview: rollouts by steps",
      hidden: true,
    });
    /** @type {number[]} the rollouts that have a column */
    this.shown = [];
    /** @type {Prepared | null} */
    this.data = null;
    this.node.addEventListener("click", ({ target }) => {
      const cell = cellOf(/** @type {Element} */ (target));
      if (!cell) return;
      this.focus(cell);
      onPin(cell.g, cell.k);
    });
  }

  hide() {
    this.node.hidden = true;
    this.node.replaceChildren();
  }

  /**
   * @param {Prepared} data @param {number[]} shown the rollouts on the cards, in their order
   * @param {{ measure: Measure, limit: number, folded: Set<number> }} look `folded`: rollouts that stand for their copies
   */
  draw(data, shown, { measure, limit, folded }) {
    const focused = cellOf(document.activeElement);
    const before = focused && this.node.contains(document.activeElement) ? focused : null;
    this.data = data;
    this.shown = shown.filter((g) => data.rollouts[g].steps?.length);
    this.node.hidden = data.rollouts.length < 2 || !this.shown.length || Boolean(data.measures);
    if (this.node.hidden) {
      this.hide();
      return;
    }
    const most = Math.max(...this.shown.map((g) => data.rollouts[g].steps?.length ?? 0));
    const size = SIZES.find(([columns]) => this.shown.length <= Number(columns))?.[1] ?? "least";
    this.node.className = `overview ${size}${most > FLAT ? " flat" : ""}`;
    const copies = shown.some((g) => folded.has(g));
    const columns = this.shown.map((g) => this.column(data, g, measure, { folded: folded.has(g), copies }));
    this.node.replaceChildren(
      labels(most, data.rollouts.some(({ right }) => (right ?? null) !== null), copies),
      ...columns,
    );
    this.colour(measure, limit);
    const first = /** @type {HTMLElement | null} */ (this.node.querySelector(".cell"));
    if (first) first.tabIndex = 0;
    if (before) this.focus(before);
  }

  /**
   * @param {Prepared} data @param {number} g @param {Measure} measure
   * @param {{ folded: boolean, copies: boolean }} options `copies`: some column stands for copies
   */
  column(data, g, measure, { folded, copies }) {
    const rollout = data.rollouts[g];
    const { steps = [], right = null } = rollout;
    const members = folded ? equalTo(data, g) : [g];
    const verdict = right === null ? "" : right ? ", right" : ", wrong";
    const cells = steps.map((step, k) =>
      el("span", {
        class: "cell",
        role: "gridcell",
        tabindex: -1,
        "data-g": g,
        "data-k": k,
        "data-wrong": rollout.wrong?.[k] ? "✕" : null,
        "data-unscored": step.reward === null,
        "aria-label": stepLabel(rollout, steps, k, measure),
      })
    );
    return el(
      "div",
      { class: "column", role: "row", "data-g": g },
      el("span", { class: "head", role: "rowheader", "aria-label": `${named(members)}${verdict}` }, g + 1),
      ...cells,
      right === null ? null : el("span", { class: "judged", "aria-hidden": "true" }, right ? RIGHT : NOT_RIGHT),
      copies ? el("span", { class: "copied", "aria-hidden": "true" }, folded ? `×${members.length}` : "") : null,
    );
  }

  /** @param {Measure} measure @param {number} limit Colours the cells as the chips are. */
  colour(measure, limit) {
    const { data } = this;
    if (!data) return;
    for (const node of /** @type {NodeListOf<HTMLElement>} */ (this.node.querySelectorAll(".cell"))) {
      const rollout = data.rollouts[Number(node.dataset.g)];
      const pinned = node.classList.contains("pinned") ? " pinned" : "";
      node.className = `cell ${tint(ofWhole(measure, rollout, Number(node.dataset.k)), limit, measure)}${pinned}`
        .trim();
    }
  }

  /** @param {Place | null} pinned Marks the step of the pinned token. */
  mark(pinned) {
    this.node.querySelector(".pinned")?.classList.remove("pinned");
    const k = pinned ? this.data?.rollouts[pinned.g]?.stepOf[pinned.t] ?? -1 : -1;
    if (pinned) this.find({ g: pinned.g, k })?.classList.add("pinned");
  }

  /** @param {Cell} cell @returns {HTMLElement | null} */
  find({ g, k }) {
    return this.node.querySelector(`.cell[data-g="${g}"][data-k="${k}"]`);
  }

  /** @param {Cell} cell Moves the focus, and where Tab comes in. */
  focus(cell) {
    const node = this.find(cell);
    if (!node) return;
    for (const other of this.node.querySelectorAll('[tabindex="0"]')) other.setAttribute("tabindex", "-1");
    node.tabIndex = 0;
    node.focus({ preventScroll: false });
  }

  /** @param {KeyboardEvent} event Whether it was for a cell. */
  pressed(event) {
    const cell = cellOf(/** @type {Element} */ (event.target));
    if (!cell || !this.data) return false;
    if (event.key === "Enter" || event.key === " ") this.onPin(cell.g, cell.k);
    else if (MOVES.includes(event.key)) {
      const { rollouts } = this.data;
      const steps = this.shown.map((g) => rollouts[g].steps?.length ?? 0);
      const { column, k } = moved(steps, { column: this.shown.indexOf(cell.g), k: cell.k }, event.key);
      this.focus({ g: this.shown[column], k });
    } else return false;
    return true;
  }
}

/** @param {Element | null} node @returns {Cell | null} */
function cellOf(node) {
  const cell = /** @type {HTMLElement | null} */ (node?.closest(".overview .cell") ?? null);
  return cell && { g: Number(cell.dataset.g), k: Number(cell.dataset.k) };
}

/** @param {number} most steps @param {boolean} judged @param {boolean} copies What stands left of the columns. */
function labels(most, judged, copies) {
  const every = most > FLAT ? LABEL_EVERY : 1;
  const numbers = Array.from({ length: most }, (_, k) => k === 0 ? "step 1" : (k + 1) % every ? "" : `${k + 1}`);
  return el(
    "div",
    { class: "labels", "aria-hidden": "true" },
    el("span", { class: "head" }, "rollout"),
    ...numbers.map((text) => el("span", { class: "label" }, text)),
    judged ? el("span", { class: "judged" }, "right") : null,
    copies ? el("span", { class: "copied" }, "copies") : null,
  );
}
