// The loss written out with the pinned token's numbers in their places; each number says what it is.

/** @import { LossPayload } from "../payloads.d.ts" */
/** @import { Credited, TokenLosses } from "./payload.js" */
/** @typedef {string | { text: string, title: string }} Part text, or a number that says what it is */

import { el } from "../dom.js";
import { number, precise, signed } from "../numbers.js";
import { CLIPPED, settingsFor } from "./loss.js";

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

/** @type {(text: string, title: string) => Part} */
const term = (text, title) => ({ text, title });

/** @param {Part[]} parts @param {string} [label] A line of a formula. */
export const formulaLine = (parts, label) =>
  el(
    "p",
    { class: "worked" },
    label ? el("b", {}, `${label} `) : null,
    ...parts.map((part) =>
      typeof part === "string" ? part : el(
        "span",
        { class: "term", tabindex: 0, title: part.title },
        part.text,
      )
    ),
  );

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
  const because = read.clipped[t]
    ? `ρ = ${number(read.ratio[t], 4)}, held by the ${bound(read.clipped[t])} bound`
    : "ρ = π / π_old";
  const kl = settings.beta ? read.kl[t] / settings.beta : 0;
  return [
    "= ",
    term(
      precise(read.normaliser, 3),
      `c = ${COUNTED_BY[/** @type {keyof typeof COUNTED_BY} */ (type)]}`,
    ),
    " (−",
    term(number(read.factor[t], 4), because),
    " · ",
    term(signed(advantage, 4), "A: the steps it is made of"),
    ...(isConstant ? [" · ", term(number(logp, 4), "log π")] : []),
    ...(weight === 1 ? [] : [" · ", term(number(weight, 4), "what else the policy term is multiplied with")]),
    ...(settings.beta
      ? [` + ${precise(settings.beta)} · `, term(precise(kl, 3), "k₃ = e^d − d − 1, d = log π_ref − log π")]
      : []),
    ")",
    ...(bonus === null ? [] : [" + ", term(precise(bonus, 3), "the entropy bonus: −coef · H / tokens")]),
    " = ",
    term(precise(read.contribution[t], 3), "its contribution to the loss"),
  ];
}

/** @param {number} side */
export const bound = (side) => side > 0 ? "upper" : "lower";
