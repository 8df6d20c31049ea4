// Marks what was searched for in the texts of cards, without a change to their elements.

import { unfoldFound } from "./turns.js";

const NAME = "wh-search"; // of the style sheet's ::highlight
const MOST = 2000; // places

/** @type {WeakMap<HTMLElement, Range[]>} what is marked in each drawing */
const marked = new WeakMap();

/** @param {string} text @param {string} wanted @returns {number[]} Where it begins, in whatever case. */
export function placesOf(text, wanted) {
  const [low, needle] = [text.toLowerCase(), wanted.toLowerCase()];
  if (!needle || low.length !== text.length) return []; // a letter that is longer in lower case would move the rest
  const places = [];
  for (let at = low.indexOf(needle); at >= 0; at = low.indexOf(needle, at + needle.length)) places.push(at);
  return places;
}

/** @param {HTMLElement} cards @param {string} wanted */
export function markText(cards, wanted) {
  unfoldFound(cards, wanted);
  if (!globalThis.CSS?.highlights) return; // a browser that cannot: the cards are found all the same
  const highlight = CSS.highlights.get(NAME) ?? new Highlight();
  for (const range of marked.get(cards) ?? []) highlight.delete(range);
  /** @type {Range[]} */
  const ranges = [];
  for (const pre of wanted ? cards.querySelectorAll(".rollout:not([hidden]) pre.text") : []) {
    if (ranges.length < MOST) ranges.push(...rangesIn(pre, wanted));
  }
  for (const range of ranges) highlight.add(range);
  marked.set(cards, ranges);
  CSS.highlights.set(NAME, highlight);
}

/** @param {Element} pre @param {string} wanted */
function rangesIn(pre, wanted) {
  // Of the text, what the model wrote: not the numbers beside its steps.
  const isToken = (/** @type {Node} */ node) =>
    node.parentElement?.closest("i, .plain > pre") ? NodeFilter.FILTER_ACCEPT : NodeFilter.FILTER_SKIP;
  const walker = document.createTreeWalker(pre, NodeFilter.SHOW_TEXT, isToken);
  /** @type {{ node: Text, start: number }[]} */
  const nodes = [];
  let length = 0;
  while (walker.nextNode()) {
    const node = /** @type {Text} */ (walker.currentNode);
    nodes.push({ node, start: length });
    length += node.data.length;
  }
  const at = (/** @type {number} */ offset, /** @type {boolean} */ isEnd) => {
    const place = nodes.findLast(({ start }) => (isEnd ? start < offset : start <= offset));
    return /** @type {const} */ ([place?.node ?? pre, offset - (place?.start ?? 0)]);
  };
  return placesOf(nodes.map(({ node }) => node.data).join(""), wanted).map((start) => {
    const range = document.createRange();
    range.setStart(...at(start, false));
    range.setEnd(...at(start + wanted.length, true));
    return range;
  });
}
