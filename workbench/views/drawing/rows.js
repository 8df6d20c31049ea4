// Watched rows: fixed texts as a model sees them at one training step (now) and saw them at the first (before).

/** @import { FactPayload, MeasurePayload, StepPayload } from "../payloads.d.ts" */
/** @import { Credited, Measure, Prepared } from "./payload.js" */

import { el } from "../dom.js";
import { number, score, signed } from "../numbers.js";
import { MEASURES } from "./measures.js";

/** @param {Pick<Credited, "name">} rollout Whether it is a text of a watched row, and no rollout. */
export const isWatched = ({ name }) => name !== undefined;

/** @param {Prepared} data @param {number} g */
export const nameOf = ({ rollouts }, g) => rollouts[g].name ?? `rollout ${g + 1}`;

/** @param {Prepared} data @returns {Measure[]} What its tokens can be coloured by. */
export function measuresOf(data) {
  if (!data.measures) return MEASURES.filter((measure) => measure.has(data));
  const [first] = data.measures;
  const { before } = data;
  return [...data.measures.map(ofValues), ...(isStep(before) ? [changeOf(first, before)] : [])];
}

/** @type {(step: number | null | undefined) => step is number} */
const isStep = (step) => step !== null && step !== undefined;

/** @param {MeasurePayload} measure @returns {Measure} */
function ofValues({ key, label, short, meaning, signed: hasSides, additive }) {
  const token = (/** @type {Credited} */ r, /** @type {number} */ t) => r.values?.[key]?.[t] ?? null;
  return { key, label, short, meaning, signed: hasSides, has: () => true, token, step: ofSteps(token, additive) };
}

/** @param {MeasurePayload} measure @param {number} before @returns {Measure} */
function changeOf({ key, label, additive }, before) {
  const token = (/** @type {Credited} */ r, /** @type {number} */ t) => {
    const [now, then] = [r.values?.[key]?.[t], r.twin?.values?.[key]?.[t]];
    return now === undefined || then === undefined ? null : now - then;
  };
  return {
    key: "change",
    label: `change since step ${before}`,
    short: additive ? "Σ change" : "change",
    meaning: `blue: ${label} rose; orange: it fell`,
    signed: true,
    one: true,
    derived: true,
    has: () => true,
    token,
    step: ofSteps(token, additive),
  };
}

/** @param {Measure["token"]} token @param {boolean} additive @returns {Measure["step"]} The sum or the mean. */
const ofSteps = (token, additive) => (r, k) => {
  const { first, last } = /** @type {StepPayload[]} */ (r.steps)[k];
  let sum = 0;
  for (let t = first; t <= last; t++) sum += token(r, t) ?? 0;
  return additive ? sum : sum / (last - first + 1);
};

/** @param {FactPayload} fact A number before and now, in words. */
export function factText({ value, before }) {
  const now = number(value, 2);
  return before === null ? now : `${number(before, 2)} → ${now}`;
}

/** @param {FactPayload[]} facts The row in numbers. */
export const rowSummary = (facts) => facts.map((fact) => el("span", {}, `${fact.name} `, el("b", {}, factText(fact))));

/** @param {Credited} rollout @param {number} k What is said of a step before the number it is coloured by. */
export function labelSaid({ steps }, k) {
  const label = steps?.[k].reward ?? null;
  return `step ${k + 1} of ${steps?.length}${label === null ? "" : `, label ${score(label)}`}`;
}

/** @param {Prepared} data @returns {[string, string | undefined][]} Titles of a card's two texts: the first, the second. */
export function paneTitles(data) {
  if (!data.measures) return [["A", data.other?.names[0] ?? data.scheme], ["B", data.other?.names[1]]];
  return [["now", `step ${data.step}`], ["before", `step ${data.before}`]];
}

/** @typedef {(string | null | undefined)[]} Row */

/** @param {Credited} rollout @param {number} t @returns {Row[]} A token's numbers: name, value, key of the measure. */
export function rowsOfToken({ measures, values, twin }, t) {
  return (measures ?? []).flatMap(({ key, label, signed: hasSides }) => {
    const text = (/** @type {Credited["values"]} */ of) => {
      const value = of?.[key]?.[t];
      return value === undefined ? null : (hasSides ? signed : number)(value, 4);
    };
    return [[label, text(values), key], ["before", text(twin?.values), key]];
  });
}
