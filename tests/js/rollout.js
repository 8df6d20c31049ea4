import { prepare } from "../../workbench/views/drawing/tokens.js";

// A rollout of "3 + 4 = 7;" in the tokens "3 +", " 4", " = 7", ";", two steps of which the second begins inside a token.
export const rollout = (more = {}) => {
  const payload = {
    ids: [1, 2, 3, 4],
    texts: ["3 +", " 4", " = 7", ";"],
    finished: false,
    logprobs: [-0.1, -0.2, -0.3, -0.4],
    entropies: null,
    advantages: [1, 1, -2, -2],
    matched: true,
    steps: [
      { start: 0, end: 6, first: 0, last: 1, reward: 1, normalised: 0.5, scores: { check: 1 } },
      { start: 6, end: 10, first: 2, last: 3, reward: null, normalised: null, scores: { check: null } },
    ],
    outcome: 1,
    outcomes: {},
    matches: [[0, 1], [8, 9]],
    ...more,
  };
  return prepare({ prompt: "", rollouts: [payload] }).rollouts[0];
};
