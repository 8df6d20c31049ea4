import { lossFormula, lossParts } from "../../workbench/views/drawing/formula.js";
import { noiseOf, readRollout, settingsFor, tokenLosses } from "../../workbench/views/drawing/loss.js";
import { MEASURES, ofWhole, stepText } from "../../workbench/views/drawing/measures.js";
import { equal, near } from "./assert.js";
import { rollout } from "./rollout.js";

const LOSS = {
  type: "grpo",
  epsilon: 0.2,
  epsilon_high: 0.2,
  delta: null,
  beta: 0.1,
  kl_times_ratio: false,
  sequence_ratio: false,
  sapo_temperatures: [1, 1.05],
  vespo_k: [2, 3],
  vespo_lambda: [3, 2],
  passes: [{ step: 3, number: 1, total: 0.5, logged: 0.5 }],
};
const textOf = (parts) => parts.map((part) => typeof part === "string" ? part : part.text).join("");

Deno.test("a token of the loss by hand", () => {
  // A = 2, ρ = e^0.5 clipped to 1.2, c = 0.25; d = 0.5, k3 = e^0.5 − 1.5: 0.25 (−2.4 + 0.1 · 0.14872).
  const row = { advantages: [2], logprobs: [-1], old: [-1.5], reference: [-0.5], normaliser: 0.25 };
  const token = tokenLosses(LOSS, row);
  near(token.contribution[0], 0.25 * (-2.4 + 0.1 * (Math.exp(0.5) - 1.5)));
  near(token.push[0], 0.025 * (Math.exp(0.5) - 1)); // the bound leaves the KL's alone
  equal(token.clipped, [1]);
});

Deno.test("another loss has its own cap, the clip range stays the run's", () => {
  equal(settingsFor(LOSS, "cispo").epsilon_high, 5);
  equal(settingsFor({ ...LOSS, type: "cispo", epsilon_high: 5 }, "dapo").epsilon_high, 0.2);
});

Deno.test("a rollout is read in the pass that is asked for, and on policy without one", () => {
  const passes = [{ logprobs: [-0.1, -0.2, -0.3, -0.4], old: null }, { logprobs: [0, 0, 0, 0], old: [-1, 0, 0, 0] }];
  const r = rollout({ loss: { coefficients: { grpo: 0.5 }, passes, sampled: [1, 1, 1, 0] } });
  equal(readRollout({ ...LOSS, beta: 0 }, r, 0).contribution, [-0.5, -0.5, 1, 0]); // A = 1, 1, −2 and a tool's token
  near(readRollout({ ...LOSS, beta: 0 }, r, 1).contribution[0], -0.6);
  const paid = structuredClone(r.loss);
  paid.passes[1].bonus = [-0.25, 0, 0, 0]; // of an entropy bonus
  const read = readRollout({ ...LOSS, beta: 0 }, { ...r, loss: paid }, 1);
  near(read.contribution[0], -0.85);
  near(read.push[0], readRollout({ ...LOSS, beta: 0 }, r, 1).push[0]);
  const left = rollout({ loss: { coefficients: { grpo: 0.5 }, passes: [{ logprobs: null, old: null }] } });
  equal(readRollout(LOSS, left, 0).contribution.map(Math.abs), [0, 0, 0, 0]);
  equal(readRollout(LOSS, rollout(), 0), null); // nothing is known of its loss
});

Deno.test("a step has the sum of its tokens' contributions, with two figures", () => {
  const contribution = MEASURES.find(({ key }) => key === "contribution");
  const r = { ...rollout(), read: { a: { contribution: [0.001, 0.0002345, -1e-7, 0] }, b: null } };
  near(ofWhole(contribution, r, 0), 0.0012345);
  equal([stepText(contribution, r, 0), stepText(contribution, r, 1)], ["+0.0012", "\u22121e\u22127"]);
});

Deno.test("formulas have the token's numbers in their places", () => {
  equal(lossFormula(LOSS, "dapo"), "c (−min(ρ A, clip(ρ) A) + β k₃)");
  const token = {
    ratio: [1.5],
    factor: [1.2],
    clipped: [1],
    kl: [0.002],
    contribution: [-0.0123],
    push: [0],
    normaliser: 0.01,
  };
  const written = lossParts(LOSS, "dapo", token, { ...rollout({ advantages: [1, 1, 1, 1] }) }, 0, {
    logp: -1,
    weight: 1,
  });
  equal(textOf(written), "= 0.01 (−1.2000 · +1.0000 + 0.1 · 0.02) = \u22120.0123");
});

Deno.test("rounding is what the first pass and the sampler differ by, over what was sampled", () => {
  const seen = (logprobs) => ({ loss: { passes: [{ logprobs }] } });
  const rows = [
    { logprobs: [-1, -2, -3], ...seen([-1.1, -1.9, -3]) },
    { raw: [-1, -5], logprobs: [-9, -9], observed: [0, 1], ...seen([-1, -9]) },
    { logprobs: [-7], ...seen(null) }, // its advantages are all 0
  ];
  near(noiseOf(rows, LOSS), Math.sqrt(0.02 / 4)); // off by -0.1, 0.1, 0, 0
  equal(noiseOf(rows, { passes: [{ number: 2 }] }), 0);
});
