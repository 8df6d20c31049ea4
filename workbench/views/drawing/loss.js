// The policy loss of a rollout's tokens: the formulas of credit/explain.py, so that any loss can be looked at at once.
//
// A token adds c (−f(ρ) A + β k3). f is the ratio ρ = π / π_old, clipped, capped or softened by the loss type.

/** @import { LossPayload } from "../payloads.d.ts" */
/** @import { Credited, TokenLosses } from "./payload.js" */

export const CLIPPED = ["grpo", "bnpo", "dapo", "dr_grpo", "luspo"];
const CISPO_CAP = 5; // where a run has no cap of its own: arXiv 2510.13786
const [LEAST, MOST] = [Math.log(1e-8), 20]; // bounds of vespo's log weights

/** @param {LossPayload} loss @param {string} type The settings of a run's loss, for a loss of another type. */
export function settingsFor(loss, type) {
  if (type === loss.type) return loss;
  if (type === "cispo") return { ...loss, type, epsilon_high: CISPO_CAP };
  return { ...loss, type, epsilon_high: loss.type === "cispo" ? loss.epsilon : loss.epsilon_high };
}

/**
 * @param {LossPayload} settings
 * @param {{
 *   advantages: ArrayLike<number>, logprobs: ArrayLike<number>, normaliser: number, old?: number[] | null,
 *   reference?: number[] | null, weights?: number[] | null, mask?: number[] | null, bonus?: number[] | null,
 * }} row
 * @returns {TokenLosses}
 */
export function tokenLosses(settings, { advantages, logprobs, normaliser, old, reference, weights, mask, bonus }) {
  const tokens = Array.from(logprobs, (_, t) => t);
  const counted = tokens.map((t) => mask?.[t] ?? 1);
  const logRatio = tokens.map((t) => (old && counted[t] ? logprobs[t] - old[t] : 0));
  const length = Math.max(1, total(counted));
  const meanOf = (/** @type {number[]} */ values) => total(values.map((value, t) => value * counted[t])) / length;
  const whole = settings.sequence_ratio ? Math.exp(meanOf(logRatio)) : 0;
  const ratio = logRatio.map((value) => (settings.sequence_ratio ? whole : Math.exp(value)));
  const logWeight = settings.type === "vespo" ? logWeightOf(logRatio.map((value, t) => value * counted[t])) : 0;
  const factors = tokens.map((t) => factorOf(settings, advantages[t], ratio[t], logWeight));
  const constant = ["cispo", "vespo"].includes(settings.type); // no gradient through the factor, but through log π
  const weighted = tokens.map((t) => advantages[t] * (weights?.[t] ?? 1));
  const policy = tokens.map((t) => -factors[t].factor * weighted[t] * (constant && counted[t] ? logprobs[t] : 1));
  const { beta, kl_times_ratio } = settings;
  const d = tokens.map((t) => (beta && reference && counted[t] ? reference[t] - logprobs[t] : 0));
  const times = ratio.map((value) => beta * (kl_times_ratio ? value : 1));
  const kl = tokens.map((t) => times[t] * (Math.expm1(d[t]) - d[t]));
  const direct = tokens.map((t) => (constant ? -factors[t].factor * weighted[t] : 0) - times[t] * Math.expm1(d[t]));
  const byRatio = tokens.map((t) =>
    (constant ? 0 : -factors[t].slope * ratio[t] * weighted[t]) + (kl_times_ratio ? kl[t] : 0)
  );
  const mean = settings.sequence_ratio ? meanOf(byRatio) : 0;
  return {
    ratio,
    factor: factors.map(({ factor }) => factor),
    clipped: tokens.map((t) => advantages[t] && !factors[t].slope ? Math.sign(ratio[t] - factors[t].factor) : 0),
    kl,
    contribution: tokens.map((t) => normaliser * counted[t] * (policy[t] + kl[t]) + (bonus?.[t] ?? 0)),
    push: tokens.map((t) => -normaliser * counted[t] * (direct[t] + (settings.sequence_ratio ? mean : byRatio[t]))),
    normaliser,
  };
}

/** @param {number[]} values */
const total = (values) => values.reduce((sum, value) => sum + value, 0);

/** @param {number[]} logRatios The logarithm of the product of a completion's ratios, bounded. */
function logWeightOf(logRatios) {
  const bound = (/** @type {number} */ value, /** @type {number} */ least) => Math.min(Math.max(value, least), MOST);
  return bound(total(logRatios.map((value) => bound(value, -MOST))), LEAST);
}

/**
 * What an advantage is multiplied with, and its derivative by the ratio; 0 where a bound holds the ratio.
 * @param {LossPayload} settings @param {number} advantage @param {number} ratio @param {number} logWeight of vespo
 */
function factorOf(settings, advantage, ratio, logWeight) {
  const { type, epsilon, epsilon_high, delta } = settings;
  if (CLIPPED.includes(type)) {
    const bounded = delta === null ? ratio : Math.min(ratio, delta);
    const clipped = Math.min(Math.max(ratio, 1 - epsilon), 1 + epsilon_high);
    const factor = advantage >= 0 ? Math.min(bounded, clipped) : Math.max(bounded, clipped);
    return { factor, slope: Number(factor === ratio) };
  }
  if (type === "cispo") return { factor: Math.min(ratio, epsilon_high), slope: Number(ratio <= epsilon_high) };
  if (type === "sapo") {
    const temperature = settings.sapo_temperatures[advantage > 0 ? 0 : 1];
    const gate = 1 / (1 + Math.exp(-temperature * (ratio - 1)));
    return { factor: (4 * gate) / temperature, slope: 4 * gate * (1 - gate) };
  }
  const side = advantage >= 0 ? 0 : 1;
  const lambda = Math.max(settings.vespo_lambda[side], 1e-4);
  return { factor: Math.exp(lambda + settings.vespo_k[side] * logWeight - lambda * Math.exp(logWeight)), slope: 1 };
}

/**
 * A rollout's tokens under a loss in one pass (from 0), or on policy where there is none.
 * @param {LossPayload} settings @param {Credited} rollout @param {number} pass @returns {TokenLosses | null}
 */
export function readRollout(settings, { advantages, loss, raw, logprobs, reference, texts }, pass) {
  if (!advantages || !loss) return null;
  const seen = loss.passes[pass];
  const known = seen ? seen.logprobs : raw ?? logprobs;
  const normaliser = loss.coefficients[settings.type] ?? 0;
  const isLeftOut = Boolean(seen && !seen.logprobs) || !normaliser;
  return tokenLosses(isLeftOut ? { ...settings, beta: 0 } : settings, {
    advantages,
    logprobs: known ?? texts.map(() => 0),
    old: isLeftOut ? null : seen?.old,
    reference,
    weights: seen?.weights,
    mask: isLeftOut ? texts.map(() => 0) : loss.sampled,
    bonus: isLeftOut ? null : seen?.bonus,
    normaliser,
  });
}

/**
 * How far the log-probabilities of the first pass stray from those of sampling: the weights are the same, so all that
 * differs is rounding. In 16 bits it depends on how many rows are computed at once, too.
 * @param {Credited[]} rollouts @param {LossPayload} loss the standard deviation; 0 where the first pass is not stored
 */
export function noiseOf(rollouts, { passes }) {
  if (passes[0]?.number !== 1) return 0;
  let [count, sum, squares] = [0, 0, 0];
  for (const { raw, logprobs, loss, observed } of rollouts) {
    const [seen, sampled] = [loss?.passes[0]?.logprobs, raw ?? logprobs];
    if (!seen || !sampled) continue;
    seen.forEach((value, t) => {
      if (observed?.[t]) return;
      const off = value - sampled[t];
      [count, sum, squares] = [count + 1, sum + off, squares + off * off];
    });
  }
  return count ? Math.sqrt(Math.max(0, squares / count - (sum / count) ** 2)) : 0;
}
