import { Cuts, laterOf, lineWidth, partsOf, prepare, runsOf } from "../../workbench/views/drawing/tokens.js";
import { equal } from "./assert.js";
import { rollout } from "./rollout.js";

Deno.test("tokens know their offsets and their step", () => {
  const { offsets, stepOf } = rollout();
  equal([...offsets], [0, 3, 5, 9, 10]);
  equal([...stepOf], [0, 0, 1, 1]);
});

Deno.test("a card is as wide as the longest line of a step, and no wider than can be read", () => {
  const widthOf = (...texts) => lineWidth({ rollouts: [rollout({ ids: [1, 2, 3, 4], texts })] });
  equal(widthOf("Step", " one", "two", "\n34"), 9); // two steps of two tokens; the line's end has a sign
  equal(widthOf("a\nbcd", "e", "f", ""), 5);
  equal(widthOf("値段", "🎈", "", ""), 7); // six columns of three wide characters
  equal(widthOf("x".repeat(80), "", "", ""), 81);
  equal(widthOf("x".repeat(200), "", "", ""), 57);
  const turns = [{ role: "tool", sampled: false, start: 0, end: 2 }, {
    role: "assistant",
    sampled: true,
    start: 2,
    end: 4,
  }];
  equal(lineWidth({ rollouts: [rollout({ turns, texts: ["x".repeat(70), "", "ab", "c"] })] }), 4);
});

Deno.test("a token is cut where a step and where a match begin inside it", () => {
  const r = rollout();
  const cuts = new Cuts(r);
  const parts = [0, 1, 2, 3].map((t) => partsOf(r, t, cuts));
  const plain = { match: false, astray: false, opens: null };
  equal(parts[0], [{ text: "3", match: true, astray: false, opens: null }, { text: " +", ...plain }]);
  equal(parts[1], [{ text: " 4", ...plain }]);
  // Its first character is still of step 1, the token of step 2; "7" is a match.
  equal(parts[2], [
    { text: " ", match: false, astray: true, opens: null },
    { text: "= ", ...plain },
    { text: "7", match: true, astray: false, opens: null },
  ]);
  equal(parts[3], [{ text: ";", ...plain }]);
});

Deno.test("characters of a step that begins in another step's token carry its number", () => {
  const steps = [
    { start: 0, end: 4, first: 0, last: 1, reward: 0, normalised: 0, scores: {} },
    { start: 4, end: 10, first: 2, last: 3, reward: 0, normalised: 0, scores: {} },
  ];
  const r = rollout({ steps, matches: [] });
  const cuts = new Cuts(r);
  partsOf(r, 0, cuts);
  equal(partsOf(r, 1, cuts).map(({ text, opens }) => [text, opens]), [[" ", null], ["4", 2]]);
});

Deno.test("special characters stand alone, whole ones of two code units do not", () => {
  equal(runsOf("a\n\tb").map(({ kind, text }) => [kind, text]), [["", "a"], ["nl", "\n"], ["tab", "\t"], ["", "b"]]);
  equal(runsOf("😀\ufffd").map(({ kind }) => kind), ["", "bad"]);
  equal(runsOf("x\ud800\u202ey").map(({ kind }) => kind), ["", "hidden-character", "hidden-character", ""]);
});

Deno.test("a second scheme's rollout shares the texts and has its own terms", () => {
  const twin = { advantages: [0, 0, 0, 0], steps: rollout().steps };
  const [r] = prepare({ prompt: "", rollouts: [{ ...rollout(), why: [], twin }] }).rollouts;
  equal([r.twin.texts === r.texts, r.twin.why, r.twin.twin], [true, undefined, null]);
});

Deno.test("a step is told what later ones add to it; unscored ones add nothing", () => {
  const steps = [1, -2, null, 0.5, 4].map((normalised) => ({ normalised }));
  equal(laterOf(steps, { carry: "suffix" }), [2.5, 4.5, 4.5, 4, 0]);
  equal(laterOf(steps, { carry: "suffix", options: { gamma: 0.5 } }), [-0.6875, 0.625, 1.25, 2, 0]);
  equal(laterOf(steps, { carry: "mean" }), [2.5 / 4, 4.5 / 3, 4.5 / 2, 2, 0]);
  equal(laterOf(steps, { carry: "own" }), undefined);
});

Deno.test("a step is wrong by a label, else by the reward that says so, which is named", () => {
  const step = (score, label) => ({ start: 0, end: 3, first: 0, last: 0, reward: 1, scores: { right: score }, label });
  const steps = [step(0, null), step(1, null), step(1, false), step(0, true), step(null, null)];
  const payload = { prompt: "", rewards: [], judges: { step: "right" }, rollouts: [{ ...rollout(), steps }] };
  equal(prepare(payload).rollouts[0].wrong, ["right", "", "your label", "", ""]);
});
