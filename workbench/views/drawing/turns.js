// The turns of an episode on its card: a chip where each begins, observations in grey.
//
// A chip and a fold's button have no text of their own: the style sheet draws it, so that the <pre> has exactly the
// completion as its textContent.

/** @import { TurnPayload } from "../payloads.d.ts" */
/** @import { Credited } from "./payload.js" */
/** @typedef {{ node: HTMLElement, holder: HTMLElement, start: number, end: number }} TurnElement */

import { el } from "../dom.js";
import { number } from "../numbers.js";

export const OBSERVED = "an observation, not sampled: no advantage";
export const OBSERVED_TITLE = "Tokens that an environment or a tool wrote: not sampled, no advantage";
const FOLDED_LINES = 3;
const FOLDED_CHARACTERS = 300; // of one long line, which wraps
const SAID = 160; // characters of an error on a chip; the whole is in its title

/** @param {Pick<Credited, "turns">} rollout @param {number} t The observation that holds a token, where one does. */
export const observationAt = ({ turns }, t) => turns?.find((turn) => !turn.sampled && turn.start <= t && t < turn.end);

/** @param {Pick<Credited, "texts" | "turns">} rollout How many tokens the policy sampled. */
export const sampledLength = ({ texts, turns }) =>
  turns ? turns.reduce((sum, { sampled, start, end }) => sum + (sampled ? end - start : 0), 0) : texts.length;

/** @param {Pick<Credited, "turns">} rollout How many turns of the policy's. */
export const turnCount = ({ turns = [] }) => turns.filter(({ sampled }) => sampled).length;

/** @param {TurnPayload[]} turns @param {number} i What the chip of a turn says; errors and notes whole. */
export function turnSaid(turns, i) {
  const { role, sampled, calls, isCall, error, note } = turns[i];
  const name = sampled ? `turn ${turnCount({ turns: turns.slice(0, i + 1) })}` : role;
  const tools = [...new Set(calls ?? [])].filter(Boolean).join(", ");
  const call = calls?.length ? `${isCall ? "call" : "calls"} ${tools}`.trim() : "";
  return [name, call, error === null ? "" : `error: ${error}`, note].filter(Boolean).join(" · ");
}

/** @param {string} text */
const short = (text) => text.length > SAID ? `${text.slice(0, SAID)}…` : text;

/** @param {Credited} rollout @returns {TurnElement[]} A block for each turn, without its tokens. */
export function turnElements({ turns = [], offsets, texts }) {
  const whole = texts.join("");
  return turns.map((turn, i) => {
    const { sampled, error, note, seconds, start, end } = turn;
    const said = turnSaid(turns, i);
    const chip = el("span", {
      class: error === null && !note ? "says" : "says noted",
      role: "img",
      "data-said": short(said),
      "aria-label": said,
      title: seconds > 0 ? `${said} · ${seconds >= 0.01 ? number(seconds, 2) : "< 0.01"} s` : said,
    });
    const long = !sampled && isLong(whole.slice(offsets[start], offsets[end]));
    const holder = el("span", { class: long ? "seen folded" : "seen" });
    const fold = long ? foldButton(whole.slice(offsets[start], offsets[end])) : null;
    return {
      node: el("span", { class: sampled ? "turn" : "turn observation" }, chip, holder, fold),
      holder,
      start,
      end,
    };
  });
}

/** @param {string} text Whether an observation is folded at first. */
export const isLong = (text) => text.trimEnd().split("\n").length > FOLDED_LINES || text.length > FOLDED_CHARACTERS;

/** @param {string} text */
function foldButton(text) {
  const lines = text.trimEnd().split("\n").length;
  const all = lines > FOLDED_LINES ? `all ${lines} lines` : `all ${text.length} characters`;
  return el("button", { type: "button", class: "unfold", "data-all": all, ...foldSaid(all, true) });
}

/** @param {string} all @param {boolean} folded */
const foldSaid = (all, folded) => ({
  "data-said": folded ? `show ${all}` : "fold",
  "aria-label": folded ? `Show ${all} of the observation` : "Fold the observation",
  "aria-expanded": String(!folded),
});

/** @param {Element} target What was clicked: whether it was the button of a fold. */
export function toggleFold(target) {
  const button = /** @type {HTMLElement | null} */ (target.closest(".unfold"));
  if (button) fold(button, button.getAttribute("aria-expanded") === "true");
  return button !== null;
}

/** @param {HTMLElement} button @param {boolean} folded */
function fold(button, folded) {
  button.previousElementSibling?.classList.toggle("folded", folded);
  for (const [name, value] of Object.entries(foldSaid(button.dataset.all ?? "", folded))) {
    button.setAttribute(name, value);
  }
}

/** @param {HTMLElement} cards @param {string} wanted Unfolds the observations that hold what is searched for. */
export function unfoldFound(cards, wanted) {
  if (!wanted) return;
  for (const node of cards.querySelectorAll(".seen.folded")) {
    const holds = node.textContent?.toLowerCase().includes(wanted.toLowerCase());
    if (holds) fold(/** @type {HTMLElement} */ (node.nextElementSibling), false);
  }
}

/** @param {TurnPayload[] | undefined} turns */
export function errorMark(turns) {
  const errors = (turns ?? []).flatMap(({ error }) => error === null ? [] : [error]);
  return errors.length ? el("mark", { title: errors.join("\n") }, "error") : null;
}

/** @param {Pick<Credited, "turns">} rollout What its turns took, where that was measured. */
export function timeSaid({ turns = [] }) {
  const [generation, environment] = [true, false].map((mine) =>
    turns.reduce((sum, { sampled, seconds }) => sum + (sampled === mine ? seconds : 0), 0)
  );
  if (!(generation + environment > 0)) return "";
  return `Sampling took ${number(generation, 2)} s, the environment ${number(environment, 2)} s`;
}
