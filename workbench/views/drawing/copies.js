// Exact copies in a group: drawn once, as ×n, until they are unfolded.

/** @import { SchemePayload } from "../payloads.d.ts" */
/** @import { Credited, Prepared } from "./payload.js" */

import { el } from "../dom.js";

/** @param {Prepared} data @param {number} g The rollout that stands for it: the first that it is a copy of, or itself. */
export const firstOf = ({ rollouts }, g) => rollouts[g].copyOf ?? g;

/** @param {Prepared} data @param {number} g All rollouts that equal it, itself among them. */
export const equalTo = (data, g) =>
  data.rollouts.flatMap((_, other) => (firstOf(data, other) === firstOf(data, g) ? [other] : []));

/** @param {Prepared} data @param {Set<string>} unfolded @returns {number[]} The rollouts that have a card. */
export const drawn = (data, unfolded) =>
  data.rollouts.flatMap(({ copyOf }, g) =>
    copyOf === undefined || unfolded.has(keyOf(data.rollouts[copyOf])) ? [g] : []
  );

/** @param {Credited} rollout What stays the same when the same completion is drawn anew. */
export const keyOf = ({ ids, finished }) => `${ids.join(" ")} ${finished}`;

/** @param {Partial<SchemePayload>} scheme @param {Pick<Credited, "copyOf">} rollout Whether its scheme does not count it. */
export const isLeftOut = ({ options }, { copyOf }) => copyOf !== undefined && options?.drop_duplicates === true;

/** @param {number[]} members Their numbers from 1: "rollouts 2, 5, 7". */
export const named = (members) => `rollout${members.length > 1 ? "s" : ""} ${members.map((g) => g + 1).join(", ")}`;

/** @param {Prepared} data @param {number[]} members Whether equal completions were scored alike. */
export function scoredAlike({ rollouts }, members) {
  const scores = members.map((g) => [rollouts[g].outcome, rollouts[g].steps?.map(({ reward }) => reward)]);
  return new Set(scores.map((of) => JSON.stringify(of))).size === 1;
}

/** @param {Prepared} data @param {number} g @param {boolean} folded What a card's header says of copies. */
export function copyMarks(data, g, folded) {
  const members = equalTo(data, g);
  const { length } = members;
  if (length === 1) return [];
  const { copyOf } = data.rollouts[g];
  if (copyOf !== undefined) {
    const said = isLeftOut(data, data.rollouts[g]) ? "left out" : "copy";
    return [el("span", { class: "fact" }, el("em", {}, said), `as rollout ${copyOf + 1}`)];
  }
  const title = folded ? `Show each of ${named(members)}` : `Show ${named(members)} as one`;
  const button = {
    ...{ type: "button", class: "copies", "data-fold": g, "aria-expanded": String(!folded) },
    ...{ "aria-label": `×${length}: ${title[0].toLowerCase()}${title.slice(1)}`, title },
  };
  const counted = data.options?.drop_duplicates === true ? ", counted once" : "";
  return [
    el("button", button, `×${length}`),
    folded
      ? el("span", { class: "fact" }, el("em", {}), `identical: ${members.map((g) => g + 1).join(", ")}${counted}`)
      : null,
    folded && !scoredAlike(data, members)
      ? el("mark", { title: "The same text got different scores; unfold to see each" }, "scores differ")
      : null,
  ];
}
