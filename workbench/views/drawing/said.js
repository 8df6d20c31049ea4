// Sentences about a group or a token, as sentences.py writes them: text, with links to what a number stands for.

/** @import { SaidPart } from "./payload.js" */

import { el } from "../dom.js";

/**
 * One sentence. A part with a target that `follow` knows is a button that does what it returns.
 * @param {SaidPart[]} parts @param {(target: string) => (() => void) | null} follow
 */
export const sentence = (parts, follow) =>
  parts.flatMap(([text, target]) => {
    const go = target === null ? null : follow(target);
    return go ? [el("button", { type: "button", class: "link", onclick: go }, text)] : withCode(text);
  });

/** @param {string} text Names between backticks are code. */
const withCode = (text) => text.split("`").map((part, i) => i % 2 ? el("code", {}, part) : part);
