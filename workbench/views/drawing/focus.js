// Moving the focus over the steps of a drawing with the keyboard.

import { STEPS } from "./cards.js";
import { rolloutOf } from "./replacing.js";

/** @typedef {{ g: number | null, k: number, kind: string }} StepPlace a step's text or chip, by its selector */

const GAP = 12; // pixels

/** @type {(node: ParentNode) => HTMLElement[]} */
const stepsIn = (node) =>
  [...node.querySelectorAll(STEPS)]
    .map((step) => /** @type {HTMLElement} */ (step))
    .filter((step) => !step.closest("[hidden]"));

/** @param {HTMLElement} cards @param {StepPlace} place @returns {HTMLElement | null} */
export const stepNode = (cards, { g, k, kind }) =>
  cards.querySelector(`.rollout[data-g="${g}"] ${kind}[data-k="${k}"]`);

/** @param {HTMLElement} cards @returns {StepPlace | null} The step or chip that has the focus. */
export function focusedStep(cards) {
  const node = /** @type {HTMLElement | null} */ (document.activeElement?.closest(".step, .chip") ?? null);
  if (!node || !cards.contains(node)) return null;
  return { g: rolloutOf(node), k: Number(node.dataset.k), kind: node.classList.contains("chip") ? ".chip" : STEPS };
}

/** @param {HTMLElement} cards @param {StepPlace | null} place Makes the first step the one that Tab reaches. */
export function refocus(cards, place) {
  const first = /** @type {HTMLElement | null} */ (cards.querySelector(STEPS));
  if (first) first.tabIndex = 0;
  if (place) stepNode(cards, place)?.focus({ preventScroll: true });
}

/**
 * Left and right along the rollout and on into the next, up and down between rollouts, Home and End to the ends.
 * @param {HTMLElement} cards @param {HTMLElement} from @param {string} key
 */
export function moveFocus(cards, from, key) {
  const target = targetOf(cards, from, key);
  if (!target) return;
  from.tabIndex = -1;
  target.tabIndex = 0;
  target.focus();
}

/**
 * Scrolls what the lines stuck to the top and to the bottom of a drawing cover to between them.
 * @param {HTMLElement | null} node @param {HTMLElement} above @param {HTMLElement} below
 */
export function uncover(node, above, below) {
  if (!node) return;
  node.style.scrollMarginTop = `${above.offsetHeight + GAP}px`;
  node.style.scrollMarginBottom = `${below.offsetHeight + GAP}px`;
  node.scrollIntoView({ block: "nearest", inline: "nearest" });
}

/** @param {HTMLElement} cards @param {HTMLElement} from @param {string} key */
function targetOf(cards, from, key) {
  const steps = stepsIn(cards);
  const here = steps.indexOf(from);
  switch (key) {
    case "ArrowRight":
      return steps[here + 1];
    case "ArrowLeft":
      return steps[here - 1];
    case "Home":
      return steps[0];
    case "End":
      return steps[steps.length - 1];
    default:
      return sameStepOf(cards, from, key === "ArrowDown" ? 1 : -1);
  }
}

/** @param {HTMLElement} cards @param {HTMLElement} from @param {number} by */
function sameStepOf(cards, from, by) {
  const articles = [...cards.querySelectorAll(".rollout:not([hidden])")];
  const article = articles[articles.findIndex((node) => node.contains(from)) + by];
  const steps = article ? stepsIn(article) : [];
  return steps[Math.min(Number(from.dataset.k), steps.length - 1)];
}
