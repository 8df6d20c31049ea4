// Sentences and facts about a group or a token, as sentences.py writes them: text, with links to what a number stands for.

/** @import { GlancePayload } from "../payloads.d.ts" */
/** @import { SaidPart } from "./payload.js" */

import { el } from "../dom.js";

/**
 * One sentence. A part with a target that `follow` knows is a button that does what it returns; what stands between ** is
 * bold, and names between backticks are code.
 * @param {SaidPart[]} parts @param {(target: string) => (() => void) | null} follow
 */
export function sentence(parts, follow) {
  let isBold = false;
  return parts.flatMap(([text, target]) => {
    const go = target === null ? null : follow(target);
    return text.split("**").map((piece, i) => {
      if (i) isBold = !isBold;
      const words = piece && go
        ? [el("button", { type: "button", class: "link", "data-target": target, onclick: go }, piece)]
        : withCode(piece);
      return isBold ? el("b", {}, ...words) : el("span", {}, ...words);
    });
  });
}

const USER =
  /(?:<\|im_start\|>|<\|start_header_id\|>|<start_of_turn>)user(?:<\|end_header_id\|>)?\s([^]*?)(?:<\|im_end\|>|<\|eot_id\|>|<end_of_turn>)/g;

/** @param {string} prompt What the user asked last, where a log has the prompt with a chat template's marks. */
export const askedIn = (prompt) => ([...prompt.matchAll(USER)].at(-1)?.[1] ?? prompt).trim();

/** @param {HTMLElement} node @param {string} prompt Of one that is longer than its place the end is in sight: the question. */
export function showPrompt(node, prompt) {
  if (node.title === prompt && node.textContent) return; // scrolling lays the page out
  node.textContent = askedIn(prompt);
  node.title = prompt;
  node.scrollTop = node.scrollHeight;
}

/** @param {string} text */
const withCode = (text) => text.split("`").map((part, i) => i % 2 ? el("code", {}, part) : part);

/**
 * A fact, its detail, and a button for what can be done about it, if anything.
 * @param {GlancePayload} fact @param {(target: string) => (() => void) | null} follow
 * @param {(() => void) | null} act
 */
export function factElement({ said, detail, label }, follow, act) {
  const parts = (/** @type {SaidPart[]} */ of) => sentence(of, follow);
  const button = act
    ? el(
      "span",
      { class: "act" },
      detail.length ? " · " : null,
      el("button", { type: "button", class: "link", onclick: act }, label),
    )
    : null;
  return el("div", {}, el("p", {}, ...parts(said)), el("p", { class: "more-said" }, ...parts(detail), button));
}
