// The first visit's tour: three things to look at, left at any moment. It is drawn once by itself and never again; Help
// shows it when asked.

import { el } from "../../views/dom.js";

const SEEN = "workbench-tour"; // in the browser's storage

/** What is pointed at, by selector, and said of it. */
export const STEPS = [
  {
    at: "#heatmap",
    title: "A group, scored",
    text:
      "Eight answers to one prompt, cut into steps. Blue tokens are made more likely, orange ones less; ✕ marks a " +
      "wrong step. Click a token to see the sum behind its colour.",
  },
  {
    at: "#controls",
    title: "What it is made of",
    text:
      "Task, step pattern, reward functions, credit scheme. Change one: the same answers are scored anew at once. " +
      "Sample & score asks the policy for others.",
  },
  {
    at: "#train-on-this",
    title: "Train with it",
    text: "Open in Train takes these settings along; Start there trains the embedded policy in about a minute, and " +
      "shows these colours of its own rollouts while it does.",
  },
];

/**
 * Whether the tour is to be shown by itself: on the first visit, to the page as it opens. From then on it is not.
 * @param {() => Pick<Storage, "getItem" | "setItem">} storageOf which a browser may refuse @param {string} search of the
 *   address
 */
export function isFirstVisit(storageOf, search) {
  const linked = [...new URLSearchParams(search).keys()].some((name) => name !== "token");
  try {
    const storage = storageOf();
    if (linked || storage.getItem(SEEN)) return false;
    storage.setItem(SEEN, "seen");
    return storage.getItem(SEEN) !== null; // where nothing is kept it would come back by itself
  } catch {
    return false;
  }
}

/** Shows the tour from its first step. */
export function showTour() {
  document.getElementById("tour")?.remove();
  let place = 0;
  const title = el("b");
  const text = el("p");
  const count = el("span", { class: "muted" });
  const next = el("button", { type: "button", class: "next", onclick: () => go(place + 1) });
  const leave = () => {
    mark(null);
    node.remove();
    document.removeEventListener("keydown", escape);
  };
  const escape = (/** @type {KeyboardEvent} */ event) => event.key === "Escape" && leave();
  const close = el("button", { type: "button", onclick: leave }, "Leave");
  const node = el(
    "aside",
    { id: "tour", role: "dialog", "aria-label": "Tour", "aria-live": "polite" },
    title,
    text,
    el("div", {}, count, close, next),
  );
  const go = (/** @type {number} */ step) => {
    if (step >= STEPS.length) {
      leave();
      return;
    }
    place = step;
    title.textContent = STEPS[step].title;
    text.textContent = STEPS[step].text;
    count.textContent = `${step + 1} of ${STEPS.length}`;
    next.textContent = step + 1 < STEPS.length ? "Next" : "Done";
    mark(document.querySelector(STEPS[step].at));
  };
  document.addEventListener("keydown", escape);
  document.body.append(node);
  go(0);
}

/** @param {Element | null} target Outlines what is pointed at, and nothing else. */
function mark(target) {
  for (const other of document.querySelectorAll(".toured")) other.classList.remove("toured");
  if (!target) return;
  target.classList.add("toured");
  const { top, bottom } = target.getBoundingClientRect();
  if (bottom < 0 || top > innerHeight) target.scrollIntoView({ block: "nearest" });
}
