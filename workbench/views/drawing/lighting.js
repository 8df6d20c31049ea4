// What a number of a formula is made of: the tokens that light up on the cards while it is pointed at.

/** @import { Place, Prepared } from "./payload.js" */
/**
 * @typedef {{ of: "token" | "completion" | "group" | "scored" | "steps", steps?: number[] }} Lights
 * @typedef {{ g: number, first: number, last: number }} Stretch tokens of a rollout
 */

/**
 * The tokens behind a number of the pinned token: itself, steps of its rollout, its completion, all scored steps of the
 * group, or the group.
 * @param {Prepared} data @param {Place} pinned @param {Lights} lights @returns {Stretch[]}
 */
export function lit({ rollouts }, { g, t }, lights) {
  const whole = (/** @type {number} */ i) => ({ g: i, first: 0, last: rollouts[i].texts.length - 1 });
  if (lights.of === "token") return [{ g, first: t, last: t }];
  if (lights.of === "completion") return [whole(g)];
  if (lights.of === "group") return rollouts.map((_, i) => whole(i));
  if (lights.of === "scored") {
    return rollouts.flatMap(({ steps }, i) =>
      (steps ?? []).flatMap(({ reward, first, last }) => reward === null ? [] : [{ g: i, first, last }])
    );
  }
  return (lights.steps ?? []).flatMap((k) => {
    const step = rollouts[g].steps?.[k];
    return step ? [{ g, first: step.first, last: step.last }] : [];
  });
}

/** @param {HTMLElement} root @param {Stretch[]} stretches Lights tokens up and dims the others; none: all as before. */
export function light(root, stretches) {
  for (const node of root.querySelectorAll("i.lit")) node.classList.remove("lit");
  root.classList.toggle("lighting", stretches.length > 0);
  for (const { g, first, last } of stretches) {
    for (
      const node of /** @type {NodeListOf<HTMLElement>} */ (root.querySelectorAll(`.rollout[data-g="${g}"] .text i`))
    ) {
      const t = Number(node.dataset.t);
      if (first <= t && t <= last) node.classList.add("lit");
    }
  }
}

/**
 * Has numbers with `data-lights` in a node light up what they are made of, pointed at or focused.
 * @param {HTMLElement} node @param {(lights: Lights | null) => void} show
 */
export function listenForLights(node, show) {
  const at = (/** @type {Event} */ { target }) => {
    const term = /** @type {HTMLElement | null} */ (/** @type {Element} */ (target).closest?.("[data-lights]"));
    show(term ? JSON.parse(term.dataset.lights ?? "") : null);
  };
  for (const event of ["pointerover", "focusin"]) node.addEventListener(event, at);
  for (const event of ["pointerleave", "focusout"]) node.addEventListener(event, () => show(null));
}
