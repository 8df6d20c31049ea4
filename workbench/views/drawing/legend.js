// The line above the cards: what they are coloured by, and on which scale; behind its buttons the key to all signs, and
// settings of the scale.
//
// The scale ends where the number field says. An empty field is the 98th percentile of what is drawn, anew with every
// drawing; "keep scale" writes the present end into it, so that a colour goes on meaning the same number.

/** @import { Credited, Measure, Prepared } from "./payload.js" */
/**
 * @typedef {{ limit: number, ofSteps: number, below: boolean, above: boolean }} Range where the scale of tokens ends, and
 * that of steps; whether tokens' values lie beyond
 * @typedef {Object} Choices What is called when somebody chooses.
 * @property {(key: string) => void} onMeasure
 * @property {(size: number | null) => void} onEnd
 * @property {(on: boolean) => void} onHold
 * @property {(on: boolean) => void} onEdges
 */

import { el } from "../dom.js";
import { MINUS, number, signed } from "../numbers.js";
import { WRONG } from "./cards.js";
import { BINS, tint } from "./measures.js";
import { NOT_RIGHT, RIGHT } from "./overview.js";
import { OBSERVED_TITLE } from "./turns.js";

const END_LABEL = "Colours end at; empty for the 98th percentile";
const END_TITLE = "Where the colours end; empty: at the 98th percentile of what is drawn";
const MATCH_TITLE = "What the step pattern found: where a step starts or ends, or the step itself";
const STRADDLES_TITLE =
  "A token that holds the end of one step and the start of the next; it counts for the first of the two";
const JUDGED = "1 is right, by the outcome reward";
const WRONG_TITLE = "It scores the step below 1. The colour need not say so: it may count later steps too.";
const CULPRIT_TITLE = "The first token that would be another one, were the step right after what stands before it";
const LATER_TITLE = "A token gets what later steps earn: of equally right steps an earlier one gets more";
const TURN_TITLE = "Where a turn of the policy begins; the answer to a call stands below it";
const HOLD_TITLE = "Keep this range while the drawing changes, so that a colour goes on meaning the same number";

/** @param {number} size */
const short = (size) => `${Number(size.toPrecision(3))}`;

export class Legend {
  /** @param {Choices} choices */
  constructor({ onMeasure, onEnd, onHold, onEdges }) {
    this.colourBy = el("select", { "aria-label": "Colour by", class: "colour-by" });
    this.colourBy.addEventListener("change", () => onMeasure(this.colourBy.value));
    const field = { type: "number", step: "any", class: "range-end", "aria-label": END_LABEL, title: END_TITLE };
    this.end = el("input", field);
    this.end.addEventListener("change", () => onEnd(Math.abs(Number(this.end.value)) || null));
    const box = (/** @type {string} */ name, /** @type {(on: boolean) => void} */ choose) =>
      el("input", { type: "checkbox", class: name, onchange: (event) => choose(event.target.checked) });
    this.hold = box("range-hold", onHold);
    this.low = el("span", { class: "end" });
    this.swatches = el("span", { class: "swatches", role: "img" });
    this.high = el("span", { class: "end" });
    this.meaning = el("span", { class: "meaning" });
    this.ways = ["▼ down ", " up ▲"].map((way) => el("span", { class: "way" }, way));
    this.reading = el("div", { class: "reading", role: "group", "aria-label": "How to read the colours" });
    const popover = (/** @type {string} */ name, /** @type {string} */ sign, /** @type {Node[]} */ children) =>
      el(
        "details",
        { class: `popover ${name === "Key" ? "marks" : "settings"}`, name: "legend" },
        el("summary", { "aria-label": name, title: name }, sign),
        el("div", { class: "sheet" }, ...children),
      );
    this.marks = popover("Key", "Key", [this.reading]);
    const settings = popover("Scale", "⚙", [
      el("label", {}, "Colours end at ", this.end),
      el("label", { title: HOLD_TITLE }, this.hold, "keep scale"),
      el("label", { title: "A thin line where a token begins" }, box("token-edges", onEdges), "outline tokens"),
    ]);
    this.node = el(
      "div",
      { class: "legend", hidden: true },
      el("label", {}, "Colour by ", this.colourBy),
      el("span", { class: "scale" }, this.ways[0], this.low, this.swatches, this.high, this.ways[1]),
      settings,
      this.marks,
      this.meaning,
    );
    this.node.addEventListener("keydown", (event) => {
      const open = event.key === "Escape" && this.node.querySelector("details[open]");
      if (!open) return;
      event.stopPropagation();
      open.removeAttribute("open");
      open.querySelector("summary")?.focus();
    });
    this.node.addEventListener("focusout", ({ relatedTarget, target }) => {
      const open = /** @type {Element} */ (target).closest("details[open]");
      if (open && relatedTarget && !open.contains(/** @type {Node} */ (relatedTarget))) open.removeAttribute("open");
    });
  }

  /** @param {Measure[]} measures @param {Measure} chosen Lists the measures that a group has. */
  offer(measures, chosen) {
    this.node.hidden = !measures.length;
    const offered = measures.map(({ key }) => key).join();
    if (this.colourBy.dataset.offered !== offered) { // a list that somebody has open is left alone
      this.colourBy.dataset.offered = offered;
      this.colourBy.replaceChildren(...measures.map(({ key, label }) => el("option", { value: key }, label)));
    }
    this.colourBy.value = chosen.key;
  }

  /**
   * Says how the colours and the signs of the cards are read.
   * @param {Prepared} data @param {Measure} measure @param {string | null} judgedBy the reward that tells right from wrong
   */
  read(data, measure, judgedBy) {
    const sign = (/** @type {Node | string} */ mark, /** @type {string} */ means, /** @type {string} */ title) =>
      el("p", { title }, typeof mark === "string" ? el("b", {}, mark) : mark, ` ${means}`);
    const isScored = data.rollouts.some(({ steps }) => steps) && !data.measures;
    this.reading.hidden = !isScored;
    for (const way of this.ways) way.hidden = measure.key !== "advantage";
    if (!isScored) return;
    const by = data.judges?.step ? `, by ${data.judges.step}` : "";
    const hasTurns = data.rollouts.some(({ turns }) => turns);
    const hasMatches = data.rollouts.some(({ matches }) => matches?.length);
    this.reading.replaceChildren(
      ...(measure.key === "advantage" ? meaningOf(data) : []),
      ...(judgedBy === null ? [] : [sign(`${RIGHT} ${NOT_RIGHT}`, "right and wrong answer", `${JUDGED} ${judgedBy}`)]),
      sign(el("b", { class: "sign" }, WRONG), `wrong step${by}`, WRONG_TITLE),
      ...(data.rollouts.some(hasCulprit)
        ? [sign(el("span", { class: "culprit" }, "8"), "where a wrong step goes wrong", CULPRIT_TITLE)]
        : []),
      sign("reward", "the step’s own, before anything is normalised", "The weighted sum of the step rewards"),
      sign("later", "what the steps after it add to its advantage", LATER_TITLE),
      ...(data.rollouts.some(straddles) ? [sign("┊", "token of two steps", STRADDLES_TITLE)] : []),
      ...(hasTurns ? [sign(el("span", { class: "says", "data-said": "turn 1" }), "a turn", TURN_TITLE)] : []),
      ...(hasTurns
        ? [sign(el("span", { class: "observation" }, "grey"), "observation, no advantage", OBSERVED_TITLE)]
        : []),
      ...(hasMatches ? [sign(el("span", { class: "match" }, "match"), "of the pattern", MATCH_TITLE)] : []),
    );
  }

  /** @param {string} key Selects a measure; whether it is offered. */
  choose(key) {
    const known = [...this.colourBy.options].some(({ value }) => value === key);
    if (known) this.colourBy.value = key;
    return known;
  }

  /** @param {Measure} measure @param {Range} range @param {boolean} fixed whether its end was set or held by hand */
  show(measure, range, fixed) {
    const { limit } = range;
    const { low, high } = endsOf(measure, range);
    const ofSteps = measure.summed && limit ? `steps have their sum, coloured up to ${short(range.ofSteps)}` : "";
    this.meaning.textContent = [measure.meaning, ofSteps].filter(Boolean).join("; ");
    this.low.textContent = low;
    this.high.textContent = high;
    if (document.activeElement !== this.end) this.end.value = fixed ? short(limit) : ""; // not while somebody types in it
    this.end.placeholder = short(limit);
    this.hold.checked = fixed;
    this.hold.disabled = !limit;
    this.swatches.replaceChildren(...binsOf(measure).map((bin) => swatch(bin, limit, measure)));
    this.swatches.setAttribute("aria-label", scaleLabel(measure, range, fixed));
  }
}

/** @param {Credited} rollout */
const hasCulprit = ({ steps }) => steps?.some(({ culprit }) => culprit !== undefined) ?? false;

/** @param {Credited} rollout Whether a token of it holds the beginning of a step that it does not belong to. */
const straddles = ({ steps, offsets }) => steps?.some(({ start, first }) => start < offsets[first]) ?? false;

/** @param {Prepared} data What an advantage is made of, under each scheme that is drawn. */
function meaningOf({ counts, other }) {
  const told = other && other.counts !== counts ? [["A:", counts], ["B:", other.counts]] : [["Colour:", counts]];
  return told.flatMap(([name, made]) => made ? [el("p", {}, el("b", {}, name), ` ${made}`)] : []);
}

/** @param {Measure} measure @param {Range} range @returns {{ low: string, high: string }} Texts at the scale's two ends. */
export function endsOf(measure, { limit, below, above }) {
  if (!limit) return { low: "0", high: "" };
  const low = measure.signed ? `${below ? "≤ " : ""}${MINUS}${short(limit)}` : "0";
  if (measure.negative) return { low, high: `${below ? "≤ " : ""}${MINUS}${short(limit)}` };
  return { low, high: `${above ? "≥ " : ""}${measure.signed ? "+" : ""}${short(limit)}` };
}

/** @param {Measure} measure @param {Range} range @param {boolean} fixed */
function scaleLabel(measure, { limit, below, above }, fixed) {
  const scale = measure.signed
    ? `Colour scale: ${measure.flipped ? "blue below zero, orange" : "orange below zero, blue"} above, ends at `
    : `Colour scale from 0 to ${measure.negative ? MINUS : ""}`;
  const end = fixed ? "as set" : "the 98th percentile";
  return `${scale}${short(limit)}, ${end}${below || above ? "; some values lie beyond it" : ""}`;
}

/** @param {Measure} measure */
const binsOf = ({ signed: both }) =>
  Array.from({ length: both ? 2 * BINS + 1 : BINS + 1 }, (_, i) => (both ? i - BINS : i));

/** @param {number} bin @param {number} limit @param {Measure} measure */
function swatch(bin, limit, measure) {
  return el("i", { class: tint(bin, BINS, measure), title: limit ? swatchTitle(bin, limit, measure) : null });
}

/**
 * The values that one swatch stands for. Those of a measure that is never above zero grow downwards.
 * @param {number} bin @param {number} limit @param {Pick<Measure, "signed" | "negative">} measure
 */
export function swatchTitle(bin, limit, measure) {
  const width = limit / BINS;
  const digits = Math.min(20, Math.max(0, 1 - Math.floor(Math.log10(width))));
  const at = (/** @type {number} */ place) =>
    (measure.signed ? signed : number)((measure.negative ? -place : place) * width, digits);
  if (Math.abs(bin) === BINS) {
    return `${at(bin - Math.sign(bin) / 2)} and ${bin < 0 || measure.negative ? "below" : "above"}`;
  }
  return `${bin || measure.signed ? at(bin - 0.5) : "0"} to ${at(bin + 0.5)}`;
}
