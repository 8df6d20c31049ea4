// What every element of the page that draws a JSON value does: read it, draw it, and ask the server while it can be seen.

/** @import { Attributes } from "../../views/dom.js" */
/** @import { Handles } from "./payloads.js" */

import { el } from "../../views/dom.js";

/** @param {Handles<any>} handles The node that an element draws in. */
export const rootOf = ({ element }) => /** @type {HTMLElement} */ (element.querySelector(".drawn"));

/**
 * Draws the value of a gr.HTML now and whenever it changes; it is null where the element is empty.
 * @template Value
 * @param {Handles<any>} handles @param {(root: HTMLElement, value: Value | null) => void} draw
 */
export function follow(handles, draw) {
  const { props, watch } = handles;
  const update = () => draw(rootOf(handles), props.value ? JSON.parse(props.value) : null);
  watch("value", update);
  update();
}

/**
 * Calls `task` every `milliseconds()` while the element is on a page that can be seen; never two at once.
 * @param {HTMLElement} element @param {() => unknown} task @param {() => number} milliseconds
 */
export function whileVisible(element, task, milliseconds) {
  let timer = 0;
  const tick = async () => {
    clearTimeout(timer);
    if (!element.isConnected) return;
    if (!document.hidden) await task();
    timer = setTimeout(tick, milliseconds());
  };
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) tick();
  });
  tick();
}

/**
 * What the server answers. Rejects where it did not: Gradio's own functions give undefined then.
 * @template Answer
 * @param {Promise<Answer | undefined>} call
 */
export async function answerOf(call) {
  const answer = await call;
  if (answer === undefined) throw new Error("The workbench did not answer; try again.");
  return answer;
}

/** @param {string} text @param {() => unknown} onclick @param {Attributes} [more] A button that looks like a link. */
export const link = (text, onclick, more = {}) =>
  el("button", { type: "button", class: "link", onclick, ...more }, text);

// What the tabs call of each other: each sets its own function when it is mounted.
export const tabs = {
  /** @type {(name: string) => void} */
  showTrain: () => {},
  /** @type {(text: string, lead: () => void) => void} Says something in the page's header, which leads to what it is about. */
  tell: () => {},
  /** @type {(names: string[]) => void} */
  showRuns: () => document.getElementById("runs-tab-button")?.click(),
};
