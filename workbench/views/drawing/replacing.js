// Drawing cards anew without a jump: a card out of sight takes as much room as the one it replaces, and is painted later: with
// the next pause in typing, or when something is scrolled. One in sight is laid out at once.

const PAUSE = 300; // milliseconds

/** @type {WeakMap<HTMLElement, AbortController>} ends the wait for what is painted later */
const painting = new WeakMap();

/** @type {(node: Element) => number | null} the rollout whose card a node is on */
export const rolloutOf = (node) => {
  const article = /** @type {HTMLElement | null} */ (node.closest(".rollout"));
  return article && Number(article.dataset.g);
};

/** @param {HTMLElement} holder @returns {Boxes} Where each rollout's card is. */
export const boxesOf = (holder) =>
  new Map([...holder.children].map((article) => [rolloutOf(article), article.getBoundingClientRect()]));

/** @typedef {Map<number | null, DOMRect>} Boxes */

/** @param {DOMRect} box */
export const isInSight = (box) => box.top <= innerHeight && box.bottom >= 0;

/**
 * @param {HTMLElement} holder @param {Boxes} boxes of the cards that it holds
 * @param {number | null} focused the rollout that has the focus @param {HTMLElement[]} articles
 * @param {() => void} then what is done with the pause
 */
export function replaceCards(holder, boxes, focused, articles, then) {
  for (const article of articles) {
    const g = rolloutOf(article);
    const box = boxes.get(g);
    if (!box) continue;
    article.style.containIntrinsicHeight = `auto ${box.height}px`;
    if (article.classList.contains("plain")) article.style.minHeight = `${box.height}px`;
    const isNow = isInSight(box) || focused === g;
    article.classList.add(isNow ? "now" : "later");
  }
  holder.replaceChildren(...articles);
  painting.get(holder)?.abort();
  const waiting = new AbortController(), { signal } = waiting;
  painting.set(holder, waiting);
  const paintAll = () => {
    waiting.abort();
    for (const article of articles) article.classList.remove("now", "later");
    then();
  };
  const timer = setTimeout(paintAll, boxes.size && PAUSE);
  signal.addEventListener("abort", () => clearTimeout(timer));
  addEventListener("scroll", paintAll, { signal, passive: true, capture: true });
}
