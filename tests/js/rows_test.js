import { ofWhole, stepSaid, stepText } from "../../workbench/views/drawing/measures.js";
import {
  factText,
  isWatched,
  labelSaid,
  measuresOf,
  nameOf,
  paneTitles,
  rowsOfToken,
} from "../../workbench/views/drawing/rows.js";
import { prepare } from "../../workbench/views/drawing/tokens.js";
import { withoutRollouts } from "../../workbench/ui/assets/train/state.js";
import { equal, near } from "./assert.js";

const measure = { key: "reward", label: "implicit reward", short: "Σ reward", meaning: "…", signed: true };

// One text of two steps, "a b" with label 1 and "c d" with label 0.
const row = (additive = true, before = 0) => {
  const steps = [[0, 4, 0, 1, 1], [4, 8, 2, 3, 0]].map(([start, end, first, last, reward]) => ({
    ...{ start, end, first, last, reward, normalised: null, scores: {} },
  }));
  const rollout = {
    ...{ name: "chosen", ids: [1, 2, 3, 4], texts: ["a ", "b ", "c ", "d "], finished: false },
    ...{ logprobs: [-1, -2, -3, -4], entropies: null, matched: true, matches: [], steps },
    ...{ values: { reward: [0.5, 0.25, -1, 0] }, facts: [] },
    ...(before === null ? {} : { before: { values: { reward: [0.25, 0.5, 0, 0] }, logprobs: [-2, -2, -2, -2] } }),
  };
  return prepare({
    prompt: "?",
    rollouts: [rollout],
    measures: [{ ...measure, additive }],
    facts: [],
    step: 30,
    before,
  });
};

Deno.test("a watched row is coloured by its own measures, and by how they changed", () => {
  const data = row();
  const [r] = data.rollouts;
  const [reward, change] = measuresOf(data);
  equal([reward.key, change.key, change.label, change.one], ["reward", "change", "change since step 0", true]);
  near(ofWhole(reward, r, 0), 0.75); // the sum of 0.5 and 0.25
  near(ofWhole(reward, r.twin, 0), 0.75);
  near(ofWhole(change, r, 1), -1);
  equal(change.token(r, 1), -0.25);
  equal([stepText(reward, r, 1), stepSaid(reward, r, 1)], ["▼1.00", "implicit reward \u22121.00"]);
  const [mean] = measuresOf(row(false));
  near(ofWhole(mean, r, 0), 0.375);
  equal(stepSaid(mean, r, 0), "implicit reward +0.38");
});

Deno.test("a look that is the first one has nothing to be compared with", () => {
  const data = row(true, null);
  equal(measuresOf(data).map(({ key }) => key), ["reward"]);
  equal(data.rollouts[0].twin, undefined);
});

Deno.test("numbers of a watched row in words", () => {
  const data = row();
  const [r] = data.rollouts;
  equal(factText({ name: "margin", value: 1.625, before: 0 }), "0.00 → 1.63");
  equal(factText({ name: "margin", value: -1, before: null }), "\u22121.00");
  equal([isWatched(r), isWatched({}), nameOf(data, 0)], [true, false, "chosen"]);
  equal(labelSaid(r, 1), "step 2 of 2, label 0");
  equal(paneTitles(data), [["now", "step 30"], ["before", "step 0"]]);
  equal(rowsOfToken(r, 2), [["implicit reward", "\u22121.0000", "reward"], ["before", "0.0000", "reward"]]);
});

Deno.test("a run that samples nothing says what there is to see", () => {
  equal(withoutRollouts({ method: "grpo", has_rollouts: true }, true), "");
  equal(
    withoutRollouts({ method: "dpo", has_rollouts: false }, false),
    "DPO doesn’t sample. Its curves are all there is to see.",
  );
  equal(withoutRollouts({ method: "dpo", has_rollouts: false }, true).includes("held-out rows"), true);
});
