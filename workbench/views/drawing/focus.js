// Moving the focus over the steps of a drawing with the keyboard.

import { STEPS } from "./cards.js";
import { rolloutOf } from "./replacing.js";

/** @typedef {{ g: number | null, k: number }} StepPlace a step's row */

const GAP = 12; // pixels

/** @param {HTMLElement} cards @param {StepPlace} place @returns {HTMLElement | null} */
export const stepNode = (cards, { g, k }) => cards.querySelector(`.rollout[data-g="${g}"] ${STEPS}[data-k="${k}"]`);

/** @param {HTMLElement} cards @returns {StepPlace | null} The step that has the focus. */
export function focusedStep(cards) {
  const node = /** @type {HTMLElement | null} */ (document.activeElement?.closest(".step") ?? null);
  return node && cards.contains(node) ? { g: rolloutOf(node), k: Number(node.dataset.k) } : null;
}

/** @param {HTMLElement} cards @param {StepPlace | null} place Makes the first step the one that Tab reaches. */
export function refocus(cards, place) {
  const first = /** @type {HTMLElement | null} */ (cards.querySelector(STEPS));
  if (first) first.tabIndex = 0;
  if (place) focusStep(cards, stepNode(cards, place));
}

/** @param {HTMLElement} cards @param {HTMLElement | null | undefined} step Moves the focus, and where Tab comes in. */
export function focusStep(cards, step) {
  if (!step) return;
  for (const other of cards.querySelectorAll('.step[tabindex="0"]')) other.setAttribute("tabindex", "-1");
  step.tabIndex = 0;
  step.closest(".later")?.classList.remove("later"); // or it could not have the focus
  step.focus({ preventScroll: true });
}

/**
 * The step that an arrow leads to: up and down along a rollout's steps, left and right to the card before or after, Home
 * and End to the first and the last card.
 * @param {HTMLElement} cards @param {HTMLElement} from @param {string} key
 * @param {(article: Element) => Element} whole gives the card with its tokens @returns {HTMLElement | undefined}
 */
export function nextStep(cards, from, key, whole) {
  const articles = [...cards.querySelectorAll(".rollout:not([hidden])")];
  const here = articles.findIndex((article) => article.contains(from));
  const by = { ArrowRight: 1, ArrowLeft: -1, Home: -here, End: articles.length - 1 - here }[key] ?? 0;
  const down = { ArrowDown: 1, ArrowUp: -1 }[key] ?? 0;
  const article = whole(articles[Math.max(0, Math.min(articles.length - 1, here + by))]);
  const steps = /** @type {HTMLElement[]} */ ([...article.querySelectorAll(STEPS)]);
  const place = by ? Number(from.dataset.k) : steps.indexOf(from) + down;
  return steps[Math.max(0, Math.min(steps.length - 1, place))];
}

/** @param {HTMLElement | null} node @param {HTMLElement} below Scrolls what a panel at the bottom covers to above it. */
export function uncover(node, below) {
  if (!node) return;
  node.closest(".later")?.classList.remove("later");
  const isOver = getComputedStyle(below).bottom === "0px"; // it sticks to the bottom, and does not stand beside the cards
  node.style.scrollMarginTop = `${GAP}px`;
  node.style.scrollMarginBottom = `${isOver ? below.offsetHeight + GAP : GAP}px`;
  scrollTo(node);
}

/** @param {Element | undefined} node Scrolls it into view, and again when the rows that it comes to lie among are laid out. */
export function scrollTo(node) {
  const scroll = () => node?.scrollIntoView({ block: "nearest", inline: "nearest" });
  scroll();
  requestAnimationFrame(() => setTimeout(scroll));
}
