import {
  copyMarks,
  drawn,
  equalTo,
  firstOf,
  isLeftOut,
  keyOf,
  named,
  scoredAlike,
} from "../../workbench/views/drawing/copies.js";
import { equal } from "./assert.js";
import { rollout } from "./rollout.js";

// Rollouts 2, 5 and 6 of six are equal, and so are 3 and 4.
const group = (more = {}) => {
  const copies = [undefined, undefined, undefined, 2, 1, 1];
  const rollouts = copies.map((copyOf, g) => ({ ...rollout({ ids: [copyOf ?? g] }), copyOf }));
  return { prompt: "", rollouts, ...more };
};

Deno.test("copies belong to the first one they equal", () => {
  const data = group();
  equal([0, 1, 2, 3, 4, 5].map((g) => firstOf(data, g)), [0, 1, 2, 2, 1, 1]);
  equal([equalTo(data, 0), equalTo(data, 1), equalTo(data, 5)], [[0], [1, 4, 5], [1, 4, 5]]);
});

Deno.test("a completion's copies have cards while it is unfolded, whatever its place in the next group", () => {
  const data = group();
  equal(drawn(data, new Set()), [0, 1, 2]);
  equal(drawn(data, new Set([keyOf(data.rollouts[1])])), [0, 1, 2, 4, 5]);
  equal(drawn(data, new Set(["9 false"])), [0, 1, 2]);
  const [one, cut] = [keyOf(rollout({ ids: [1, 2] })), keyOf(rollout({ ids: [1, 2], finished: true }))];
  equal([one, cut], ["1 2 false", "1 2 true"]);
});

Deno.test("rollouts by their numbers from 1", () => {
  equal([named([0]), named([1, 4, 6])], ["rollout 1", "rollouts 2, 5, 7"]);
});

Deno.test("a copy is left out where the option says so", () => {
  const dropping = { options: { drop_duplicates: true } };
  equal([isLeftOut(dropping, { copyOf: 0 }), isLeftOut(dropping, {}), isLeftOut({}, { copyOf: 0 })], [
    true,
    false,
    false,
  ]);
});

Deno.test("equal texts with other scores are told apart", () => {
  const data = group();
  equal(scoredAlike(data, [1, 4, 5]), true);
  data.rollouts[5].outcome = 0;
  equal(scoredAlike(data, [1, 4, 5]), false);
  equal(scoredAlike(data, [1, 4]), true);
});

Deno.test("a rollout without copies has no mark", () => equal(copyMarks(group(), 0, false), []));
