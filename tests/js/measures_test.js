import { endsOf, swatchTitle } from "../../workbench/views/drawing/legend.js";
import { MEASURES, ofWhole, rangeOf, stepSaid, stepText, tint } from "../../workbench/views/drawing/measures.js";
import { equal, near } from "./assert.js";
import { rollout } from "./rollout.js";

const measure = (key) => MEASURES.find((candidate) => candidate.key === key);

Deno.test("a colour scale has ten bins each side and none for what rounds to zero", () => {
  const both = measure("advantage"), positive = measure("entropy");
  equal([0.04, 0.05, 0.5, 1, 7, -1, null].map((value) => tint(value, 1, both)), [
    "",
    "p s1",
    "p s5",
    "p s10",
    "p s10",
    "n s10",
    "",
  ]);
  equal([tint(0.5, 1, positive), tint(0.5, 0, positive)], ["q s5", ""]);
});

Deno.test("a scale ends at the 98th percentile of the sizes, or where it is held", () => {
  const advantages = Array.from({ length: 100 }, (_, i) => (i === 50 ? -1000 : i));
  const r = { ...rollout(), texts: advantages.map(() => "x"), advantages };
  // Sizes 0 … 49, 51 … 99 and 1000: floor(0.98 · 99) = 97, and the 98th of them from below is 98.
  equal(rangeOf([r], measure("advantage")), { limit: 98, ofSteps: 98, below: true, above: true });
  equal(rangeOf([r], measure("advantage"), 2000), { limit: 2000, ofSteps: 2000, below: false, above: false });
});

Deno.test("steps that have their tokens' sum are coloured on a scale of their own", () => {
  const r = { ...rollout(), read: { a: { push: [1, 1, -0.5, -0.5] }, b: null } };
  const range = rangeOf([r], measure("push"));
  equal([range.limit, range.ofSteps], [1, 2]);
  equal([0, 1].map((k) => tint(ofWhole(measure("push"), r, k), range.ofSteps, measure("push"))), ["p s10", "n s5"]);
  equal(rangeOf([r], measure("push"), 0.5).ofSteps, 1); // the tokens' end set to half of it
});

Deno.test("blue is what makes a token more likely: a contribution below zero, a push above", () => {
  equal(tint(-1, 1, measure("contribution")), "p s10");
  equal(tint(1, 1, measure("contribution")), "n s10");
  equal(tint(1, 1, measure("push")), "p s10");
});

Deno.test("a step has its last token's advantage, and its tokens' mean log-probability", () => {
  const r = rollout();
  equal(ofWhole(measure("advantage"), r, 1), -2);
  near(ofWhole(measure("logprob"), r, 1), -0.35);
  equal([stepText(measure("advantage"), r, 1), stepText(measure("reward"), r, 1)], ["▼2.00", "–"]);
  equal(stepText(measure("advantage"), { ...r, advantages: [0, 0, 0, -0.004] }, 1), "0.00"); // reads as 0: no arrow
  equal(stepText(measure("advantage"), { ...r, counted: false }, 1), "0.00"); // the loss leaves it out
  equal(stepSaid(measure("logprob"), r, 0), "mean log-prob \u22120.150");
});

Deno.test("measures against a reference policy", () => {
  const raw = [-0.1, -0.2, -0.3, -0.4]; // with a penalty, say, what was sampled from had others
  const logprobs = [-0.2, -3, -1, -0.1];
  const r = rollout({ logprobs, raw, reference: [-0.1, -0.2 + 1e-5, -0.3 + Math.log(2), -0.4] });
  near(measure("kl").token(r, 2), 2 - Math.log(2) - 1);
  near(measure("ratio").token(r, 2), -Math.log(2));
  equal(measure("kl").token(r, 1), 0); // within the rounding of the payload
});

Deno.test("the trainer's log-probabilities against the sampler's", () => {
  const r = rollout({ logprobs: [-0.2, -3, -1, -0.1], raw: [-0.1, -3 - 1e-5, -1, -0.4] });
  near(measure("mismatch").token(r, 0), 0.1);
  equal([1, 2].map((t) => measure("mismatch").token(r, t)), [0, 0]); // within the rounding of the payload
  equal(measure("mismatch").has({ prompt: "", rollouts: [r] }), true);
  equal(measure("mismatch").has({ prompt: "", rollouts: [rollout({ logprobs: [-1], raw: [-1] })] }), false);
});

Deno.test("a measure is offered where a group has it", () => {
  const data = { prompt: "", rollouts: [rollout()] };
  equal(MEASURES.filter((candidate) => candidate.has(data)).map(({ key }) => key), [
    "advantage",
    "reward",
    "normalised",
    "logprob",
  ]);
});

Deno.test("swatches and ends say the values they stand for", () => {
  const both = { signed: true }, down = { signed: false, negative: true };
  equal(swatchTitle(0, 1, both), "\u22120.05 to +0.05");
  equal(swatchTitle(10, 1, both), "+0.95 and above");
  equal(swatchTitle(10, 1, down), "\u22120.95 and below");
  equal(endsOf(both, { limit: 1.234, below: true, above: false }), { low: "≤ \u22121.23", high: "+1.23" });
  equal(endsOf(down, { limit: 1, below: true, above: false }), { low: "0", high: "≤ \u22121" });
});
