// What tokens and step chips can be coloured by, and the colour of a value.

/** @import { StepPayload } from "../payloads.d.ts" */
/** @import { Credited, Measure, Prepared } from "./payload.js" */

import { glyph, meanOf, number, precise, signed } from "../numbers.js";

export const BINS = 10; // colour steps each side of zero; with zero itself 21
const QUANTILE = 0.98; // of the sizes: where a colour scale ends
const NO_DIFFERENCE = 2e-5; // log-probabilities come with five decimals

/** @param {(r: Credited) => unknown} test @returns {(data: Prepared) => boolean} */
const some = (test) => (data) => data.rollouts.some((r) => Boolean(test(r)));

/** @param {"reward" | "normalised"} field @returns {Pick<Measure, "has" | "token" | "step">} */
const ofSteps = (field) => ({
  has: some((r) => r.steps?.some((step) => step[field] !== null)),
  token: (r, t) => r.steps?.[r.stepOf[t]]?.[field] ?? null,
  step: (r, k) => r.steps?.[k][field] ?? null,
});

/** @param {(r: Credited, t: number) => number} value @returns {Pick<Measure, "token" | "step">} */
const ofLastToken = (value) => ({
  token: value,
  step: (r, k) => (r.steps ? value(r, r.steps[k].last) : null),
});

/** @type {(r: Credited, t: number) => number} 0 for what the loss leaves out. */
const advantage = (r, t) => r.counted === false ? 0 : r.advantages?.[t] ?? NaN;

/** @type {(data: Prepared) => boolean} */
const hasReference = some((r) => r.reference && r.raw);

/**
 * A number that came with each token under its own name.
 * @type {(key: string, label: string, short: string) => Measure}
 */
const ofToken = (key, label, short) => ({
  key,
  label,
  short,
  signed: true,
  has: some((r) => r.values?.[key]),
  token: (r, t) => r.values?.[key]?.[t] ?? null,
});

/** What a critic's credit has of each token. */
export const OF_TOKENS = [
  ofToken("value", "value V", "mean V"),
  ofToken("token_reward", "token reward ρ", "mean ρ"),
  ofToken("delta", "temporal difference δ", "mean δ"),
  ofToken("return", "return G", "mean G"),
];

/** @type {(key: "contribution" | "push" | "clipped") => (r: Credited, t: number) => number | null} */
const inLoss = (key) => (r, t) => r.read?.a[key][t] ?? null;

/** @param {(r: Credited, t: number) => number | null} token @returns {Pick<Measure, "token" | "step" | "summed">} A step has the sum. */
const summed = (token) => ({
  token,
  summed: true,
  step: (r, k) => {
    const { first, last } = /** @type {StepPayload[]} */ (r.steps)[k];
    let sum = 0;
    for (let t = first; t <= last; t++) sum += token(r, t) ?? 0;
    return r.read ? sum : null;
  },
});

/** @type {Pick<Measure, "signed" | "derived" | "ofLoss" | "has">} */
const LOSS = { signed: true, derived: true, ofLoss: true, has: some((r) => r.read) };

/** What a token is in the loss that is looked at; a line above the cards says in which. @type {Measure[]} */
export const OF_LOSS = [
  {
    ...LOSS,
    key: "contribution",
    label: "contribution to the loss",
    short: "Σ contr.",
    meaning: "blue lowers the loss, orange raises it; all add up to it",
    small: true,
    flipped: true,
    ...summed(inLoss("contribution")),
  },
  {
    ...LOSS,
    key: "push",
    label: "push by the loss",
    short: "Σ push",
    meaning: "minus the loss’s derivative by the log-prob: blue is made more likely, orange less",
    small: true,
    ...summed(inLoss("push")),
  },
  {
    ...LOSS,
    key: "push-difference",
    label: "push, second loss less the first",
    short: "Σ difference",
    small: true,
    has: some((r) => r.read?.b),
    ...summed((r, t) => r.read?.b ? r.read.b.push[t] - r.read.a.push[t] : null),
  },
  {
    ...LOSS,
    key: "old-ratio",
    label: "log ratio π / π_old",
    short: "mean log ratio",
    has: some((r) => r.read?.a.ratio.some((ratio) => ratio !== 1)),
    token: (r, t) => r.read ? Math.log(r.read.a.ratio[t]) : null,
  },
  {
    ...LOSS,
    key: "clipped",
    label: "clipped, by which bound",
    short: "Σ clipped",
    meaning: "blue: the upper bound holds the ratio, orange: the lower one",
    has: some((r) => r.read?.a.clipped.some(Boolean)),
    ...summed(inLoss("clipped")),
  },
];

/** @type {Measure[]} */
export const MEASURES = [
  {
    key: "advantage",
    label: "advantage",
    short: "advantage",
    signed: true,
    has: some((r) => r.advantages),
    ...ofLastToken(advantage),
  },
  {
    key: "difference",
    label: "difference B − A",
    short: "B − A",
    signed: true,
    one: true,
    derived: true,
    has: (data) => Boolean(data.other),
    ...ofLastToken((r, t) => (r.twin ? advantage(r.twin, t) : NaN) - advantage(r, t)),
  },
  ...OF_TOKENS,
  ...OF_LOSS,
  {
    key: "weight",
    label: "weight in the loss",
    short: "weight",
    meaning: "advantage × the loss’s normaliser; 1 is an even share of the group’s tokens",
    signed: true,
    derived: true,
    ofLoss: true,
    has: some((r) => r.share !== undefined),
    ...ofLastToken((r, t) => advantage(r, t) * (r.share ?? NaN)),
  },
  { key: "reward", label: "step score", short: "score", signed: true, ...ofSteps("reward") },
  { key: "normalised", label: "normalised reward", short: "r̃", signed: true, ...ofSteps("normalised") },
  {
    key: "logprob",
    label: "log-prob",
    short: "mean log-p",
    signed: false,
    negative: true,
    has: some((r) => r.logprobs),
    token: (r, t) => r.logprobs?.[t] ?? null,
  },
  {
    key: "entropy",
    label: "entropy",
    short: "mean entr.",
    signed: false,
    has: some((r) => r.entropies),
    token: (r, t) => r.entropies?.[t] ?? null,
  },
  // What was sampled had another probability: of another engine (vLLM), whose arithmetic differs, or after processors.
  {
    key: "mismatch",
    label: "log ratio trainer / sampler",
    short: "mean mismatch",
    signed: true,
    derived: true,
    has: some((r) => r.raw && r.logprobs && r.raw.some((raw, t) => difference(raw, r.logprobs?.[t] ?? raw))),
    token: (r, t) => (r.raw && r.logprobs ? difference(r.raw[t], r.logprobs[t]) : null),
  },
  // Against a reference policy, with d = log π_ref − log π: its share of the estimator k3, e^d − d − 1, and the ratio.
  {
    key: "kl",
    label: "KL k3 to the reference",
    short: "mean KL",
    signed: false,
    derived: true,
    has: hasReference,
    token: (r, t) => {
      const d = against(r, t);
      return d === null ? null : Math.expm1(d) - d;
    },
  },
  {
    key: "ratio",
    label: "log ratio π / π_ref",
    short: "mean log ratio",
    signed: true,
    derived: true,
    has: hasReference,
    token: (r, t) => {
      const d = against(r, t);
      return d === null ? null : -d;
    },
  },
];

/** @param {Credited} r @param {number} t */
function against(r, t) {
  if (!r.reference || !r.raw) return null;
  return difference(r.reference[t], r.raw[t]);
}

/** @param {number} a @param {number} b Of two log-probabilities. */
function difference(a, b) {
  return Math.abs(a - b) < NO_DIFFERENCE ? 0 : a - b;
}

/** @param {Measure} measure @param {Credited} r @param {number} k A step's value, null where it has none. */
export function ofWhole(measure, r, k) {
  if (measure.step) return measure.step(r, k);
  const { first, last } = /** @type {StepPayload[]} */ (r.steps)[k];
  const values = Array.from({ length: last - first + 1 }, (_, i) => measure.token(r, first + i));
  const known = values.filter((value) => value !== null);
  return known.length ? meanOf(known) : null;
}

/**
 * Where the colour scale ends, and whether values lie beyond it. It ends where `fixed` says, or else at the 98th
 * percentile of the size, so that one outlier does not pale everything else. `ofSteps` is where that of the steps ends:
 * of sums, which are larger than what a token has, at their own percentile.
 * @param {Credited[]} rollouts @param {Measure} measure @param {number} [fixed]
 */
export function rangeOf(rollouts, measure, fixed) {
  const sizes = [];
  const sums = [];
  let [least, most] = [0, 0];
  for (const rollout of rollouts) {
    for (const credited of rollout.twin && !measure.one ? [rollout, rollout.twin] : [rollout]) {
      for (let t = 0; t < rollout.texts.length; t++) {
        const value = rollout.observed?.[t] ? null : measure.token(credited, t);
        if (value === null) continue;
        sizes.push(Math.abs(value));
        if (value < least) least = value;
        else if (value > most) most = value;
      }
      if (measure.summed) {
        sums.push(...(credited.steps ?? []).map((_, k) => Math.abs(ofWhole(measure, credited, k) ?? 0)));
      }
    }
  }
  const own = percentile(sizes);
  const limit = fixed ?? own;
  const ofSteps = measure.summed && own ? percentile(sums, Math.ceil) * (limit / own) : limit;
  return { limit, ofSteps, below: least < -limit, above: most > limit };
}

/** @param {number[]} sizes @param {(place: number) => number} whole Of few, up leaves the largest in, down out. */
function percentile(sizes, whole = Math.floor) {
  if (!sizes.length) return 0;
  const sorted = Float64Array.from(sizes).sort();
  const size = sorted[whole(QUANTILE * (sorted.length - 1))];
  return size || sorted[sorted.length - 1]; // mostly zeros: the scale is that of the rest
}

/**
 * The classes that colour a value: p above zero, n below (of a flipped measure the other way round), q of a measure
 * without sign; none for what rounds to zero.
 * @param {number | null} value @param {number} limit @param {Pick<Measure, "signed" | "flipped">} measure
 */
export function tint(value, limit, measure) {
  if (value === null || !limit) return "";
  const bin = Math.max(-BINS, Math.min(BINS, Math.round((value / limit) * BINS)));
  if (!bin) return "";
  return `${measure.signed ? ((measure.flipped ? bin < 0 : bin > 0) ? "p" : "n") : "q"} s${Math.abs(bin)}`;
}

/** @param {Measure} measure */
const digits = (measure) => (measure.step ? 2 : 3); // most tokens are near certain: means are small

/** @param {Measure} measure @param {number} value @param {number} places A value with its sign. */
export const said = (measure, value, places) =>
  measure.small ? `${value > 0 ? "+" : ""}${precise(value)}` : (measure.signed ? signed : number)(value, places);

/** @param {Measure} measure @param {Credited} r @param {number} k A step's value on its chip. */
export function stepText(measure, r, k) {
  const value = ofWhole(measure, r, k);
  if (value === null) return "–";
  if (measure.flipped) return said(measure, value, 0); // ▲ is what is made more likely
  if (measure.small) return `${glyph(value)}${precise(Math.abs(value))}`;
  if (!measure.signed) return number(value, digits(measure));
  const size = number(Math.abs(value), digits(measure));
  return Number(size) === 0 ? size : `${glyph(value)}${size}`; // what reads as 0 goes neither way
}

/** @param {Measure} measure @param {Credited} r @param {number} k The same for a screen reader. */
export function stepSaid(measure, r, k) {
  const value = ofWhole(measure, r, k);
  if (value === null) return "";
  return `${measure.step ? "" : "mean "}${measure.label} ${said(measure, value, digits(measure))}`;
}
