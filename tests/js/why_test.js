import { rank } from "../../workbench/views/drawing/cards.js";
import { MEASURES, OF_TOKENS } from "../../workbench/views/drawing/measures.js";
import { facts, quoted, remarksOf, sumLine, termName, termsOf } from "../../workbench/views/drawing/why.js";
import { equal } from "./assert.js";
import { rollout } from "./rollout.js";

const term = (step, value) => ({ source: step === null ? "outcome" : "step", step, value, scores: {}, weights: {} });
const [advantage] = MEASURES;

Deno.test("runs of indices are the terms they stand for", () => {
  const terms = [0, 1, 2, 3].map((step) => term(step, step));
  equal(termsOf({ terms }, { terms: [[0, 0], [2, 3]] }).map(({ step }) => step), [0, 2, 3]);
});

Deno.test("the sum in one line names the first six terms", () => {
  const list = Array.from({ length: 8 }, (_, k) => term(k, k / 2));
  const r = { ...rollout(), why: [{ first: 0, last: 3, list, total: 14, clip: null }] };
  const shown = "0.000 (step 1) +0.500 (step 2) +1.000 (step 3) +1.500 (step 4) +2.000 (step 5) +2.500 (step 6)";
  equal(sumLine(r, 2), `= ${shown} and 2 more`);
  const sources = ["outcome", "sum", "mean", "return"].map((source) => ({ ...term(null, 1), source }));
  equal(sources.map(termName), ["outcome", "Σ steps", "mean of steps", "outcome + gains"]);
});

Deno.test("terms of a sum over tokens are named by their tokens", () => {
  const names = [["token", 2], ["delta", 3], ["later", 9], ["centre", null]].map(([source, token]) =>
    termName({ source, token, step: null })
  );
  equal(names, ["token 2", "token 3", "tokens 9 and later", "less the batch's mean"]);
});

Deno.test("what a critic's credit has of a token is among its facts, and a measure", () => {
  const values = { value: [0, 0.5, 0, 0], token_reward: [0, 0, 0, 1], delta: [0.5, 0, 0, 1], return: [1, 1, 1, 1] };
  const [value, , , whole] = OF_TOKENS;
  const rows = facts(rollout({ values }), 1, value).filter(({ name }) => OF_TOKENS.some(({ label }) => label === name));
  equal(rows.map(({ name, value }) => `${name}: ${value}`), [
    "value V: +0.5000",
    "token reward ρ: 0.0000",
    "temporal difference δ: 0.0000",
    "return G: +1.0000",
  ]);
  equal(rows.filter(({ shown }) => shown).length, 1);
  equal([whole.token(rollout({ values }), 0), value.has({ rollouts: [rollout()] })], [1, false]);
});

Deno.test("facts of a token, and which of them it is coloured by", () => {
  const rows = facts(rollout(), 2, advantage);
  equal(rows.map(({ name, value }) => `${name}: ${value}`), [
    "advantage: \u22122.0000",
    "step: 2 of 2",
    "step score: –",
    "log-prob: \u22120.300  p 0.741",
    "token: 2  id 3",
  ]);
  equal(rows.filter(({ shown }) => shown).map(({ name }) => name), ["advantage"]);
});

Deno.test("two schemes have a row each where they differ", () => {
  const twin = { ...rollout(), advantages: [1, -1, 2, -2] };
  const names = facts({ ...rollout(), twin }, 0, advantage).map(({ name, value }) => `${name}: ${value}`);
  equal(names.slice(0, 2), ["advantage A: +1.0000", "advantage B: +1.0000"]);
  equal(names.filter((text) => text.startsWith("normalised")), ["normalised: +0.5000"]);
});

Deno.test("a quoted token shows what cannot be seen", () => {
  equal([quoted("a\n"), quoted("\u202e"), quoted("")], ['"a\\n"', '"\\u202e"', "no character of its own"]);
  equal(quoted("x".repeat(300)), `"${"x".repeat(200)}…"`);
});

Deno.test("equal totals share a rank; what is not scored has none", () => {
  const step = (reward) => ({ reward });
  const rollouts = [{ steps: [step(1)], outcome: 1 }, { steps: [step(2)] }, { steps: [step(3)] }, {
    steps: [step(null)],
  }, {}];
  rank(rollouts);
  equal(rollouts.map((r) => r.rank), [2, 2, 1, null, null]);
});

Deno.test("what was logged of a step and of the completion is said beside a token", () => {
  const { steps } = rollout();
  const judged = { ...steps[0], logged: [["judge", "reason", "adds up"], ["judge", "quote", "3 + 4"]] };
  const r = rollout({ steps: [judged, steps[1]], logged: [["length", "words", 3]] });
  equal(remarksOf(r, 0).map(({ name, text }) => `${name}: ${text}`), [
    "judge, reason: adds up",
    "judge, quote: “3 + 4”",
    "length, words: 3",
  ]);
  equal(remarksOf(r, -1).length, 1);
});
