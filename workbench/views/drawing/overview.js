// The overview above the cards: a column for each rollout, a small coloured cell for each of its steps. Where two schemes
// are drawn, a cell's left half is A's and its right half is B's.

/** @import { Credited, Measure, Place, Prepared } from "./payload.js" */
/** @typedef {{ g: number, k: number }} Cell a rollout and a step of it, both from 0 */

import { el, replaceEach } from "../dom.js";
import { stepLabel } from "./cards.js";
import { equalTo, named } from "./copies.js";
import { ofWhole, tint } from "./measures.js";

const SIZES = [[12, "wide"], [24, "middle"], [40, "narrow"]]; // most columns of a size; "least" beyond
const FLAT = 20; // steps; more are drawn lower
const LABEL_EVERY = 5; // of many steps
const PART = 30; // cells of a column that are laid out together, all but the first once they are near what is in sight
export const MOVES = ["ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown", "Home", "End"];
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
  /** @param {(g: number, k: number) => void} onPin @param {(cell: Cell) => void} onMove called with the cell that arrows lead to */
  constructor(onPin, onMove) {
    this.onPin = onPin;
    this.onMove = onMove;
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
   * @param {Prepared} data @param {number[]} shown the rollouts that are looked for
   * @param {Measure} measure @param {number} limit of the colour scale
   */
  draw(data, shown, measure, limit) {
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
    const isJudged = data.rollouts.some(({ right }) => (right ?? null) !== null);
    const columns = this.shown.map((g) => this.column(data, g, measure, limit));
    this.mark(null);
    this.leaveTabOrder();
    replaceEach(this.node, [labels(most, isJudged, Boolean(data.other)), ...columns]);
    const first = /** @type {HTMLElement | null} */ (this.node.querySelector(".cell"));
    if (first) first.tabIndex = 0;
    if (before) this.focus(before);
  }

  /** @param {Prepared} data @param {number} g @param {Measure} measure @param {number} limit */
  column(data, g, measure, limit) {
    const rollout = data.rollouts[g];
    const { steps = [], right = null, twin } = rollout;
    const look = (/** @type {Credited} */ of, /** @type {number} */ k) => tint(ofWhole(measure, of, k), limit, measure);
    const verdict = right === null ? "" : right ? ", right" : ", wrong";
    const cells = steps.map((step, k) =>
      el("span", {
        class: `cell ${look(rollout, k)}`,
        role: "gridcell",
        tabindex: -1,
        "data-g": g,
        "data-k": k,
        "data-wrong": rollout.wrong?.[k] ? "✕" : null,
        "data-unscored": step.reward === null,
        "aria-label": stepLabel(rollout, steps, k, measure),
      }, twin && !data.measures && !measure.one ? el("i", { class: `b ${look(twin, k)}` }) : null)
    );
    return el(
      "div",
      { class: "column", role: "row", "data-g": g },
      el("span", { class: "head", role: "rowheader", "aria-label": `${named([g])}${verdict}` }, g + 1),
      ...partsOf(cells),
      right === null
        ? null
        : el("span", { class: `judged ${right ? "good" : "bad"}`, "aria-hidden": "true" }, right ? RIGHT : NOT_RIGHT),
    );
  }

  /** @param {Place | null} pinned Marks the step of the pinned token, and the same of exact copies. */
  mark(pinned) {
    for (const node of this.node.querySelectorAll(".pinned")) node.classList.remove("pinned");
    if (!pinned || !this.data?.rollouts[pinned.g]) return; // it may be of the group before
    const k = this.data.rollouts[pinned.g].stepOf[pinned.t] ?? -1;
    for (const g of equalTo(this.data, pinned.g)) this.find({ g, k })?.classList.add("pinned");
  }

  /** @param {Cell} cell @returns {HTMLElement | null} */
  find({ g, k }) {
    return this.node.querySelector(`.cell[data-g="${g}"][data-k="${k}"]`);
  }

  /** @param {Cell[]} cells Lights cells up and dims the others; none: all as before. */
  light(cells) {
    for (const node of this.node.querySelectorAll(".lit")) node.classList.remove("lit");
    for (const cell of cells) this.find(cell)?.classList.add("lit");
    this.node.classList.toggle("lighting", cells.length > 0);
  }

  /** @param {Cell} cell Moves the focus, and where Tab comes in. */
  focus(cell) {
    const node = this.find(cell);
    if (!node) return;
    this.leaveTabOrder();
    node.tabIndex = 0;
    node.focus({ preventScroll: false });
  }

  leaveTabOrder() {
    for (const cell of this.node.querySelectorAll('[tabindex="0"]')) cell.setAttribute("tabindex", "-1");
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
      const next = { g: this.shown[column], k };
      this.focus(next);
      this.onMove(next);
    } else return false;
    return true;
  }
}

/** @param {Element | null} node @returns {Cell | null} */
function cellOf(node) {
  const cell = /** @type {HTMLElement | null} */ (node?.closest(".overview .cell") ?? null);
  return cell && { g: Number(cell.dataset.g), k: Number(cell.dataset.k) };
}

/** @param {HTMLElement[]} cells of a column */
const partsOf = (cells) =>
  Array.from({ length: Math.ceil(cells.length / PART) }, (_, i) => {
    const some = cells.slice(i * PART, (i + 1) * PART);
    return el("div", { class: "part", role: "presentation", style: `--cells: ${some.length}` }, ...some);
  });

/** @param {number} most steps @param {boolean} judged @param {boolean} two schemes. What stands left of the columns. */
function labels(most, judged, two) {
  const every = most > FLAT ? LABEL_EVERY : 1;
  const numbers = Array.from({ length: most }, (_, k) => k === 0 ? "step 1" : (k + 1) % every ? "" : `${k + 1}`);
  return el(
    "div",
    { class: "labels", "aria-hidden": "true" },
    el("span", { class: "head" }, two ? "A | B" : "rollout"),
    ...numbers.map((text) => el("span", { class: "label" }, text)),
    judged ? el("span", { class: "judged" }, "answer") : null,
  );
}
