// The colours of a card: each token's and each step chip's, by the chosen measure, without rebuilding anything.

/** @import { Credited, Measure } from "./payload.js" */

import { ofWhole, tint } from "./measures.js";

const KEPT_CLASSES = ["eos", "empty", "straddles", "flips", "foreign", "match", "pinned", "lit"]; // of a token, whatever it is coloured by

/** @param {Element} article @param {Credited} rollout @param {Measure} measure @param {number} limit */
export function colourTokens(article, rollout, measure, limit) {
  for (const node of /** @type {NodeListOf<HTMLElement>} */ (article.querySelectorAll(".text i"))) {
    const kept = node.className ? KEPT_CLASSES.filter((name) => node.classList.contains(name)) : [];
    const credited = rollout.twin && !measure.one && node.closest(".second") ? rollout.twin : rollout;
    const t = Number(node.dataset.t);
    const heat = rollout.observed?.[t] ? "" : tint(measure.token(credited, t), limit, measure);
    const look = [...kept, heat].join(" ").trim();
    if (node.className !== look) node.className = look;
  }
}

/** @param {Element} article @param {Credited} rollout @param {Measure} measure @param {number} limit @param {number} here the pinned step */
export function colourChips(article, rollout, measure, limit, here) {
  for (const node of /** @type {NodeListOf<HTMLElement>} */ (article.querySelectorAll(".chip"))) {
    const k = Number(node.dataset.k);
    node.className = `chip ${tint(ofWhole(measure, rollout, k), limit, measure)}`.trim();
    if (here === k) node.classList.add("pinned");
  }
}
