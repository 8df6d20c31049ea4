// Why a token has its colour: the facts about it, and the terms of its advantage.

/** @import { TermPayload } from "../payloads.d.ts" */
/** @import { Credited, Measure, Why } from "./payload.js" */
/** @typedef {{ name: string, value: string, shown: boolean }} Fact `shown` where the token is coloured by it */

import { el } from "../dom.js";
import { count, number, score, signed } from "../numbers.js";
import { OF_TOKENS, said } from "./measures.js";
import { isWatched, rowsOfToken } from "./rows.js";
import { INVISIBLE } from "./tokens.js";
import { observationAt } from "./turns.js";

const SHOWN_TERMS = 6; // in the line of a sum
const QUOTED = 200; // characters of a token
const SAME = 1e-9;

/** @param {TermPayload} term Whether it belongs to a sum over tokens, whose terms carry no one reward. */
const ofTokens = ({ source }) => ["token", "delta", "later", "centre", "importance"].includes(source);

/** @type {{ name: string, title: string, text: (term: TermPayload) => string, needed: (term: TermPayload) => boolean }[]} */
const STAGES = [ // from the reward to what a term adds; a column for each that some term goes through
  {
    name: "reward",
    title: "weighted sum of the reward functions' scores",
    text: (term) => score(term.reward),
    needed: (term) => !ofTokens(term),
  },
  {
    name: "value",
    title: "what the scheme made of the reward and normalised",
    text: (term) => number(term.raw),
    needed: (term) => !ofTokens(term) && (term.reward === null || Math.abs(term.raw - term.reward) > SAME),
  },
  {
    name: "δ",
    title: "temporal difference of the token: ρ + γ V of the next − V",
    text: (term) => term.source === "delta" ? signed(term.raw, 4) : "",
    needed: (term) => term.source === "delta",
  },
  { name: "mean", title: "of its pool", text: (term) => number(term.mean), needed: (term) => term.mean !== null },
  { name: "std", title: "of its pool", text: (term) => number(term.std), needed: (term) => term.std !== null },
  { name: "r̃", title: "normalised", text: (term) => signed(term.normalised, 4), needed: () => true },
  {
    name: "×",
    title: "weight, discount or share",
    text: (term) => number(term.factor, 4),
    needed: (term) => term.factor !== 1,
  },
  {
    name: "adds",
    title: "to the token's advantage",
    text: (term) => signed(term.value, 4),
    needed: (term) => term.factor !== 1,
  },
];

/** @param {Credited} rollout @param {number} t The terms of a token, where the payload or the server gave them. */
export const whyAt = (rollout, t) => rollout.why?.find((why) => why.first <= t && t <= why.last);

/** @param {Credited} rollout @param {Why} why */
export const termsOf = (rollout, why) =>
  why.list ?? (why.terms ?? []).flatMap(([first, last]) => (rollout.terms ?? []).slice(first, last + 1));

/** @param {Pick<TermPayload, "step" | "source" | "token">} term */
export function termName({ step, source, token }) {
  if (step !== null) return `step ${step + 1}`;
  if (source === "token" || source === "delta") return `token ${token}`;
  if (source === "later") return `tokens ${token} and later`;
  if (source === "centre") return "less the batch's mean";
  if (source === "importance") return "importance";
  /** @type {Record<string, string>} */
  const named = { sum: "Σ steps", mean: "mean of steps", return: "outcome + gains" };
  return named[source] ?? "outcome";
}

/** @param {Credited} rollout @param {Why} why */
export function whyTable(rollout, why) {
  const terms = termsOf(rollout, why);
  const names = [...new Set(terms.flatMap((term) => Object.keys(term.scores)))];
  const stages = STAGES.filter(({ name, needed }) => terms.length ? terms.some(needed) : name !== "δ");
  const rows = terms.map((term) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, termName(term)),
      ...names.map((name) => el("td", {}, name in term.scores ? score(term.scores[name]) : "")),
      ...stages.map(({ text }) => el("td", {}, text(term))),
    )
  );
  const sum = terms.length ? `sum of ${count(terms.length, "term")}` : "nothing is added to this token";
  const total = el("th", { scope: "row", colspan: names.length + stages.length }, sum);
  const table = el(
    "table",
    {},
    el("thead", {}, whyHead(terms, names, stages)),
    el("tbody", {}, ...rows),
    el("tfoot", {}, el("tr", {}, total, el("td", {}, signed(why.total, 4)))),
  );
  return el("div", { class: "terms", tabindex: 0, role: "region", "aria-label": "Terms of the advantage" }, table);
}

/** @param {TermPayload[]} terms @param {string[]} names @param {typeof STAGES} stages */
function whyHead(terms, names, stages) {
  const scores = names.map((name) => {
    const weight = terms.find((term) => name in term.weights)?.weights[name] ?? 1;
    const broken = name.split(/(?<=_)/).flatMap((part) => [part, el("wbr")]);
    return el("th", { scope: "col" }, ...broken, weight === 1 ? null : el("small", {}, ` × ${score(weight)}`));
  });
  const centres = [...new Set(terms.filter(({ mean }) => mean !== null).map(({ centre }) => centre))].join(" or ");
  const columns = stages.map(({ name, title }) =>
    el("th", { scope: "col", title }, name === "mean" ? centres || name : name)
  );
  return el("tr", {}, el("th", { scope: "col" }, ""), ...scores, ...columns);
}

/** @param {Credited} rollout @param {number} t The sum in one line: what each term adds, the first of many. */
export function sumLine(rollout, t) {
  const why = whyAt(rollout, t);
  const terms = why ? termsOf(rollout, why) : [];
  if (!terms.length) return null;
  const shown = terms.slice(0, SHOWN_TERMS).map((term) => `${signed(term.value, 3)} (${termName(term)})`);
  return `= ${shown.join(" ")}${terms.length > SHOWN_TERMS ? ` and ${terms.length - SHOWN_TERMS} more` : ""}`;
}

/** @param {Credited} rollout @param {number} t @param {Measure} measure @returns {Fact[]} What is known of a token. */
export function facts(rollout, t, measure) {
  const written = observationAt(rollout, t);
  const token = `${t}  id ${rollout.ids[t]}`;
  if (written) {
    return [["written by", written.role], ["token", token]].map(([name, value]) => ({ name, value, shown: false }));
  }
  const rows = [
    ...ofEach(rollout, "advantage", "advantage", (r) => (r.advantages ? signed(r.advantages[t], 4) : null)),
    ...rowsOfToken(rollout, t),
    ...(measure.derived ? colouredBy(rollout, t, measure) : []),
    ...ofStep(rollout, t),
    ...OF_TOKENS.flatMap((of) => ofEach(rollout, of.label, of.key, (r) => signedOrNull(of.token(r, t)))),
    ...ofPolicy(rollout, t),
    ["token", token],
  ];
  return rows.flatMap(([name, value, key]) =>
    typeof name === "string" && typeof value === "string" ? [{ name, value, shown: key === measure.key }] : []
  );
}

/** @param {number | null} value */
const signedOrNull = (value) => value === null ? null : signed(value, 4);

/** @param {Credited} rollout @param {number} k What reward functions logged of a step, and of the whole completion. */
export function remarksOf({ steps, logged = [] }, k) {
  return [...(steps?.[k]?.logged ?? []), ...logged].map(([name, column, value]) => ({
    name: column === "extracted_answer" ? "Answer read:" : `${name}, ${column}`,
    text: column === "quote" ? `“${value}”` : `${value}`,
  }));
}

/** @param {Credited} rollout @param {number} k `remarksOf` as paragraphs. */
export const remarks = (rollout, k) =>
  remarksOf(rollout, k).map(({ name, text }) => el("p", { class: "remark" }, el("em", {}, name), ` ${text}`));

/** @typedef {(string | null | undefined)[]} Row name, value, and the key of the measure that it is */

/**
 * A row for each scheme, A and B.
 * @param {Credited} rollout @param {string} name @param {string} key @param {(r: Credited) => string | null} value
 * @returns {Row[]}
 */
function ofEach(rollout, name, key, value) {
  if (!rollout.twin) return [[name, value(rollout), key]];
  return [[`${name} A`, value(rollout), key], [`${name} B`, value(rollout.twin), key]];
}

/** @type {typeof ofEach} One row where both schemes give the same value. */
function ofDifferent(rollout, name, key, value) {
  const same = !rollout.twin || value(rollout) === value(rollout.twin);
  return same ? [[name, value(rollout), key]] : ofEach(rollout, name, key, value);
}

/** @param {Credited} rollout @param {number} t @param {Measure} measure @returns {Row[]} */
function colouredBy(rollout, t, measure) {
  const value = (/** @type {Credited} */ r) => {
    const raw = measure.token(r, t);
    return raw === null ? null : said(measure, raw, 4);
  };
  return measure.one
    ? [[measure.label, value(rollout), measure.key]]
    : ofDifferent(rollout, measure.label, measure.key, value);
}

/** @param {Credited} rollout @param {number} t @returns {Row[]} */
function ofStep(rollout, t) {
  if (!rollout.steps) return [];
  const k = rollout.stepOf[t];
  const step = rollout.steps[k];
  const others = stepsBegunIn(rollout, t);
  const straddles = others.map((other) => `step ${other + 1}`).join(", ");
  const straddling = ["straddles", others.length ? `the start of ${straddles}` : null];
  if (!step) return [["step", "outside every step"], straddling];
  const scores = Object.entries(step.scores);
  return [
    ["step", `${k + 1} of ${rollout.steps.length}`],
    ...(scores.length > 1 ? scores.map(([name, value]) => [name, score(value)]) : []),
    isWatched(rollout)
      ? ["label", step.reward === null ? null : score(step.reward)]
      : ["step score", score(step.reward), "reward"],
    straddling,
    ...ofDifferent(rollout, "normalised", "normalised", (r) => {
      const value = r.steps?.[k].normalised ?? null;
      return value === null ? null : signed(value, 4);
    }),
  ];
}

/** @param {Credited} rollout @param {number} t The other steps that begin inside a token. */
function stepsBegunIn({ steps, stepOf, offsets }, t) {
  const [start, end] = [offsets[t], offsets[t + 1]];
  return (steps ?? []).flatMap((step, k) =>
    k !== stepOf[t] && step.start >= start && step.start < end && step.end > end ? [k] : []
  );
}

/** @param {Credited} rollout @param {number} t @returns {Row[]} */
function ofPolicy({ logprobs, entropies, raw, reference }, t) {
  const likely = (/** @type {number} */ value) => `${number(value)}  p ${number(Math.exp(value), 3)}`;
  const ratio = reference && raw ? number(Math.exp(raw[t] - reference[t]), 3) : null;
  return [
    ["log-prob", logprobs ? likely(logprobs[t]) : null, "logprob"],
    ["entropy", entropies ? number(entropies[t]) : null, "entropy"],
    ["reference", reference ? likely(reference[t]) : null],
    ["π / π_ref", ratio],
  ];
}

/** @param {string} character */
const escaped = (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;

/** @param {string} text A token as a quoted string, with what cannot be seen escaped. */
export function quoted(text) {
  if (!text) return "no character of its own";
  const short = text.length > QUOTED ? `${text.slice(0, QUOTED)}…` : text;
  return JSON.stringify(short).replace(new RegExp(INVISIBLE, "g"), escaped);
}
