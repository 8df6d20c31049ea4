// Texts that grow while a group is being sampled: a card with one text node a rollout, nothing to colour yet.

/** @typedef {{ text: Text, mark: HTMLElement, card: HTMLElement }} Stream */

import { el } from "../dom.js";

/** @param {number} total @returns {Stream[]} */
export const beginStreams = (total) =>
  Array.from({ length: total }, (_, g) => {
    const [text, mark] = [document.createTextNode(""), el("span", { class: "fact" })];
    const label = `Rollout ${g + 1} of ${total}, being sampled`;
    const card = el(
      "article",
      { class: "rollout streaming", "data-g": g, "aria-label": label },
      el("header", {}, el("h3", {}, `${g + 1}`), mark),
      el("pre", { class: "text" }, text),
    );
    return { text, mark, card };
  });

/** @param {Stream[]} streams @param {string[]} texts @param {boolean[]} finished */
export function showTexts(streams, texts, finished) {
  streams.forEach(({ text, mark }, g) => {
    if (text.data !== texts[g]) text.data = texts[g];
    mark.textContent = finished[g] ? "finished" : "sampling …";
  });
}
