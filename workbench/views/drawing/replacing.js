// Drawing cards anew without a jump: a card out of sight takes as much room as the one it replaces, and is painted later.

/** @type {(node: Element) => number | null} the rollout whose card a node is on */
export const rolloutOf = (node) => {
  const article = /** @type {HTMLElement | null} */ (node.closest(".rollout"));
  return article && Number(article.dataset.g);
};

/** @param {HTMLElement} holder @param {number} focused the rollout that has the focus @param {HTMLElement[]} articles */
export function replaceCards(holder, focused, articles) {
  const before = [...holder.children].map((article) => ({
    g: rolloutOf(article),
    box: article.getBoundingClientRect(),
  }));
  const boxes = new Map(before.map(({ g, box }) => [g, box]));
  for (const article of articles) {
    const g = rolloutOf(article);
    const box = boxes.get(g);
    if (!box) continue;
    article.style.containIntrinsicHeight = `auto ${box.height}px`;
    article.classList.toggle("later", (box.top > innerHeight || box.bottom < 0) && focused !== g);
  }
  holder.replaceChildren(...articles);
  requestAnimationFrame(() =>
    setTimeout(() => {
      for (const article of holder.querySelectorAll(".later")) article.classList.remove("later");
    })
  );
}
