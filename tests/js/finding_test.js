import { asksForSearch } from "../../workbench/views/drawing/finder.js";
import { arranged, filtersOf, judge, missed } from "../../workbench/views/drawing/finding.js";
import { placesOf } from "../../workbench/views/drawing/marking.js";
import { moved } from "../../workbench/views/drawing/overview.js";
import { equal } from "./assert.js";
import { rollout } from "./rollout.js";

const REWARDS = [
  { name: "length", kind: "outcome", weight: 1 },
  { name: "answer", kind: "outcome", weight: 1 },
];

// Five rollouts; the fourth is a copy of the second. Right: 1st and 5th; cut off: 3rd; the second scheme turns a sign in
// the 5th. Lengths 4, 2, 6, 2, 1; mean advantages −0.5, 1, 0, 1, −3; ranks 1, 3, 5, 3, 2.
function group() {
  const of = (answer, length, texts, advantages, rank, more = {}) => ({
    ...rollout({ finished: true, texts, advantages, steps: [], ids: texts.map((_, i) => i + length) }),
    outcomes: { length, answer },
    rank,
    ...more,
  });
  return {
    prompt: "",
    rewards: REWARDS,
    judges: { step: null, outcome: "answer" },
    rollouts: [
      of(1, 0.5, ["3 +", " 4", " = 7", ";"], [-1, -1, 0, 0], 1),
      of(0, 0.2, ["ab", "c"], [1, 1], 3),
      of(0, 0.9, ["x", "Y", "z", "x", "y", "z"], [0, 0, 0, 0, 0, 0], 5, { finished: false }),
      of(0, 0.2, ["ab", "c"], [1, 1], 3, { copyOf: 1 }),
      of(1, 0.1, ["q"], [-3], 2, { twin: { advantages: [2] } }),
    ],
  };
}

const show = (data, { places = [0, 1, 2, 4], order = "sampled", filter = "", text = "" } = {}) =>
  arranged(data, places, order, { filter, text });

Deno.test("the outcome reward that says so tells right from wrong", () => {
  const data = group();
  equal(judge(data), "answer");
  equal(data.rollouts.map(({ right }) => right), [true, false, false, false, true]);
  const counts = filtersOf(data).map(({ key, count }) => [key, count]);
  equal(counts, [["right", 2], ["wrong", 3], ["truncated", 1], ["differs", 1]]);
});

Deno.test("where no reward judges, nothing is right or wrong", () => {
  const data = { ...group(), rewards: REWARDS.slice(0, 1), judges: undefined };
  equal(judge(data), null);
  equal(data.rollouts.map(({ right }) => right), [null, null, null, null, null]);
  equal(filtersOf(data).map(({ count }) => count), [0, 0, 1, 1]);
});

Deno.test("an answer that was not scored is neither", () => {
  const data = group();
  data.rollouts[0].outcomes.answer = null;
  judge(data);
  equal(data.rollouts.map(({ right }) => right), [null, false, false, false, true]);
});

Deno.test("what surprises comes first; where nothing is known of that, as sampled", () => {
  equal(show({ ...group(), order: [2, 4, 0, 1, 3] }, { order: "surprise" }).places, [2, 4, 0, 1]);
  equal(show(group(), { order: "surprise" }).places, [0, 1, 2, 4]);
});

Deno.test("orders: as sampled, by rank, by length, by mean advantage; equal ones as sampled", () => {
  const data = group();
  const orders = ["sampled", "best", "length", "advantage"];
  equal(orders.map((order) => show(data, { order }).places), [[0, 1, 2, 4], [0, 4, 1, 2], [2, 0, 1, 4], [1, 2, 0, 4]]);
  equal(show(data, { places: [0, 1, 2, 3, 4], order: "length" }).places, [2, 0, 1, 3, 4]);
});

Deno.test("what is shown, with a copy on its original's card and counted", () => {
  const data = group();
  judge(data);
  const { shown, fitting } = show(data, { filter: "wrong" });
  equal([shown, fitting], [[1, 2], [1, 2, 3]]);
  equal(show(data, { filter: "right", text: "Q" }).shown, [4]);
  equal(show(data, { text: "xyz" }).shown, [2]); // across tokens, in whatever case
  equal(show(data, { filter: "right", text: "xyz" }).shown, []);
  equal(show(data, { places: [0, 1, 2, 3, 4], text: "abc" }).shown, [1, 3]);
  equal(missed({ filter: "right", text: "xyz" }), "No rollout is “right” and contains “xyz”. ");
  equal(missed({ filter: "", text: "xyz" }), "No rollout contains “xyz”. ");
});

Deno.test("arrows in the overview stay inside it", () => {
  const steps = [3, 1, 2];
  const from = { column: 0, k: 2 };
  equal(moved(steps, from, "ArrowRight"), { column: 1, k: 0 });
  equal(moved(steps, from, "ArrowLeft"), from);
  equal(moved(steps, from, "ArrowUp"), { column: 0, k: 1 });
  equal(moved(steps, from, "ArrowDown"), from);
  equal(moved(steps, from, "End"), { column: 2, k: 1 });
  equal(moved(steps, { column: 2, k: 0 }, "Home"), { column: 0, k: 0 });
});

Deno.test("what is searched for is marked where it stands", () => {
  equal(placesOf("abAB ab", "Ab"), [0, 2, 5]);
  equal(placesOf("aaa", "aa"), [0]);
  equal([placesOf("abc", ""), placesOf("İab", "ab")], [[], []]);
});

Deno.test("a slash asks for the search, but not in a field, a notebook or an overlaid key", () => {
  const root = (visible) => ({ contains: () => false, offsetParent: visible ? {} : null });
  const press = (inside, more = {}) => ({ key: "/", target: { closest: (names) => names.includes(inside) }, ...more });
  equal(asksForSearch(press("nowhere"), root(true)), true);
  equal(asksForSearch(press("nowhere"), root(false)), false);
  equal(asksForSearch(press("textarea"), root(true)), false);
  equal(asksForSearch(press(".jp-Notebook"), root(true)), false);
  equal(asksForSearch(press("nowhere", { ctrlKey: true }), root(true)), false);
  equal(asksForSearch(press("nowhere", { key: "s" }), root(true)), false);
});
