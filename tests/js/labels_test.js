import { agreements, labelsOfSteps, spansOf } from "../../workbench/ui/assets/labels.js";
import { equal } from "./assert.js";

const step = (start, end, score) => ({ start, end, scores: { sums: score } });
// "🙂" is two UTF-16 units and one character; the last token is the end of the sequence.
const texts = ["a🙂b", "cd", "<eos>"];
const rollout = { texts, finished: true, steps: [step(0, 4, 1), step(4, 11, 0.2)] };

Deno.test("spans count characters and leave the end of the sequence out", () => {
  equal(spansOf(rollout), [[0, 3], [3, 5]]);
  equal(labelsOfSteps(rollout, [{ start: 3, end: 5, label: -1 }, { start: 0, end: 5, label: 1 }]), [null, -1]);
});

Deno.test("a reward agrees where its score and the label say the same, neutral is not wrong, and copies count once", () => {
  const rollouts = [rollout, { ...rollout, copyOf: 0 }, { ...rollout, steps: [step(0, 4, 0), step(4, 11, null)] }];
  const data = { rewards: [{ name: "sums", kind: "step" }, { name: "answer", kind: "outcome" }], rollouts };
  const result = agreements(data, [[1, 1], [1, 1], [0, -1]]);
  equal(result.counts, [2, 1, 1]);
  equal(result.rewards, [{ name: "sums", agree: 1, of: 3 }]); // 1 and right; 0.2 against right; 0 against neutral
});
