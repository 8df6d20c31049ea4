// Two credits of one group, by two schemes or two lists of rewards: what they disagree about, as a line and step by step.

/** @import { OtherPayload, StepPayload } from "../payloads.d.ts" */
/** @import { Credited, Prepared } from "./payload.js" */
/** @typedef {{ g: number, k: number, step: StepPayload, twin: StepPayload | undefined, a: number, b: number, flipped: number }} Row */

import { el } from "../dom.js";
import { meanOf, number, score, share, signed } from "../numbers.js";

const HEAD = ["", "reward", "tokens", "A", "B", "B − A", "change sign"];

/** @param {Prepared} data @param {(g: number, t: number) => void} pin */
export function comparison(data, pin) {
  const rows = data.rollouts.flatMap(rowsOf).map((row) => rowElement(row, pin));
  const table = el(
    "table",
    {},
    el("thead", {}, el("tr", {}, ...HEAD.map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, ...rows),
  );
  const region = { class: "terms", tabindex: 0, role: "region", "aria-label": "Steps under both schemes" };
  const details = el("details", {}, el("summary", {}, `Step by step (${rows.length})`), el("div", region, table));
  return [...(data.other ? [line(data.other)] : []), details];
}

/** @param {OtherPayload} other */
function line(other) {
  const { correlation } = other;
  const agreement = correlation === null ? "no correlation (one is constant)" : `r = ${number(correlation, 2)}`;
  return el(
    "p",
    {},
    el("b", {}, "A"),
    ` ${other.names[0]}  `,
    el("b", {}, "B"),
    ` ${other.names[1]}: `,
    el("b", {}, share(other.flippedShare, 1)),
    " of the tokens change sign ",
    el("i", { class: "flips sample" }, "like this"),
    ", ",
    el("b", {}, agreement),
    ", mean |B − A| ",
    el("b", {}, number(other.meanDifference, 2)),
  );
}

/** @param {Credited} rollout @param {number} g @returns {Row[]} Each step's mean advantage under both schemes. */
export function rowsOf({ steps, advantages, twin }, g) {
  const other = twin?.advantages;
  if (!steps || !advantages || !other) return [];
  return steps.map((step, k) => {
    const [a, b] = [advantages, other].map((values) => values.slice(step.first, step.last + 1));
    return {
      g,
      k,
      step,
      twin: twin?.steps?.[k],
      a: meanOf(a),
      b: meanOf(b),
      flipped: a.filter((value, i) => value * b[i] < 0).length,
    };
  });
}

/** @param {Row} row @param {(g: number, t: number) => void} pin */
function rowElement({ g, k, step, twin, a, b, flipped }, pin) {
  const open = el("button", { type: "button", onclick: () => pin(g, step.last) }, `rollout ${g + 1}, step ${k + 1}`);
  const cells = [
    twin && twin.reward !== step.reward ? `${score(step.reward)} / ${score(twin.reward)}` : score(step.reward),
    `${step.last - step.first + 1}`,
    signed(a, 3),
    signed(b, 3),
    signed(b - a, 3),
    flipped ? `${flipped}` : "",
  ];
  const head = el("th", { scope: "row" }, open);
  return el("tr", { class: flipped ? "flipped" : null }, head, ...cells.map((text) => el("td", {}, text)));
}
