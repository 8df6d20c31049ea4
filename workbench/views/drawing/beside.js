// The same prompt's answers at two training steps, side by side, with what differs marked.

/** @import { GroupPayload } from "../payloads.d.ts" */
/** @import { Credited, Prepared } from "./payload.js" */
/** @typedef {{ text: string, differs: boolean }} Piece a stretch of a text that the other one has too, or lacks */

import { el } from "../dom.js";
import { count, score } from "../numbers.js";
import { judge } from "./finding.js";
import { prepare } from "./tokens.js";

const MOST = 4e6; // pairs of words that are compared; longer texts differ in one stretch

/** @param {string} text Words, with the spaces behind them. */
const wordsOf = (text) => text.match(/\S+\s*|\s+/g) ?? [];

/**
 * What two texts have in common, word by word: a longest common subsequence between what they begin and end with.
 * @param {string} before @param {string} now @returns {[Piece[], Piece[]]}
 */
export function differences(before, now) {
  const [a, b] = [wordsOf(before), wordsOf(now)];
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < Math.min(a.length, b.length) - head && a.at(-1 - tail) === b.at(-1 - tail)) tail++;
  const [first, second] = [a, b].map((words) => words.slice(head, words.length - tail));
  const common = commonWords(first, second);
  const marked = (/** @type {string[]} */ words, /** @type {Set<number>} */ same) =>
    merged(words.map((text, i) => ({
      text,
      differs: i >= head && i < words.length - tail && !same.has(i - head),
    })));
  return [marked(a, new Set(common.map(([i]) => i))), marked(b, new Set(common.map(([, j]) => j)))];
}

/** @param {string[]} a @param {string[]} b @returns {[number, number][]} Places of a longest common subsequence. */
function commonWords(a, b) {
  if (a.length * b.length > MOST) return [];
  const width = b.length + 1;
  const lengths = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      lengths[i * width + j] = a[i] === b[j]
        ? lengths[(i + 1) * width + j + 1] + 1
        : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
    }
  }
  /** @type {[number, number][]} */
  const places = [];
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i] === b[j]) places.push([i++, j++]);
    else if (lengths[(i + 1) * width + j] >= lengths[i * width + j + 1]) i++;
    else j++;
  }
  return places;
}

/** @param {Piece[]} pieces Neighbours of one kind as one. */
function merged(pieces) {
  /** @type {Piece[]} */
  const whole = [];
  for (const { text, differs } of pieces) {
    const last = whole.at(-1);
    if (last && last.differs === differs) last.text += text;
    else whole.push({ text, differs });
  }
  return whole;
}

/**
 * How answers changed from one step to another, in counts.
 * @param {Pick<Credited, "right" | "texts">[]} before @param {Pick<Credited, "right" | "texts">[]} now
 */
export function changes(before, now) {
  const pairs = now.flatMap((rollout, g) => (before[g] ? [{ was: before[g], is: rollout }] : []));
  const judged = pairs.filter(({ was, is }) => typeof was.right === "boolean" && typeof is.right === "boolean");
  const of = (/** @type {boolean} */ was, /** @type {boolean} */ is) =>
    judged.filter((pair) => pair.was.right === was && pair.is.right === is).length;
  const same = pairs.filter(({ was, is }) => was.texts.join("") === is.texts.join("")).length;
  return {
    becameRight: of(false, true),
    becameWrong: of(true, false),
    right: of(true, true),
    same,
    judged: judged.length,
  };
}

/** @param {Credited} rollout */
const textOf = ({ texts, finished }) => texts.slice(0, finished ? -1 : texts.length).join("");

/** @param {Credited} rollout */
function headOf({ right, outcome, steps }) {
  const rewards = (steps ?? []).map(({ reward }) => reward).filter((reward) => reward !== null);
  const sum = rewards.length ? `Σr ${score(rewards.reduce((a, b) => a + b, 0))}` : "";
  const verdict = typeof right === "boolean" ? (right ? "✓ right" : "⊘ wrong") : "";
  return [verdict, (outcome ?? null) === null ? "" : `R ${score(outcome)}`, sum].filter(Boolean).join(" · ");
}

/** @typedef {{ text: string, right?: boolean | null, about: string }} Side an answer, and what is said of it */

/** @param {Credited} rollout @returns {Side} */
const sideOf = (rollout) => ({ text: textOf(rollout), right: rollout.right, about: headOf(rollout) });

/** @param {string} text Marked, but for the space behind it: through that, a line would look like a minus. */
function marked(text) {
  const words = text.trimEnd();
  return [el("mark", {}, words), text.slice(words.length)];
}

/** @param {Side} was @param {Side} is @param {string} name @param {[number, number]} steps Both answers, what differs marked. */
export function pairElement(was, is, name, steps) {
  const texts = differences(was.text, is.text);
  const sides = [was, is].map((side, i) =>
    el(
      "div",
      { class: "side" },
      el("h4", {}, `step ${steps[i]} `, el("span", {}, side.about)),
      el("pre", { class: "text" }, ...texts[i].flatMap(({ text, differs }) => differs ? marked(text) : [text])),
    )
  );
  const turned = typeof was.right === "boolean" && typeof is.right === "boolean" && was.right !== is.right;
  const said = turned ? (is.right ? "became right" : "became wrong") : was.text === is.text ? "same text" : "";
  const title = el("h3", {}, `${name} `, el("span", {}, said));
  return el("article", { class: "changed", "aria-label": `${name} at both steps` }, title, ...sides);
}

/**
 * @param {GroupPayload} before @param {GroupPayload} now the same prompt's answers, drawn with the same seed
 * @param {[number, number]} steps @returns {HTMLElement[]}
 */
export function beside(before, now, steps) {
  const [was, is] = [before, now].map((payload) => prepare(structuredClone(payload)));
  for (const data of [was, is]) judge(data);
  const { becameRight, becameWrong, right, same, judged } = changes(was.rollouts, is.rollouts);
  const verdicts = judged ? `${becameRight} became right, ${becameWrong} became wrong, ${right} right at both; ` : "";
  const line = el("p", { class: "about" }, `${verdicts}${count(same, "answer")} of ${is.rollouts.length} unchanged.`);
  const pairs = is.rollouts.flatMap((rollout, g) =>
    was.rollouts[g] ? [pairElement(sideOf(was.rollouts[g]), sideOf(rollout), `rollout ${g + 1}`, steps)] : []
  );
  return [line, el("div", { class: "changes" }, ...pairs)];
}
