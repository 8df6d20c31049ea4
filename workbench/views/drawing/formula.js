// Scheme and loss written out with the pinned token's numbers in their places; each number knows what it is made of.

/** @import { LossPayload, TermPayload } from "../payloads.d.ts" */
/** @import { Credited, TokenLosses } from "./payload.js" */
/** @import { Lights } from "./lighting.js" */
/** @typedef {string | { text: string, lights: Lights, title: string }} Part text, or a number that can be pointed at */

import { el } from "../dom.js";
import { number, precise, signed } from "../numbers.js";
import { CLIPPED, settingsFor } from "./loss.js";
import { termName, termsOf, whyAt } from "./why.js";

const SHOWN_TERMS = 4;
const EPS = 1e-4; // of a standard deviation, as credit divides by it
const SAME = 1e-6;
const COUNTED_BY = {
  grpo: "1 / (completions · its tokens)",
  sapo: "1 / (completions · its tokens)",
  bnpo: "1 / tokens of its micro-batch",
  dapo: "1 / tokens of the generation",
  cispo: "1 / tokens of the generation",
  vespo: "1 / tokens of the generation",
  dr_grpo: "1 / (completions · longest allowed)",
  luspo: "1 / completions",
};
const BY_COMPLETION = ["grpo", "sapo"];

/** @type {(text: string, lights: Lights, title: string) => Part} */
const term = (text, lights, title) => ({ text, lights, title });

/** @param {Part[]} parts @param {string} [label] A line of a formula. */
export const formulaLine = (parts, label) =>
  el(
    "p",
    { class: "worked" },
    label ? el("b", {}, `${label} `) : null,
    ...parts.map((part) =>
      typeof part === "string" ? part : el(
        "span",
        { class: "term", tabindex: 0, "data-lights": JSON.stringify(part.lights), title: part.title },
        part.text,
      )
    ),
  );

/**
 * The sum that the advantage is, with the numbers of each term.
 * @param {Credited} rollout @param {number} t @returns {Part[]} none where its terms are not known
 */
export function advantageParts(rollout, t) {
  const why = whyAt(rollout, t);
  if (!why || !rollout.advantages) return [];
  const terms = termsOf(rollout, why);
  const shown = terms.slice(0, SHOWN_TERMS).flatMap((summand, i) => [i ? " + " : "", ...summandParts(summand)]);
  const more = terms.length - SHOWN_TERMS;
  const steps = terms.flatMap(({ step }) => step ?? []);
  return [
    "A = ",
    ...(terms.length ? shown : ["0"]),
    ...(more > 0 ? [` + ${more} more`] : []),
    " = ",
    term(
      signed(rollout.advantages[t], 4),
      steps.length ? { of: "steps", steps } : { of: "completion" },
      "what it is the sum of",
    ),
  ];
}

/** @param {TermPayload} summand @returns {Part[]} (r − mean) / std of a step or of the whole answer, times its share */
function summandParts({ step, source, token, raw, mean, std, normalised, factor }) {
  const name = termName({ step, source, token });
  /** @type {Lights} */
  const own = step === null ? { of: "completion" } : { of: "steps", steps: [step] };
  const pool = /** @type {Lights} */ ({ of: step === null ? "group" : "scored" });
  const times = factor === 1 ? [] : [`${number(factor, 3)} · `];
  const plain = [...times, term(number(normalised, 3), own, name)];
  if (mean === null && std === null) return plain;
  const expected = (raw - (mean ?? 0)) / (std === null ? 1 : std + EPS);
  if (Math.abs(expected - normalised) > SAME * Math.max(1, Math.abs(normalised))) return plain;
  /** @type {Part[]} */
  const above = mean === null ? [term(number(raw, 3), own, name)] : [
    "(",
    term(number(raw, 3), own, name),
    " − ",
    term(number(mean, 3), pool, "mean of its pool"),
    ")",
  ];
  return [
    ...times,
    ...above,
    ...(std === null ? [] : [" / ", term(number(std, 3), pool, "standard deviation of its pool, + 1e-4")]),
  ];
}

/** @param {LossPayload} loss of the run @param {string} type The loss of one token in letters. */
export function lossFormula(loss, type) {
  const { beta } = settingsFor(loss, type);
  const policy = CLIPPED.includes(type)
    ? "min(ρ A, clip(ρ) A)"
    : { cispo: "min(ρ, ε₊) A log π", sapo: "4 σ(τ(ρ − 1)) / τ · A", vespo: "φ(w) A log π" }[type] ?? "";
  return `c (−${policy}${beta ? " + β k₃" : ""})`;
}

/**
 * The same with the token's numbers: what it adds to the loss.
 * @param {LossPayload} loss @param {string} type @param {TokenLosses} read @param {Credited} rollout @param {number} t
 * @param {{ logp: number, weight: number, bonus?: number | null }} seen by this pass @returns {Part[]}
 */
export function lossParts(loss, type, read, rollout, t, { logp, weight, bonus = null }) {
  const settings = settingsFor(loss, type);
  const isConstant = ["cispo", "vespo"].includes(type);
  const advantage = rollout.advantages?.[t] ?? 0;
  /** @type {Lights} */
  const token = { of: "token" };
  const because = read.clipped[t]
    ? `ρ = ${number(read.ratio[t], 4)}, held by the ${bound(read.clipped[t])} bound`
    : "ρ = π / π_old";
  const kl = settings.beta ? read.kl[t] / settings.beta : 0;
  return [
    "= ",
    term(
      precise(read.normaliser, 3),
      { of: BY_COMPLETION.includes(type) ? "completion" : "group" },
      `c = ${COUNTED_BY[/** @type {keyof typeof COUNTED_BY} */ (type)]}`,
    ),
    " (−",
    term(number(read.factor[t], 4), settings.sequenceRatio || type === "vespo" ? { of: "completion" } : token, because),
    " · ",
    term(signed(advantage, 4), { of: "steps", steps: stepsOf(rollout, t) }, "A: the steps it is made of"),
    ...(isConstant ? [" · ", term(number(logp, 4), token, "log π")] : []),
    ...(weight === 1 ? [] : [" · ", term(number(weight, 4), token, "what else the policy term is multiplied with")]),
    ...(settings.beta
      ? [` + ${precise(settings.beta)} · `, term(precise(kl, 3), token, "k₃ = e^d − d − 1, d = log π_ref − log π")]
      : []),
    ")",
    ...(bonus === null ? [] : [" + ", term(precise(bonus, 3), token, "the entropy bonus: −coef · H / tokens")]),
    " = ",
    term(precise(read.contribution[t], 3), token, "its contribution to the loss"),
  ];
}

/** @param {number} side */
export const bound = (side) => side > 0 ? "upper" : "lower";

/** @param {Credited} rollout @param {number} t The steps that its advantage is made of; its own where that is not known. */
function stepsOf(rollout, t) {
  const why = whyAt(rollout, t);
  const steps = why ? termsOf(rollout, why).flatMap(({ step }) => step ?? []) : [];
  return steps.length ? steps : [rollout.stepOf[t]];
}
