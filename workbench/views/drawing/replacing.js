// Drawing cards anew without a jump: a card out of sight takes as much room as the one it replaces, and is painted later: with
// the next pause in typing, or when something is scrolled.

const PAUSE = 300; // milliseconds

/** @type {WeakMap<HTMLElement, number>} the timers of what is painted later */
const painting = new WeakMap();

/** @type {(node: Element) => number | null} the rollout whose card a node is on */
export const rolloutOf = (node) => {
  const article = /** @type {HTMLElement | null} */ (node.closest(".rollout"));
  return article && Number(article.dataset.g);
};

/** @param {HTMLElement} holder @returns {Map<number | null, DOMRect>} Where each rollout's card is. */
export const boxesOf = (holder) =>
  new Map([...holder.children].map((article) => [rolloutOf(article), article.getBoundingClientRect()]));

/** @param {DOMRect | undefined} box */
export const isInSight = (box) => box !== undefined && box.top <= innerHeight && box.bottom >= 0;

/**
 * @param {HTMLElement} holder @param {Map<number | null, DOMRect>} boxes of the cards that it holds
 * @param {number | null} focused the rollout that has the focus @param {HTMLElement[]} articles
 */
export function replaceCards(holder, boxes, focused, articles) {
  for (const article of articles) {
    const g = rolloutOf(article);
    const box = boxes.get(g);
    if (!box) continue;
    article.style.containIntrinsicHeight = `auto ${box.height}px`;
    if (article.classList.contains("plain")) article.style.minHeight = `${box.height}px`;
    article.classList.toggle("later", !isInSight(box) && focused !== g);
  }
  holder.replaceChildren(...articles);
  clearTimeout(painting.get(holder));
  painting.set(holder, setTimeout(() => paintAll(holder), PAUSE));
  addEventListener("scroll", () => paintAll(holder), { once: true, passive: true, capture: true });
}

/** @param {HTMLElement} holder Cards out of sight are painted as they come near. */
function paintAll(holder) {
  for (const article of holder.querySelectorAll(".later")) article.classList.remove("later");
}
