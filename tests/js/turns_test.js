import { filtersOf, fits, missed, ordered } from "../../workbench/views/drawing/finding.js";
import { MEASURES, rangeOf } from "../../workbench/views/drawing/measures.js";
import { isLong, observationAt, sampledLength, timeSaid, turnSaid } from "../../workbench/views/drawing/turns.js";
import { facts } from "../../workbench/views/drawing/why.js";
import { equal } from "./assert.js";
import { rollout } from "./rollout.js";

const turn = (role, start, end, more = {}) => ({
  role,
  sampled: role === "assistant",
  start,
  end,
  seconds: 0,
  error: null,
  note: "",
  ...more,
});

// "3 +" and " 4" are a call, answered by " = 7"; ";" is the second turn.
const episode = (more = {}) =>
  rollout({
    turns: [
      turn("assistant", 0, 2, { calls: ["sum"], isCall: true, seconds: 0.5 }),
      turn("environment", 2, 3, { seconds: 0.25, note: "cut" }),
      turn("assistant", 3, 4, { seconds: 1, error: "no reply" }),
    ],
    advantages: [1, 1, 0, -3],
    steps: [
      { start: 0, end: 5, first: 0, last: 1, reward: 1, normalised: 0.5, scores: {} },
      { start: 9, end: 10, first: 3, last: 3, reward: 0, normalised: -0.5, scores: {} },
    ],
    ...more,
  });

Deno.test("observations are no part of a length, of a scale or of what is known of a token", () => {
  const r = episode({ logprobs: [-1, -2, 0, -4] });
  equal([...r.observed], [0, 0, 1, 0]);
  equal(sampledLength(r), 3);
  equal([observationAt(r, 1), observationAt(r, 2)?.role], [undefined, "environment"]);
  equal(facts(r, 2, MEASURES[0]).map(({ name, value }) => [name, value]), [
    ["written by", "environment"],
    ["token", "2  id 3"],
  ]);
  const odd = { ...MEASURES[0], token: (_, t) => [1, 1, 99, 2][t] };
  equal(rangeOf([r], odd), { limit: 1, ofSteps: 1, below: false, above: true }); // of 1, 1, 2
});

Deno.test("a chip says the turn, its call, its error and its note", () => {
  const { turns } = episode();
  equal(turns.map((_, i) => turnSaid(turns, i)), [
    "turn 1 · call sum",
    "environment · cut",
    "turn 2 · error: no reply",
  ]);
  equal(timeSaid({ turns }), "Sampling took 1.50 s, the environment 0.25 s");
  equal(timeSaid({ turns: [turn("assistant", 0, 4)] }), "");
});

Deno.test("observations of more than three lines are folded", () => {
  equal([isLong("a\nb\nc\n"), isLong("a\nb\nc\nd"), isLong("x".repeat(301))], [false, true, true]);
});

Deno.test("episodes are filtered by errors, turns and tools, and their observations are searched", () => {
  const short = rollout({ turns: [turn("assistant", 0, 4)] });
  const data = { prompt: "", rollouts: [episode(), short] };
  const counts = filtersOf(data).flatMap(({ key, count }) => count ? [[key, count]] : []);
  equal(counts.filter(([key]) => key !== "truncated"), [
    ["error", 1],
    ["turns:1", 1],
    ["turns:2", 1],
    ["calls:sum", 1],
    ["no-call", 1],
  ]);
  const shown = (filter, text = "") => data.rollouts.map((r) => fits(r, { filter, text }));
  equal([shown("error"), shown("turns:1"), shown("calls:sum")], [[true, false], [false, true], [true, false]]);
  equal(shown("no-call", "= 7"), [false, true]);
  equal(missed({ filter: "turns:9", text: "" }), "No rollout has “9 turns”. ");
  // Lengths 3 and 4; mean advantages −1/3 and −0.5.
  equal([ordered(data, [0, 1], "length"), ordered(data, [0, 1], "advantage")], [[1, 0], [0, 1]]);
});
