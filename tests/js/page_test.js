import { choiceOf, linkIn, pinAsked, placeOf } from "../../workbench/ui/assets/address.js";
import { byGain, gainText, remedyOf, verdict } from "../../workbench/ui/assets/checks.js";
import { isAbout, sumText, termCells } from "../../workbench/ui/assets/help.js";
import { sameAnswers } from "../../workbench/ui/assets/inspect.js";
import { askedIn } from "../../workbench/views/drawing/said.js";
import { policyText } from "../../workbench/ui/assets/page.js";
import { scaleOf } from "../../workbench/ui/assets/picture.js";
import { barsOf } from "../../workbench/ui/assets/statistics.js";
import { equal, near } from "./assert.js";
import { rollout } from "./rollout.js";

Deno.test("a pin in the address names a step by its last token, and a token inside it besides", () => {
  const r = rollout(); // steps of the tokens 0-1 and 2-3
  equal(placeOf(r, { g: 1, t: 3 }, "advantage"), { rollout: 2, k: 2 });
  equal(placeOf(r, { g: 1, t: 2 }, "entropy"), { colour: "entropy", rollout: 2, k: 2, t: 2 });
  equal(placeOf(undefined, null, "advantage"), {});
  const outside = rollout({ steps: [] });
  equal(placeOf(outside, { g: 0, t: 2 }, "advantage"), { rollout: 1, t: 2 });
});

Deno.test("an address is read back to the same pin, and to none where it is nonsense", () => {
  const asked = (query) => pinAsked(new URLSearchParams(query), [rollout(), rollout()]);
  equal(asked("rollout=2&k=1"), { g: 1, t: 1 });
  equal(asked("rollout=2&k=2&t=2"), { g: 1, t: 2 });
  for (const query of ["", "rollout=3&k=1", "rollout=2", "rollout=2&k=9", "rollout=-1&k=1", "rollout=1e0&k=1", "k=1"]) {
    equal(asked(query), null);
  }
  equal(pinAsked(new URLSearchParams("rollout=1&t=1"), [{ texts: ["a", "b"] }]), null); // nothing is scored
});

Deno.test("of an address, the parameters of a link are kept", () => {
  const parameters = new URLSearchParams(
    "token=x&task=t&example=2&saved=&run=a&rollout=1&options=%7B%22gamma%22%3A0.5%7D",
  );
  equal(linkIn(parameters), { task: "t", example: "2", options: '{"gamma":0.5}' });
});

Deno.test("the worst level of the findings is the verdict", () => {
  const finding = (name, level) => ({ name, level, value: "3" });
  equal(verdict([finding("a", "ok"), finding("b", "check"), finding("c", "stop")]), {
    level: "stop",
    text: "Nothing would be learnt: c 3",
  });
  equal(verdict([finding("a", "ok"), finding("b", "check")]).text, "1 of 2 needs a look: b 3");
  equal(verdict([finding("a", "ok"), finding("b", "ok")]), { level: "ok", text: "2 of 2 checks pass" });
});

Deno.test("gains are signed, and marked where they pay", () => {
  const gain = (largest_gain, pays_for_no_content) => gainText({ largest_gain, pays_for_no_content });
  equal([gain(1.234, true), gain(-0.5, false), gain(0.004, false)], ["+1.23 ▲", "\u22120.50", "0"]);
  equal([gain(0.00123, true), gain(0, false), gain(null, false)], ["+0.0012 ▲", "0", "0"]);
});

Deno.test("a term with its numbers in the formula's place", () => {
  const term = {
    source: "step",
    step: 0,
    scores: { right: 1, short: null },
    weights: { right: 0.5 },
    reward: 0.5,
    raw: 0.5,
    mean: -0.25,
    std: 0.5,
    normalised: 1.4997,
    factor: 0.5,
    value: 0.74985,
  };
  equal(termCells(term), [
    "step 1",
    "0.5000 · 1 = 0.5000",
    "(0.5000 \u2212 (\u22120.2500)) / (0.5000 + 0.0001) = 1.4997",
    "× 0.5000",
    "0.7499",
  ]);
  const outcome = { ...term, source: "outcome", step: null, scores: {}, mean: null, std: null, factor: 1, raw: 2 };
  equal(termCells(outcome), ["outcome", "0.5000", "2 = 1.4997", "", "0.7499"]);
});

Deno.test("the sum, and where it is clipped", () => {
  const terms = [{ value: 2 }, { value: -0.5 }];
  equal(sumText({ terms, total: 1.5, clip: null, advantage: 1.5 }), "A = 2 + (\u22120.5000) = 1.5000");
  equal(sumText({ terms: [{ value: 2 }], total: 2, clip: 1, advantage: 1 }), "A = 2, clipped to ±1: 1");
  equal(sumText({ terms: [], total: 0, clip: null, advantage: 0 }), "A = 0");
});

Deno.test("a metric is found by its name, formula or meaning", () => {
  const metric = { name: "kl_k3", formula: "e^d − d − 1", meaning: "Distance to the reference" };
  equal(["k3", "e^d", "reference", "reward"].map((wanted) => isAbout(metric, wanted)), [true, true, true, false]);
});

Deno.test("answers are the same where their texts are, however they are cut into tokens", () => {
  const group = (prompt, ...texts) => ({ prompt, rollouts: texts.map((tokens) => ({ texts: tokens })) });
  equal(sameAnswers(group("p", ["ab"], ["c"]), group("p", ["a", "b"], ["c"])), true);
  equal(sameAnswers(group("p", ["ab"]), group("p", ["ab"], ["c"])), false);
  equal(sameAnswers(group("p", ["ab"]), group("q", ["ab"])), false);
});

Deno.test("the policy's state in words", () => {
  const status = {
    state: "ready",
    policy: "tiny",
    seconds: 3.6,
    message: "",
    device: "cpu",
    parameters: 1234567,
    decoding: "",
  };
  equal(policyText(status), "policy tiny · 1.23M parameters · cpu");
  equal(
    policyText({ ...status, policy: "/home/me/some.gguf", parameters: 134515008 }),
    "policy some.gguf · 135M parameters · cpu",
  );
  equal(policyText({ ...status, state: "loading" }), "loading policy · 4 s");
  equal(policyText({ ...status, state: "unloaded" }), "policy tiny · loads when you sample");
  equal(policyText({ ...status, state: "off" }), "");
});

Deno.test("a picture is at most as large as a canvas", () => {
  equal(scaleOf(1000, 1000), 2);
  near(scaleOf(1000, 20000), 0.8192); // 16,384 of 20,000
  near(scaleOf(12000, 12000), Math.sqrt(120 / 144));
});

Deno.test("bars of a histogram, the smallest still to be seen", () => {
  equal(barsOf([1, 0, 32]), [
    { x: 0, y: 15, width: 32 / 3 - 1, height: 1 },
    { x: 32 / 3, y: 16, width: 32 / 3 - 1, height: 0 },
    { x: 64 / 3, y: 0, width: 32 / 3 - 1, height: 16 },
  ]);
  equal(barsOf([]), []);
});

Deno.test("probes: the edit that gains most comes first, and the schemes that pay for none are named", () => {
  const row = (edit, scheme, gain, pays) => ({ edit, scheme, largest_gain: gain, pays_for_no_content: pays });
  const edits = [{ name: "a" }, { name: "b" }, { name: "none" }];
  const rows = [row("a", "process", 0.1, false), row("b", "process", 2, true), row("none", "process", null, false)];
  equal(byGain({ own: "process", edits, rows }).map(({ name }) => name), ["b", "a", "none"]);
  const others = [row("a", "outcome", 0, false)];
  const said = "outcome pays for none of these; choose one under Credit.";
  equal(remedyOf({ schemes: ["process", "outcome"], rows: [...rows, ...others] }), said);
  equal(remedyOf({ schemes: ["outcome"], rows: others }), "No scheme here pays for any of these.");
});

Deno.test("a link says which cards are shown in which order, where that is not how a drawing opens", () => {
  equal(choiceOf({ filter: "", text: "", order: "surprise" }), {});
  equal(choiceOf({ filter: "wrong", text: "a b", order: "best" }), { show: "wrong", find: "a b", order: "best" });
});

Deno.test("the title of a prompt with a chat template's marks is what the user asked last", () => {
  const qwen = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n1 + 1?<|im_end|>\n<|im_start|>assistant\n";
  const llama =
    "<|start_header_id|>user<|end_header_id|>\n\n2 + 2?<|eot_id|><|start_header_id|>assistant<|end_header_id|>";
  const gemma = "<start_of_turn>user\na<end_of_turn>\n<start_of_turn>user\n3 + 3?<end_of_turn>\n<start_of_turn>model\n";
  for (const [prompt, said] of [[qwen, "1 + 1?"], [llama, "2 + 2?"], [gemma, "3 + 3?"], [" plain ", "plain"]]) {
    equal(askedIn(prompt), said);
  }
});
